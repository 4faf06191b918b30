// Package qwen3_moe is the Qwen3 family with mixtures of experts: softmax over
// all experts, the best few kept, no shared expert, nothing dropped.
package qwen3_moe

import "titan/models/decoder"

// Flavors returns the family's sizes by name, with the published dimensions;
// debugmodel is titan's own.
func Flavors() map[string]decoder.Config {
	published := func(dim, layers, heads, hidden, expertHidden int) decoder.Config {
		return decoder.Config{
			VocabSize: 151936, Dim: dim, Layers: layers, Heads: heads, KVHeads: 4, HeadDim: 128, HiddenDim: hidden,
			MaxSeqLen: 40960, NormEps: 1e-6, RopeTheta: 1e6, QKNorm: true,
			MoE: &decoder.MoE{Experts: 128, TopK: 8, HiddenDim: expertHidden, NormTopK: true, SparseStep: 1, AuxLossCoef: 0.001},
		}
	}
	return map[string]decoder.Config{
		"debugmodel": {
			VocabSize: 2048, Dim: 256, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 32, HiddenDim: 768,
			MaxSeqLen: 2048, NormEps: 1e-6, RopeTheta: 1e6, QKNorm: true,
			MoE: &decoder.MoE{Experts: 8, TopK: 2, HiddenDim: 256, NormTopK: true, SparseStep: 1, AuxLossCoef: 0.001},
		},
		"30B-A3B":   published(2048, 48, 32, 6144, 768),
		"235B-A22B": published(4096, 94, 64, 12288, 1536),
	}
}
