// Package decoder holds the blocks that the decoder-only families share:
// normalisation, rotary embedding, attention, feed-forward and
// mixture-of-experts layers, the loss, and generation with cached keys and
// values. A family chooses among them by its Config and adds its checkpoint
// layout.
package decoder

import (
	"errors"
	"fmt"
	"slices"
)

// Config holds the dimensions of a decoder-only transformer. Names in comments
// are those of Hugging Face's config.json.
type Config struct {
	VocabSize int // vocab_size
	Dim       int // hidden_size
	Layers    int // num_hidden_layers
	Heads     int // num_attention_heads
	KVHeads   int // num_key_value_heads; Heads is a multiple of it
	HeadDim   int // head_dim, independent of Dim/Heads
	HiddenDim int // intermediate_size of dense feed-forward layers
	MaxSeqLen int // max_position_embeddings

	NormEps       float64 // rms_norm_eps
	RopeTheta     float64 // rope_theta
	RopeScaling   *RopeScaling
	QKNorm        bool // RMSNorm over the head dimension of queries and keys
	TieEmbeddings bool // tie_word_embeddings

	MoE *MoE // nil for a dense model
}

// RopeScaling stretches the low frequencies of the rotary embedding as Llama 3.1
// does (rope_type "llama3").
type RopeScaling struct {
	Factor, LowFreqFactor, HighFreqFactor float64
	OriginalMaxSeqLen                     int // original_max_position_embeddings
}

// MoE says which layers have experts and how tokens choose them.
type MoE struct {
	Experts   int  // num_experts
	TopK      int  // num_experts_per_tok
	HiddenDim int  // moe_intermediate_size
	NormTopK  bool // norm_topk_prob: the kept probabilities are divided by their sum

	MLPOnlyLayers []int // mlp_only_layers: these are dense
	SparseStep    int   // decoder_sparse_step: layer i is sparse if (i+1) is a multiple of it; 0 means 1

	AuxLossCoef float64 // router_aux_loss_coef: weight of the load-balancing loss
	ZLossCoef   float64 // weight of the mean squared logsumexp of the router's logits

	// CapacityFactor bounds the tokens that an expert takes from one device to this
	// many times its share of them; what comes later is dropped. 0: nothing is.
	CapacityFactor float64
	// BiasRate is by how much the bias on an expert's scores changes after a step;
	// 0: there is no bias. See RouterBias.
	BiasRate float64
}

// Sparse reports whether layer i has experts.
func (c *Config) Sparse(i int) bool {
	m := c.MoE
	return m != nil && m.Experts > 0 && !slices.Contains(m.MLPOnlyLayers, i) && (i+1)%max(1, m.SparseStep) == 0
}

// SparseLayers returns the numbers of the layers with experts and of those
// without, each ascending.
func (c *Config) SparseLayers() (sparse, dense []int) {
	for i := range c.Layers {
		if c.Sparse(i) {
			sparse = append(sparse, i)
		} else {
			dense = append(dense, i)
		}
	}
	return sparse, dense
}

// Validate reports every dimension that is missing or contradicts another.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, d := range []struct {
		name string
		size int
	}{
		{"vocab_size", c.VocabSize}, {"dim", c.Dim}, {"n_layers", c.Layers}, {"n_heads", c.Heads},
		{"n_kv_heads", c.KVHeads}, {"head_dim", c.HeadDim}, {"max_seq_len", c.MaxSeqLen},
	} {
		if d.size < 1 {
			bad("%s is %d and must be positive", d.name, d.size)
		}
	}
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		bad("n_heads %d is no multiple of n_kv_heads %d: every key/value head serves the same number of query heads", c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		bad("head_dim %d is odd: the rotary embedding turns pairs", c.HeadDim)
	}
	if !(c.NormEps > 0) {
		bad("norm_eps is %v and must be positive", c.NormEps)
	}
	if !(c.RopeTheta > 0) {
		bad("rope_theta is %v and must be positive", c.RopeTheta)
	}
	if s := c.RopeScaling; s != nil && !(s.Factor >= 1 && s.LowFreqFactor > 0 && s.HighFreqFactor > s.LowFreqFactor && s.OriginalMaxSeqLen > 0) {
		bad("rope scaling %+v: factor must be at least 1, 0 < low_freq_factor < high_freq_factor, original_max_position_embeddings positive", *s)
	}
	sparse, dense := c.SparseLayers()
	if len(dense) > 0 && c.HiddenDim < 1 {
		bad("hidden_dim is %d and must be positive: %d layers are dense", c.HiddenDim, len(dense))
	}
	if m := c.MoE; m != nil {
		switch {
		case m.Experts < 1:
			bad("n_experts is %d and must be positive", m.Experts)
		case m.TopK < 1 || m.TopK > m.Experts:
			bad("top_k is %d and must be in 1..n_experts (%d)", m.TopK, m.Experts)
		}
		if m.HiddenDim < 1 {
			bad("moe_hidden_dim is %d and must be positive", m.HiddenDim)
		}
		if len(sparse) == 0 && m.Experts > 0 {
			bad("mlp_only_layers and decoder_sparse_step leave no layer with experts: use a dense model")
		}
		for _, l := range m.MLPOnlyLayers {
			if l < 0 || l >= c.Layers {
				bad("mlp_only_layers names layer %d of %d", l, c.Layers)
			}
		}
		if m.SparseStep < 0 {
			bad("decoder_sparse_step is %d and must not be negative", m.SparseStep)
		}
		if m.AuxLossCoef < 0 || m.ZLossCoef < 0 {
			bad("aux_loss_coef %v and z_loss_coef %v must not be negative", m.AuxLossCoef, m.ZLossCoef)
		}
		if !(m.CapacityFactor >= 0) || !(m.BiasRate >= 0) {
			bad("the capacity factor %v and the rate of the router's bias %v must not be negative", m.CapacityFactor, m.BiasRate)
		}
	}
	return errors.Join(errs...)
}
