package train

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is recomputed, gathered again or written out changes memory and time, not
// what is learnt.
func TestVariants(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	plain := recipe(t, data)
	run(t, plain)
	losses, norms := curve(t, plain, loss, 6), curve(t, plain, gradNorm, 6)
	variants := map[string][]string{
		"full, never": {"activation_checkpoint.mode=full", "parallelism.fsdp_reshard_after_forward=never"},
		"selective, unrolled": {"activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=2",
			"training.unroll_layers=true", "training.local_batch_size=1"},
	}
	if long {
		for name, set := range map[string][]string{
			"full":                {"activation_checkpoint.mode=full"},
			"full, unrolled":      {"activation_checkpoint.mode=full", "training.unroll_layers=true"},
			"selective op":        {"activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=op"},
			"selective 2":         {"activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=2"},
			"never":               {"parallelism.fsdp_reshard_after_forward=never"},
			"never, selective op": {"parallelism.fsdp_reshard_after_forward=never", "activation_checkpoint.mode=selective"},
			"unrolled":            {"training.unroll_layers=true"},
			"never, unrolled":     {"training.unroll_layers=true", "parallelism.fsdp_reshard_after_forward=never"},
		} {
			variants[name] = set
		}
	}
	for name, set := range variants {
		t.Run(name, func(t *testing.T) {
			r := recipe(t, data, set...)
			run(t, r)
			got, gotNorms := curve(t, r, loss, 6), curve(t, r, gradNorm, 6)
			for i := range losses {
				require.InEpsilon(t, losses[i], got[i], 2e-6, "loss of step %d", i+1)
				require.InEpsilon(t, norms[i], gotNorms[i], 1e-4, "gradient norm of step %d", i+1)
			}
		})
	}
	if !long {
		return // TestResumeIsExact has one program in bfloat16
	}
	for _, set := range [][]string{nil, {"activation_checkpoint.mode=full"}, {"mesh.devices=1", "training.local_batch_size=4"}} {
		r := recipe(t, data, append(set, "training.mixed_precision_param=bfloat16")...)
		run(t, r)
		for i, x := range curve(t, r, loss, 6) {
			require.InEpsilon(t, losses[i], x, 0.02, "loss of step %d in bfloat16", i+1)
			require.NotEqual(t, losses[i], x)
		}
	}
}

// Learning rates go by the group, also where no parameter is left for the first.
func TestRates(t *testing.T) {
	r := recipe(t, "unused", "lr_scheduler.warmup_steps=0",
		`optimizer.param_groups=[{pattern = "norm", lr = 0.25}, {pattern = "w", lr = 0.5}]`)
	of := func() map[string]float64 {
		o, err := OptionsFor(r, testMesh(t, 1, 4), PlatformOf(r))
		require.NoError(t, err)
		return (&trainer{recipe: r, options: o}).rates(0)
	}
	lr := float64(float32(r.Optimizer.LR))
	require.Equal(t, map[string]float64{"AdamW": lr, "norm": 0.25, "w": 0.5}, of())
	r.Optimizer.ParamGroups[1].Pattern = "."
	require.Equal(t, map[string]float64{"norm": 0.25, ".": 0.5}, of())
}

// Experts whose matrices are split by their own width, as neither the model's
// width nor anything else divides by the devices, learn what they do in one piece.
func TestExpertsSplitByWidth(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	set := []string{"model.name=qwen3_moe", "training.global_batch_size=3", "training.steps=3", "checkpoint.enable=false",
		"model.override={n_layers = 1, n_experts = 5, top_k = 2, moe_hidden_dim = 24}",
		"optimizer.eps=1e-3"} // else what a gradient of nearly zero is rounded to decides a step's direction
	one, three := recipe(t, data, append(set, "mesh.devices=1")...), recipe(t, data, append(set, "mesh.devices=3")...)
	run(t, one)
	_, log := run(t, three)
	require.NotContains(t, log, "w_gate", "nothing of the experts is whole")
	losses, norms := curve(t, one, loss, 3), curve(t, one, gradNorm, 3)
	got, gotNorms := curve(t, three, loss, 3), curve(t, three, gradNorm, 3)
	for i := range losses {
		require.InEpsilon(t, losses[i], got[i], 2e-6, "loss of step %d", i+1)
		require.InEpsilon(t, norms[i], gotNorms[i], 1e-5, "gradient norm of step %d", i+1)
	}
}
