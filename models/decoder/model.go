package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// Model is a configuration with what it takes to trace it. The parameters are
// handed to its methods by name; see Config.Params.
type Model struct {
	Config    Config
	Placement Placement
	Options   Options
}

// Options change how a model is computed, not what.
type Options struct {
	Remat      ActivationCheckpoint
	Unroll     bool // record every layer instead of a loop over them
	Attention  AttentionOptions
	LossChunks int // parts of the sequence whose logits exist at a time; 0 and 1 mean all
	// ExpertBlock is the number of rows multiplied by an expert's weights at a
	// time; 0 chooses.
	ExpertBlock int
	// ForceLoadBalance sends tokens round the experts regardless of the router,
	// for benchmarks.
	ForceLoadBalance bool
}

// Batch is what a model reads. All arrays are [B, S].
type Batch struct {
	Tokens *graph.Value // s32
	Labels *graph.Value // s32; Loss only
	// Valid is 1 where a label counts and 0 elsewhere, f32; Loss only.
	Valid *graph.Value
	// Positions for the rotary embedding, s32; nil counts from 0 in each row.
	Positions *graph.Value
	// Segments, s32, keep attention to tokens of the same segment; nil for
	// rows of one document.
	Segments *graph.Value
}

// weights are the parameters of one layer.
type weights map[string]*graph.Value

// Loss holds the parts of a training loss, f32, over the batch of all devices.
type Loss struct {
	Sum    *graph.Value // of the cross-entropies of valid tokens
	Tokens *graph.Value // valid tokens
	// Own and OwnTokens are the same over the sequences of this device and of
	// those that share them with it.
	Own, OwnTokens *graph.Value
	// Aux and Z are the router's losses, before their coefficients; nil for
	// dense models.
	Aux, Z *graph.Value
	// ExpertTokens is how many tokens each expert got, over all layers, f32 [E].
	ExpertTokens *graph.Value
}

// Loss traces the model on a batch.
func (m *Model) Loss(b *graph.Builder, params map[string]*graph.Value, batch Batch) Loss {
	x, balances := m.hidden(b, params, batch)
	output := params["output"]
	if m.Config.TieEmbeddings {
		output = params["embed"]
	}
	p := m.Placement
	valid := m.part(batch.Valid)
	own := graph.Sum(m.tokenLoss(p.Enter(x), m.part(batch.Labels), valid, output))
	l := Loss{
		Sum: p.Sequences().Sum(own), Tokens: p.Sequences().Sum(graph.Sum(valid)),
		Own: p.Context().Sum(own), OwnTokens: p.Context().Sum(graph.Sum(valid)),
	}
	if len(balances) > 0 {
		l.Aux, l.Z, l.ExpertTokens = m.routerLosses(balances, x.Dim(0)*x.Dim(1))
	}
	return l
}

// Logits traces the model on a batch and returns f32 [B, S, V], where V is what
// this device has of the vocabulary.
func (m *Model) Logits(b *graph.Builder, params map[string]*graph.Value, batch Batch) *graph.Value {
	x, _ := m.hidden(b, params, batch)
	return m.head(m.Placement.Enter(x), params)
}

func (m *Model) head(x *graph.Value, params map[string]*graph.Value) *graph.Value {
	if m.Config.TieEmbeddings {
		return graph.Einsum("bsd,vd->bsv", x, m.Placement.Weight(params["embed"], "embed"), graph.As(dtype.F32))
	}
	return graph.Einsum("bsd,dv->bsv", x, m.Placement.Weight(params["output"], "output"), graph.As(dtype.F32))
}

// hidden returns the normalised output of the last layer, and what the routers
// did.
func (m *Model) hidden(b *graph.Builder, params map[string]*graph.Value, batch Batch) (*graph.Value, []balance) {
	positions := batch.Positions
	if positions == nil {
		positions = b.Iota(graph.T(dtype.S32, batch.Tokens.Dim(1)), 0)
	}
	segments := batch.Segments
	if segments != nil {
		segments = m.part(segments)
	}
	parts := layerParts{
		turn:    m.Config.newRope(b, m.part(positions)),
		attend:  func(q, k, v *graph.Value) *graph.Value { return m.attend(q, k, v, segments) },
		experts: m.experts,
	}
	x := m.embed(m.part(batch.Tokens), params["embed"])
	x, balances := m.layers(b, params, x, func(x *graph.Value, sparse bool, w weights) (*graph.Value, balance) {
		return m.layer(x, sparse, w, parts)
	})
	return m.lastNorm(x, params), balances
}

// part takes this device's tokens of whole sequences [B, S], or of what is the same
// for all of them, [S].
func (m *Model) part(x *graph.Value) *graph.Value {
	return HeadTail(x, x.Rank()-1, m.Placement.Context())
}

func (m *Model) lastNorm(x *graph.Value, params map[string]*graph.Value) *graph.Value {
	return rmsNorm(x, m.Placement.Weight(params["norm"], "norm"), m.Config.NormEps)
}

// attend is causal attention of this device's heads.
func (m *Model) attend(q, k, v, segments *graph.Value) *graph.Value {
	if g := m.Placement.Context(); !g.Alone() {
		return contextAttention(q, k, v, segments, g, m.Options.Attention)
	}
	return attention(q, k, v, segments, m.Options.Attention)
}

// layerParts are what differs between layers that see whole sequences and those
// that see the next tokens only.
type layerParts struct {
	turn rope
	// attend is attention of q [B, S, H, h] to k and v [B, S, K, h], which are
	// turned already.
	attend  func(q, k, v *graph.Value) *graph.Value
	experts func(h *graph.Value, w weights) (*graph.Value, balance)
}

// layer is one decoder layer on x [B, S, D].
func (m *Model) layer(x *graph.Value, sparse bool, w weights, parts layerParts) (*graph.Value, balance) {
	c, p := &m.Config, m.Placement
	use := func(name string) *graph.Value { return p.Weight(w[name], name) }
	h := p.Enter(rmsNorm(x, use("layers.attn_norm"), c.NormEps))
	q := graph.Einsum("bsd,dhk->bshk", h, use("layers.wq"))
	k := graph.Einsum("bsd,dhk->bshk", h, use("layers.wk"))
	v := graph.Einsum("bsd,dhk->bshk", h, use("layers.wv"))
	if c.QKNorm {
		q = rmsNorm(q, use("layers.q_norm"), c.NormEps)
		k = rmsNorm(k, use("layers.k_norm"), c.NormEps)
	}
	q, k, v = graph.Name(parts.turn.apply(q), NameQ), graph.Name(parts.turn.apply(k), NameK), graph.Name(v, NameV)
	o := graph.Name(parts.attend(q, k, v), NameAttnOut)
	x = graph.Name(graph.Add(x, p.Leave(graph.Einsum("bshk,hkd->bsd", o, use("layers.wo")))), NameResid)
	h = rmsNorm(x, use("layers.ffn_norm"), c.NormEps)
	var y *graph.Value
	var r balance
	if sparse {
		y, r = parts.experts(h, w)
	} else {
		h = p.Enter(h)
		gate := graph.Name(graph.Einsum("bsd,df->bsf", h, use("layers.w_gate")), NameGate)
		up := graph.Name(graph.Einsum("bsd,df->bsf", h, use("layers.w_up")), NameUp)
		y = p.Leave(graph.Einsum("bsf,fd->bsd", graph.Mul(graph.Silu(gate), up), use("layers.w_down")))
	}
	return graph.Add(x, graph.Name(y, NameMLPOut)), r
}
