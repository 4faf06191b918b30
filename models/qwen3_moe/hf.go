package qwen3_moe

import (
	"titan/models/decoder"
	"titan/models/hfconfig"
)

// HF returns the family's layout in Transformers. On disk every expert has
// tensors of its own, although newer versions join them in memory.
func HF() hfconfig.Family {
	return hfconfig.Family{
		ModelType: "qwen3_moe", Architecture: "Qwen3MoeForCausalLM", QKNorm: true, Experts: true,
		HeadDim: func(dim, heads int) int { return dim / heads },
		Read:    read, Write: write, Mapping: HFMapping,
	}
}

// HFMapping returns the table of tensors, in the notation of checkpoint/hf.
func HFMapping(c decoder.Config) string {
	sparse, dense := c.SparseLayers()
	table := hfconfig.Decoder(c) + hfconfig.QKNorm() + hfconfig.DenseMLP(dense)
	if len(sparse) == 0 {
		return table
	}
	at := " | layer=" + hfconfig.Layers(sparse) + "\n"
	return table +
		"layers.router = model.layers.{layer}.mlp.gate.weight : layer d e -> e d" + at +
		"layers.experts.w_gate = model.layers.{layer}.mlp.experts.{e}.gate_proj.weight : layer e d f -> f d" + at +
		"layers.experts.w_up = model.layers.{layer}.mlp.experts.{e}.up_proj.weight : layer e d f -> f d" + at +
		"layers.experts.w_down = model.layers.{layer}.mlp.experts.{e}.down_proj.weight : layer e f d -> d f" + at
}

func read(f *hfconfig.File, c *decoder.Config) {
	m := &decoder.MoE{
		TopK: f.Int("num_experts_per_tok"), HiddenDim: f.Int("moe_intermediate_size"),
		NormTopK: f.Bool("norm_topk_prob", false), SparseStep: f.Int("decoder_sparse_step", 1),
		MLPOnlyLayers: f.Ints("mlp_only_layers", nil), AuxLossCoef: f.Float("router_aux_loss_coef", 0.001),
	}
	if m.SparseStep < 1 {
		f.Fault("decoder_sparse_step", "is %d and must be positive", m.SparseStep)
	}
	// Transformers 5 writes num_local_experts.
	switch old, local := f.Has("num_experts"), f.Has("num_local_experts"); {
	case old && local && f.Int("num_experts") != f.Int("num_local_experts"):
		f.Fault("num_experts", "is %d, but num_local_experts is %d", f.Int("num_experts"), f.Int("num_local_experts"))
	case local:
		m.Experts = f.Int("num_local_experts")
	default:
		m.Experts = f.Int("num_experts")
	}
	f.Ignore("output_router_logits") // the auxiliary loss is a matter of the recipe
	if len(m.MLPOnlyLayers) == 0 {
		m.MLPOnlyLayers = nil
	}
	c.MoE = m
}

func write(c decoder.Config, o hfconfig.Object) error {
	m := c.MoE
	o["decoder_sparse_step"] = max(1, m.SparseStep)
	o["mlp_only_layers"] = append([]int{}, m.MLPOnlyLayers...)
	o["moe_intermediate_size"] = m.HiddenDim
	o["norm_topk_prob"] = m.NormTopK
	o["num_experts"] = m.Experts
	o["num_experts_per_tok"] = m.TopK
	o["output_router_logits"] = false
	o["router_aux_loss_coef"] = hfconfig.Float(m.AuxLossCoef)
	o["max_window_layers"] = c.Layers
	o["sliding_window"] = nil
	o["use_sliding_window"] = false
	if c.HiddenDim == 0 { // no layer is dense; the class wants a number
		o["intermediate_size"] = m.HiddenDim
	}
	return nil
}
