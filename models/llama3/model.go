// Package llama3 is the Llama 3 family: dense decoders with grouped-query
// attention and, since 3.1, a stretched rotary embedding.
package llama3

import "titan/models/decoder"

// Flavors returns the family's sizes by name. Dimensions are those of the
// published Llama 3.1 configurations; debugmodel is TorchTitan's.
func Flavors() map[string]decoder.Config {
	published := func(dim, layers, heads, hidden int) decoder.Config {
		return decoder.Config{
			VocabSize: 128256, Dim: dim, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128, HiddenDim: hidden,
			MaxSeqLen: 131072, NormEps: 1e-5, RopeTheta: 500000,
			RopeScaling: &decoder.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxSeqLen: 8192},
		}
	}
	return map[string]decoder.Config{
		"debugmodel": {
			VocabSize: 2048, Dim: 256, Layers: 6, Heads: 16, KVHeads: 16, HeadDim: 16, HiddenDim: 768,
			MaxSeqLen: 2048, NormEps: 1e-5, RopeTheta: 500000,
		},
		"8B":   published(4096, 32, 32, 14336),
		"70B":  published(8192, 80, 64, 28672),
		"405B": published(16384, 126, 128, 53248),
	}
}
