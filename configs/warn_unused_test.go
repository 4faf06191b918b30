package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was set and has no effect is told; with the setting that it is for, it is not.
func TestUnusedWarnings(t *testing.T) {
	for _, c := range []struct{ set, needs, told string }{
		{"activation_checkpoint.memory_budget=4GiB", "activation_checkpoint.mode=memory_budget", `activation_checkpoint.memory_budget has no effect: activation_checkpoint.mode is "none", not "memory_budget"`},
		{"activation_checkpoint.selective_ac_option=\"5\"", "model.override.n_layers=5", "activation_checkpoint.selective_ac_option has no effect: it is 5, and of 4 layers there is no such one to checkpoint"},
		{"moe.capacity_factor=2", "moe.dispatch=capacity", `moe.capacity_factor has no effect: moe.dispatch is "dropless", not "capacity"`},
		{"moe.bias_update_rate=0.01", "moe.load_balance=bias", `moe.bias_update_rate has no effect: moe.load_balance is "aux_loss", not "bias"`},
		{"optimizer.muon_lr=0.02", "optimizer.name=Muon", `optimizer.muon_lr has no effect: no parameter has optimizer "Muon"`},
		{"kernels.expert_tiles.product.m=16", "kernels.experts=auto", `kernels.expert_tiles has no effect: kernels.experts is "plain"`},
		{"kernels.attention_tiles={queries=128}", "kernels.attention=auto", `kernels.attention_tiles has no effect: kernels.attention is "plain"`},
		{"optimizer.muon_nesterov=false", `optimizer.param_groups=[{pattern="wq",optimizer="Muon"}]`, "optimizer.muon_nesterov has no effect"},
	} {
		set := []string{c.set}
		switch {
		case strings.Contains(c.set, "selective"):
			set = append(set, "activation_checkpoint.mode=selective")
		case strings.Contains(c.set, "_tiles"):
			set = append(set, "kernels.attention=plain", "kernels.experts=plain")
		}
		r, _, err := Load("qwen3_moe_debug", set)
		require.NoError(t, err)
		require.Contains(t, strings.Join(r.Warnings(), "\n"), c.told)
		r, _, err = Load("qwen3_moe_debug", append(set, c.needs))
		require.NoError(t, err)
		require.NotContains(t, strings.Join(r.Warnings(), "\n"), "has no effect", c.needs)
	}
	r, _, err := Load("llama3_debug", []string{"kernels.experts=tile"})
	require.NoError(t, err)
	require.Contains(t, strings.Join(r.Warnings(), "\n"), "kernels.experts has no effect: llama3 debugmodel has none")
	r, _, err = Load("qwen3_moe_debug", []string{"activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=\"3\"", "parallelism.pipeline_parallel_degree=2", "training.global_batch_size=16"})
	require.NoError(t, err)
	require.Contains(t, strings.Join(r.Warnings(), "\n"), "it is 3, and of 2 layers of a stage there is no such one to checkpoint")
}

// Settings that leave nothing to trace or to measure are told, once steps are few.
func TestFewSteps(t *testing.T) {
	set := []string{"training.steps=1", "profiling.enable_profiling=true", "metrics.cold_steps=5", "checkpoint.interval=5"}
	r, _, err := Load("llama3_debug", set)
	require.NoError(t, err)
	told := strings.Join(r.Warnings(), "\n")
	require.Contains(t, told, "profiling.profile_freq is 10, but training has 1 step: nothing is traced")
	require.Contains(t, told, "metrics.cold_steps is 5, but training has 1 step: none is left")
	require.Contains(t, told, "checkpoint.interval is 5, but training has 1 step:")
	r, _, err = Load("llama3_debug", append(set, "training.steps=10"))
	require.NoError(t, err)
	require.NotRegexp(t, "traced|is left", strings.Join(r.Warnings(), "\n"))
}
