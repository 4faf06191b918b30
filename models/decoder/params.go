package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// Logical axes of parameters and activations, which sharding rules speak of.
const (
	AxisLayer    = "layer" // the stack of layers; never split
	AxisVocab    = "vocab"
	AxisEmbed    = "embed" // the residual stream's width
	AxisHeads    = "heads"
	AxisKVHeads  = "kv_heads"
	AxisHeadDim  = "head_dim"
	AxisMLP      = "mlp"
	AxisExpert   = "expert"
	AxisMoEMLP   = "expert_mlp"
	AxisNorm     = "norm" // a norm's weights
	AxisBatch    = "batch"
	AxisSequence = "seq"
)

// Param describes one parameter: a stack over layers where its name begins with
// "layers.".
type Param struct {
	Name  string
	Shape []int
	Axes  []string // logical axis of each dimension
	Init  Init
}

// Init says how a parameter begins.
type Init struct {
	Std      float64 // of a normal distribution, truncated at three deviations; 0 for a constant
	Constant float64
}

// Elements returns the number of the parameter's elements.
func (p Param) Elements() int64 {
	n := int64(1)
	for _, d := range p.Shape {
		n *= int64(d)
	}
	return n
}

// Type returns the parameter's type with the given elements.
func (p Param) Type(d dtype.DType) graph.Type { return graph.T(d, p.Shape...) }

// Params returns the parameters of the model in a fixed order. Matrices are
// stored [in, out], heads and their width as two dimensions. Layers with and
// without experts are stacked apart, in the order of their numbers; what both
// have is one stack over all layers.
//
// Initial values are those of TorchTitan's Llama 3: deviation 0.02, in output
// projections divided by sqrt(2·layers); embeddings 1 (0.02 if tied); the
// output layer dim^-½.
func (c *Config) Params() []Param {
	const std = 0.02
	residual := std / math.Sqrt(2*float64(c.Layers))
	embed := 1.0
	if c.TieEmbeddings {
		embed = std
	}
	ones := Init{Constant: 1}
	normal := func(s float64) Init { return Init{Std: s} }
	L, D, H, K, h := c.Layers, c.Dim, c.Heads, c.KVHeads, c.HeadDim

	ps := []Param{
		{"embed", []int{c.VocabSize, D}, []string{AxisVocab, AxisEmbed}, normal(embed)},
		{"layers.attn_norm", []int{L, D}, []string{AxisLayer, AxisNorm}, ones},
		{"layers.wq", []int{L, D, H, h}, []string{AxisLayer, AxisEmbed, AxisHeads, AxisHeadDim}, normal(std)},
		{"layers.wk", []int{L, D, K, h}, []string{AxisLayer, AxisEmbed, AxisKVHeads, AxisHeadDim}, normal(std)},
		{"layers.wv", []int{L, D, K, h}, []string{AxisLayer, AxisEmbed, AxisKVHeads, AxisHeadDim}, normal(std)},
		{"layers.wo", []int{L, H, h, D}, []string{AxisLayer, AxisHeads, AxisHeadDim, AxisEmbed}, normal(residual)},
	}
	if c.QKNorm {
		ps = append(ps,
			Param{"layers.q_norm", []int{L, h}, []string{AxisLayer, AxisNorm}, ones},
			Param{"layers.k_norm", []int{L, h}, []string{AxisLayer, AxisNorm}, ones})
	}
	ps = append(ps, Param{"layers.ffn_norm", []int{L, D}, []string{AxisLayer, AxisNorm}, ones})
	sparse, dense := c.SparseLayers()
	if n, F := len(dense), c.HiddenDim; n > 0 {
		ps = append(ps,
			Param{"layers.w_gate", []int{n, D, F}, []string{AxisLayer, AxisEmbed, AxisMLP}, normal(std)},
			Param{"layers.w_up", []int{n, D, F}, []string{AxisLayer, AxisEmbed, AxisMLP}, normal(std)},
			Param{"layers.w_down", []int{n, F, D}, []string{AxisLayer, AxisMLP, AxisEmbed}, normal(residual)})
	}
	if n := len(sparse); n > 0 {
		E, F := c.MoE.Experts, c.MoE.HiddenDim
		ps = append(ps,
			Param{"layers.router", []int{n, D, E}, []string{AxisLayer, AxisEmbed, ""}, normal(std)},
			Param{"layers.experts.w_gate", []int{n, E, D, F}, []string{AxisLayer, AxisExpert, AxisEmbed, AxisMoEMLP}, normal(std)},
			Param{"layers.experts.w_up", []int{n, E, D, F}, []string{AxisLayer, AxisExpert, AxisEmbed, AxisMoEMLP}, normal(std)},
			Param{"layers.experts.w_down", []int{n, E, F, D}, []string{AxisLayer, AxisExpert, AxisMoEMLP, AxisEmbed}, normal(residual)})
	}
	ps = append(ps, Param{"norm", []int{D}, []string{AxisNorm}, ones})
	if !c.TieEmbeddings {
		ps = append(ps, Param{"output", []int{D, c.VocabSize}, []string{AxisEmbed, AxisVocab}, normal(1 / math.Sqrt(float64(D)))})
	}
	return ps
}

// RouterBias is the stack of biases that each expert's score has when tokens choose
// their experts, f32 [sparse layers, E]; see BalanceRouter.
const RouterBias = "layers.router_bias"

// Buffers returns, like Params, the arrays besides parameters that the model reads
// and training changes without a gradient.
func (c *Config) Buffers() []Param {
	sparse, _ := c.SparseLayers()
	if len(sparse) == 0 || c.MoE.BiasRate == 0 {
		return nil
	}
	return []Param{{RouterBias, []int{len(sparse), c.MoE.Experts}, []string{AxisLayer, ""}, Init{}}}
}

// Arrays returns Params, then Buffers: all that the model reads besides the batch.
func (c *Config) Arrays() []Param { return append(c.Params(), c.Buffers()...) }

// Count returns the number of parameters: all, those of the input embedding, and
// those of routed experts.
func (c *Config) Count() (all, embedding, routed int64) {
	for _, p := range c.Params() {
		n := p.Elements()
		all += n
		switch p.Name {
		case "embed":
			embedding = n
		case "layers.experts.w_gate", "layers.experts.w_up", "layers.experts.w_down":
			routed += n
		}
	}
	return all, embedding, routed
}
