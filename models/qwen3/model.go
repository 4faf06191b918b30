// Package qwen3 is the dense Qwen3 family: queries and keys are normalised per
// head, and a head's width does not depend on the model's.
package qwen3

import "titan/models/decoder"

// Flavors returns the family's sizes by name, with the published dimensions;
// debugmodel is titan's own.
func Flavors() map[string]decoder.Config {
	published := func(dim, layers, heads, hidden int, tied bool) decoder.Config {
		return decoder.Config{
			VocabSize: 151936, Dim: dim, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128, HiddenDim: hidden,
			MaxSeqLen: 40960, NormEps: 1e-6, RopeTheta: 1e6, QKNorm: true, TieEmbeddings: tied,
		}
	}
	return map[string]decoder.Config{
		"debugmodel": {
			VocabSize: 2048, Dim: 256, Layers: 6, Heads: 8, KVHeads: 4, HeadDim: 32, HiddenDim: 768,
			MaxSeqLen: 2048, NormEps: 1e-6, RopeTheta: 1e6, QKNorm: true, TieEmbeddings: true,
		},
		"0.6B": published(1024, 28, 16, 3072, true),
		"1.7B": published(2048, 28, 16, 6144, true),
		"4B":   published(2560, 36, 32, 9728, true),
		"8B":   published(4096, 36, 32, 12288, false),
		"14B":  published(5120, 40, 40, 17408, false),
		"32B":  published(5120, 64, 64, 25600, false),
	}
}
