package qwen3

import (
	"titan/models/decoder"
	"titan/models/hfconfig"
)

// HF returns the family's layout in Transformers.
func HF() hfconfig.Family {
	return hfconfig.Family{
		ModelType: "qwen3", Architecture: "Qwen3ForCausalLM", QKNorm: true,
		HeadDim: func(int, int) int { return 128 },
		Write: func(c decoder.Config, o hfconfig.Object) error {
			o["max_window_layers"] = c.Layers
			o["sliding_window"] = nil
			o["use_sliding_window"] = false
			return nil
		},
		Mapping: HFMapping,
	}
}

// HFMapping returns the table of tensors, in the notation of checkpoint/hf.
func HFMapping(c decoder.Config) string {
	_, dense := c.SparseLayers()
	return hfconfig.Decoder(c) + hfconfig.QKNorm() + hfconfig.DenseMLP(dense)
}
