package llama3

import (
	"fmt"

	"titan/models/decoder"
	"titan/models/hfconfig"
)

// HF returns the family's layout in Transformers, which all Llama models without
// biases share.
func HF() hfconfig.Family {
	return hfconfig.Family{
		ModelType: "llama", Architecture: "LlamaForCausalLM",
		HeadDim: func(dim, heads int) int { return dim / heads },
		KVHeads: func(heads int) int { return heads },
		Write:   write, Mapping: HFMapping,
	}
}

// HFMapping returns the table of tensors, in the notation of checkpoint/hf.
func HFMapping(c decoder.Config) string {
	_, dense := c.SparseLayers()
	return hfconfig.Decoder(c) + hfconfig.DenseMLP(dense)
}

func write(c decoder.Config, o hfconfig.Object) error {
	if c.Dim%c.Heads != 0 {
		return fmt.Errorf("LlamaForCausalLM in Transformers needs a hidden_size (dim %d) that is a multiple of the heads (%d), whatever head_dim is", c.Dim, c.Heads)
	}
	o["mlp_bias"] = false
	o["pretraining_tp"] = 1
	return nil
}
