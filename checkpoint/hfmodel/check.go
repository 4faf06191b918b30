package hfmodel

import (
	"fmt"
	"slices"
	"strings"

	"titan/models/decoder"
)

// Check compares the directory's model with another, such as a recipe's. It
// fails with every difference that changes weights or what is computed from
// them. What concerns training alone does not count: the longest sequence,
// weights of auxiliary losses.
func (m *Model) Check(family string, c decoder.Config) error {
	return CheckConfig(m.Path, m.Family, m.Config, family, c)
}

// CheckConfig is Check for the model of a directory that was read by ReadConfig.
func CheckConfig(dir, theirFamily string, theirs decoder.Config, family string, c decoder.Config) error {
	if theirFamily != family {
		return fmt.Errorf("hfmodel: %s has a model of the family %s, the recipe's is %s", dir, theirFamily, family)
	}
	var diff []string
	compare(&diff, "vocab_size", theirs.VocabSize, "vocab_size", c.VocabSize)
	compare(&diff, "hidden_size", theirs.Dim, "dim", c.Dim)
	compare(&diff, "num_hidden_layers", theirs.Layers, "n_layers", c.Layers)
	compare(&diff, "num_attention_heads", theirs.Heads, "n_heads", c.Heads)
	compare(&diff, "num_key_value_heads", theirs.KVHeads, "n_kv_heads", c.KVHeads)
	compare(&diff, "head_dim", theirs.HeadDim, "head_dim", c.HeadDim)
	compare(&diff, "rms_norm_eps", theirs.NormEps, "norm_eps", c.NormEps)
	compare(&diff, "rope_theta", theirs.RopeTheta, "rope_theta", c.RopeTheta)
	compare(&diff, "rope_scaling", scaling(theirs), "rope_scaling", scaling(c))
	compare(&diff, "tie_word_embeddings", theirs.TieEmbeddings, "tie_embeddings", c.TieEmbeddings)
	compare(&diff, "norms on queries and keys", theirs.QKNorm, "qk_norm", c.QKNorm)
	theirSparse, theirDense := theirs.SparseLayers()
	sparse, dense := c.SparseLayers()
	if len(theirDense) > 0 || len(dense) > 0 {
		compare(&diff, "intermediate_size", theirs.HiddenDim, "hidden_dim", c.HiddenDim)
	}
	a, b := theirs.MoE, c.MoE
	compare(&diff, "experts", a != nil, "experts", b != nil)
	if a != nil && b != nil {
		compare(&diff, "num_experts", a.Experts, "n_experts", b.Experts)
		compare(&diff, "num_experts_per_tok", a.TopK, "top_k", b.TopK)
		compare(&diff, "moe_intermediate_size", a.HiddenDim, "moe_hidden_dim", b.HiddenDim)
		compare(&diff, "norm_topk_prob", a.NormTopK, "norm_topk_prob", b.NormTopK)
		if a.BiasRate > 0 && b.BiasRate == 0 { // a new bias begins at 0 and changes nothing
			diff = append(diff, `its routers choose experts with a bias, moe.load_balance is not "bias": set it to that`)
		}
		if theirs.Layers == c.Layers && !slices.Equal(theirSparse, sparse) {
			compare(&diff, "layers without experts", fmt.Sprint(theirDense), "mlp_only_layers and decoder_sparse_step leave", fmt.Sprint(dense))
		}
	}
	if len(diff) == 0 {
		return nil
	}
	return fmt.Errorf("hfmodel: the model in %s is not the recipe's (its own first, [model.override] second): %s", dir, strings.Join(diff, "; "))
}

func compare[T comparable](diff *[]string, theirName string, theirs T, name string, ours T) {
	if theirs != ours {
		*diff = append(*diff, fmt.Sprintf("%s %v, %s %v", theirName, theirs, name, ours))
	}
}

func scaling(c decoder.Config) string {
	if c.RopeScaling == nil {
		return "none"
	}
	s := *c.RopeScaling
	return fmt.Sprintf("llama3 (factor %v, low_freq_factor %v, high_freq_factor %v, original_max_position_embeddings %d)",
		s.Factor, s.LowFreqFactor, s.HighFreqFactor, s.OriginalMaxSeqLen)
}
