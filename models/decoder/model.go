package decoder

import (
	"titan/dtype"
	"titan/graph"
	"titan/kernels"
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
	// Float8 says which products are in 8-bit floats. With Float8InBF16 they are
	// computed in bf16, with equal results: bf16 holds what 8-bit floats do.
	Float8       Float8
	Float8InBF16 bool
	// ExpertBlock is the number of rows multiplied by an expert's weights at a
	// time; 0 chooses.
	ExpertBlock int
	// ExpertBuffer is the room for rows from devices that share out the experts, over
	// the mean that arrive; 0 is DefaultExpertBuffer.
	ExpertBuffer float64
	// ForceLoadBalance sends tokens round the experts regardless of the router,
	// for benchmarks.
	ForceLoadBalance bool
	// RopeProduct turns queries and keys by products, which suits TPUs.
	RopeProduct bool
	// Kernels is what tile kernels run on; nil: plain operations. Attention.Plain
	// and PlainExperts keep it from one of them.
	Kernels      *kernels.Target
	PlainExperts bool
	ExpertTiles  kernels.GroupedTiles
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
	// ExpertTokens is how many tokens chose each expert, f32 [layers with experts,
	// E]; Dropped how many of these choices were dropped.
	ExpertTokens, Dropped *graph.Value
}

// Flow is what goes from layer to layer: x [B, S, D], and what the routers did with
// this device's tokens so far (nothing in dense models).
type Flow struct {
	X       *graph.Value
	routers balance // summed over layers
}

// Values lists the values of a flow; FlowOf makes them one again.
func (f Flow) Values() []*graph.Value { return append([]*graph.Value{f.X}, f.routers.list()...) }

// FlowOf makes a flow of its values.
func FlowOf(values []*graph.Value) Flow { return Flow{values[0], balanceOf(values[1:])} }

// Chosen is, over all devices, how many tokens chose each expert in the layers of a
// stage, f32 [layers with experts, E], and how many of these choices were dropped.
type Chosen struct{ Tokens, Dropped *graph.Value }

// Loss traces the model on a batch. There must be one stage.
func (m *Model) Loss(b *graph.Builder, params map[string]*graph.Value, batch Batch) Loss {
	f, chosen := m.Stage(b, params, m.Embed(b, params, batch), batch)
	l := m.Head(b, params, f, batch)
	l.ExpertTokens, l.Dropped = chosen.Tokens, chosen.Dropped
	return l
}

// Embed traces what comes before the first layer.
func (m *Model) Embed(b *graph.Builder, params map[string]*graph.Value, batch Batch) Flow {
	f := Flow{X: m.embed(m.part(batch.Tokens), params["embed"])}
	if moe := m.Config.MoE; moe != nil {
		none := b.Zeros(graph.T(dtype.F32, moe.Experts))
		zero := b.Scalar(dtype.F32, 0)
		f.routers = balance{none, none, zero, zero}
	}
	return f
}

// Stage traces the layers that this device has: all, or those of one stage of a
// pipeline. params has its part of the layers' stacks.
func (m *Model) Stage(b *graph.Builder, params map[string]*graph.Value, f Flow, batch Batch) (Flow, Chosen) {
	positions := batch.Positions
	if positions == nil {
		positions = b.Iota(graph.T(dtype.S32, batch.Tokens.Dim(1)), 0)
	}
	segments := batch.Segments
	tiled := m.tiled(batch.Tokens.Dim(1))
	if segments != nil {
		if tiled != nil {
			segments = kernels.Starts(segments)
		}
		segments = m.part(segments)
	}
	turn := m.Config.newRope(b, m.part(positions), m.Options.RopeProduct)
	parts := layerParts{
		turn:    turn,
		attend:  func(q, k, v *graph.Value) *graph.Value { return m.attend(q, k, v, segments, tiled) },
		experts: m.experts,
	}
	x, balances := m.layers(b, params, f.X, func(x *graph.Value, sparse bool, w weights) (*graph.Value, balance) {
		return m.layer(x, sparse, w, parts)
	})
	if len(balances) == 0 {
		return Flow{x, f.routers}, Chosen{}
	}
	r, group := stacked(balances), m.Placement.Tokens()
	return Flow{x, f.routers.plus(r)}, Chosen{group.Sum(r.chosen), group.Sum(graph.Sum(r.dropped))}
}

