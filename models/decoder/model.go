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

// Loss holds the parts of a training loss, all f32 scalars over the whole batch.
type Loss struct {
	Sum    *graph.Value // of the cross-entropies of valid tokens
	Rows   *graph.Value // the same for each sequence, f32 [B]
	Tokens *graph.Value // valid tokens
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
	per := m.tokenLoss(b, x, batch.Labels, batch.Valid, output)
	rows := graph.Sum(per, 1)
	l := Loss{Sum: graph.Sum(rows), Rows: rows, Tokens: graph.Sum(batch.Valid)}
	if len(balances) > 0 {
		tokens := b.Scalar(dtype.F32, float64(batch.Tokens.Type().Elements()))
		l.Aux, l.Z, l.ExpertTokens = routerLosses(balances, tokens, m.Config.MoE.Experts)
	}
	return l
}

// Logits traces the model on a batch and returns f32 [B, S, V].
func (m *Model) Logits(b *graph.Builder, params map[string]*graph.Value, batch Batch) *graph.Value {
	x, _ := m.hidden(b, params, batch)
	return m.head(x, params)
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
	turn := m.Config.newRope(b, positions)
	x := m.Placement.Batch(m.embed(b, batch.Tokens, params["embed"]))
	parts := layerParts{
		turn:   turn,
		attend: func(q, k, v *graph.Value) *graph.Value { return m.attend(b, q, k, v, batch.Segments) },
		experts: func(h *graph.Value, w weights) (*graph.Value, balance) {
			return m.experts(b, h, w)
		},
	}
	x, balances := m.layers(b, params, x, func(x *graph.Value, sparse bool, w weights) (*graph.Value, balance) {
		return m.layer(x, sparse, w, parts)
	})
	return m.lastNorm(x, params), balances
}

func (m *Model) lastNorm(x *graph.Value, params map[string]*graph.Value) *graph.Value {
	return rmsNorm(x, m.Placement.Weight(params["norm"], "norm"), m.Config.NormEps)
}

// attend is causal attention where every device has its rows of the batch.
func (m *Model) attend(b *graph.Builder, q, k, v, segments *graph.Value) *graph.Value {
	args := []Arg{{Value: q}, {Value: k}, {Value: v}}
	if segments != nil {
		args = append(args, Arg{Value: segments})
	}
	return m.Placement.Region(b, args, 1, func(_ Region, local []*graph.Value) []*graph.Value {
		var segments *graph.Value
		if len(local) > 3 {
			segments = local[3]
		}
		return []*graph.Value{attention(local[0], local[1], local[2], segments, m.Options.Attention)}
	})[0]
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
	c := &m.Config
	use := func(name string) *graph.Value { return m.Placement.Weight(w[name], name) }
	h := rmsNorm(x, use("layers.attn_norm"), c.NormEps)
	q := graph.Einsum("bsd,dhk->bshk", h, use("layers.wq"))
	k := graph.Einsum("bsd,dhk->bshk", h, use("layers.wk"))
	v := graph.Einsum("bsd,dhk->bshk", h, use("layers.wv"))
	if c.QKNorm {
		q = rmsNorm(q, use("layers.q_norm"), c.NormEps)
		k = rmsNorm(k, use("layers.k_norm"), c.NormEps)
	}
	q, k, v = graph.Name(parts.turn.apply(q), NameQ), graph.Name(parts.turn.apply(k), NameK), graph.Name(v, NameV)
	o := graph.Name(parts.attend(q, k, v), NameAttnOut)
	x = graph.Name(m.Placement.Batch(graph.Add(x, graph.Einsum("bshk,hkd->bsd", o, use("layers.wo")))), NameResid)
	h = rmsNorm(x, use("layers.ffn_norm"), c.NormEps)
	var y *graph.Value
	var r balance
	if sparse {
		y, r = parts.experts(h, w)
	} else {
		gate := graph.Name(graph.Einsum("bsd,df->bsf", h, use("layers.w_gate")), NameGate)
		up := graph.Name(graph.Einsum("bsd,df->bsf", h, use("layers.w_up")), NameUp)
		y = graph.Einsum("bsf,fd->bsd", graph.Mul(graph.Silu(gate), up), use("layers.w_down"))
	}
	return m.Placement.Batch(graph.Add(x, graph.Name(y, NameMLPOut))), r
}
