package main

import (
	"fmt"

	"titan/configs"
	"titan/models/decoder"
)

// models are the built-in recipes of the models of bench/jax_bench.py.
var models = map[string]string{"llama_debug": "llama3_debug", "qwen3_moe_debug": "qwen3_moe_debug"}

// constants are those of the scripts: AdamW on everything with one learning
// rate, clipping at 1, no auxiliary loss.
var constants = []string{
	"optimizer.lr=3e-4", "optimizer.beta1=0.9", "optimizer.beta2=0.95", "optimizer.eps=1e-8", "optimizer.weight_decay=0.1",
	"lr_scheduler.warmup_steps=0", "lr_scheduler.decay_ratio=0.0", "training.max_norm=1.0",
	"checkpoint.enable=false", "validation.enable=false",
}

// recipe is the built-in recipe of the model with the constants and o's wishes.
func (o *options) recipe() (*configs.Recipe, error) {
	name, ok := models[o.model]
	if !ok {
		return nil, fmt.Errorf("--model is %q; there are llama_debug and qwen3_moe_debug", o.model)
	}
	param, ok := map[string]string{"f32": "float32", "bf16": "bfloat16"}[o.dtype]
	if !ok {
		return nil, fmt.Errorf("--dtype is %q and must be f32 or bf16", o.dtype)
	}
	sets := append([]string(nil), constants...)
	if o.model == "qwen3_moe_debug" {
		sets = append(sets, "model.override.aux_loss_coef=0.0")
	}
	sets = append(sets,
		fmt.Sprintf("mesh.devices=%d", o.devices),
		fmt.Sprintf("training.local_batch_size=%d", o.batch/o.devices),
		fmt.Sprintf("training.seq_len=%d", o.seq),
		fmt.Sprintf("training.steps=%d", o.warmup+o.steps),
		fmt.Sprintf("training.mixed_precision_param=%q", param),
		fmt.Sprintf("activation_checkpoint.mode=%q", o.remat),
	)
	r, _, err := configs.Load("builtin:"+name, append(sets, o.sets...))
	return r, err
}

// flops of a step as the scripts count them: 6 for every weight that a token is
// multiplied with, and attention in full, not its causal half.
func flops(c decoder.Config, batch, seq int) float64 {
	all, embedding, routed := c.Count()
	for _, p := range c.Params() {
		switch p.Name {
		case "norm", "layers.attn_norm", "layers.ffn_norm", "layers.q_norm", "layers.k_norm":
			all -= p.Elements()
		}
	}
	active := float64(all - embedding - routed)
	if c.MoE != nil {
		active += float64(routed) * float64(c.MoE.TopK) / float64(c.MoE.Experts)
	}
	tokens := float64(batch * seq)
	return 6*active*tokens + 12*float64(c.Layers*seq*c.Heads*c.HeadDim)*tokens
}