// Head traces what comes after the last layer. In a pipeline, whose last stage
// alone has the right flow, all stages take a share of the tokens.
func (m *Model) Head(b *graph.Builder, params map[string]*graph.Value, f Flow, batch Batch) Loss {
	p := m.Placement
	stages := p.Stages()
	labels, valid := m.shareOf(m.part(batch.Labels)), m.shareOf(m.part(batch.Valid))
	x := f.X
	if !stages.Alone() {
		x = stages.Scatter(stages.FromLast(x), 1)
	}
	output := params["output"]
	if m.Config.TieEmbeddings {
		output = params["embed"]
	}
	sum := graph.Sum(m.tokenLoss(p.Enter(m.lastNorm(x, params)), labels, valid, output))
	tokens := graph.Sum(valid)
	over := func(v *graph.Value, groups ...Group) *graph.Value {
		for _, g := range groups {
			v = g.Sum(v)
		}
		return v
	}
	l := Loss{
		Sum: over(sum, stages, p.Sequences()), Tokens: over(tokens, stages, p.Sequences()),
		Own: over(sum, stages, p.Context()), OwnTokens: over(tokens, stages, p.Context()),
	}
	if f.routers.chosen != nil {
		l.Aux, l.Z = m.routerLosses(f.routers, f.X.Dim(0)*f.X.Dim(1))
	}
	return l
}

// shareOf takes, of what [B, S] all devices of Tensor have of a sequence, that of
// the tokens of which this device's stage computes the loss.
func (m *Model) shareOf(x *graph.Value) *graph.Value {
	stages, tensor := m.Placement.Stages(), m.Placement.Tensor().Devices()
	if stages.Alone() {
		return x
	}
	B, each := x.Dim(0), x.Dim(1)/(tensor*stages.Size)
	x = graph.Reshape(x, B, tensor, stages.Size, each)
	x = graph.DynamicSliceDim(x, 2, stages.Index(x.Builder()), 1)
	return graph.Reshape(x, B, tensor*each)
}

// Logits traces the model on a batch and returns f32 [B, S, V], where V is what
// this device has of the vocabulary. There must be one stage.
func (m *Model) Logits(b *graph.Builder, params map[string]*graph.Value, batch Batch) *graph.Value {
	f, _ := m.Stage(b, params, m.Embed(b, params, batch), batch)
	return m.head(m.Placement.Enter(m.lastNorm(f.X, params)), params)
}

func (m *Model) head(x *graph.Value, params map[string]*graph.Value) *graph.Value {
	if m.Config.TieEmbeddings {
		return graph.Einsum("bsd,vd->bsv", x, m.Placement.Weight(params["embed"], "embed"), graph.As(dtype.F32))
	}
	return graph.Einsum("bsd,dv->bsv", x, m.Placement.Weight(params["output"], "output"), graph.As(dtype.F32))
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
func (m *Model) attend(q, k, v, segments *graph.Value, tiled *tiledBlocks) *graph.Value {
	return contextAttention(q, k, v, segments, m.Placement.Context(), m.Options.Attention, tiled)
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
	x = graph.Name(x, NameLayerIn)
	h := p.Enter(rmsNorm(x, use("layers.attn_norm"), c.NormEps))
	qkv := m.project("bsd,dhk->bshk", h, w, "layers.wq", "layers.wk", "layers.wv")
	q, k, v := graph.Name(qkv[0], NameQ), graph.Name(qkv[1], NameK), graph.Name(qkv[2], NameV)
	if c.QKNorm {
		q = rmsNorm(q, use("layers.q_norm"), c.NormEps)
		k = rmsNorm(k, use("layers.k_norm"), c.NormEps)
	}
	o := parts.attend(parts.turn.apply(q), parts.turn.apply(k), v)
	x = graph.Name(graph.Add(x, p.Leave(m.project("bshk,hkd->bsd", o, w, "layers.wo")[0])), NameResid)
	h = rmsNorm(x, use("layers.ffn_norm"), c.NormEps)
	var y *graph.Value
	var r balance
	if sparse {
		y, r = parts.experts(h, w)
	} else {
		h = p.Enter(h)
		wide := m.project("bsd,df->bsf", h, w, "layers.w_gate", "layers.w_up")
		gate, up := graph.Name(wide[0], NameGate), graph.Name(wide[1], NameUp)
		y = p.Leave(m.project("bsf,fd->bsd", graph.Mul(graph.Silu(gate), up), w, "layers.w_down")[0])
	}
	return graph.Add(x, graph.Name(y, NameMLPOut)), r
}
