package train

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// experts are overrides of the tiny recipe: 4 experts, which 2 of 4 devices share
// out.
func experts(more ...string) []string {
	return append([]string{
		"model.name=qwen3_moe", "model.override.n_experts=4", "model.override.top_k=2", "model.override.moe_hidden_dim=16",
		"parallelism.expert_parallel_degree=2",
	}, more...)
}

// The router's bias moves by its rate for every step, against what the tokens chose;
// it is saved, and a run that resumes goes on with it.
func TestRouterBiasIsState(t *testing.T) {
	quickly(t)
	prefix := dataset(t, documents(1, 60, 8, 40)...)
	const rate, name = 0.0625, "layers.router_bias" // exact in binary
	set := experts("model.override.n_layers=1", "moe.load_balance=bias", "moe.bias_update_rate=0.0625")
	r := recipe(t, prefix, set...)
	run(t, r)
	bias := make([]float64, 4)
	for step := 1; step <= r.Training.Steps; step++ {
		rec := records(t, r, "train")[step]
		list, ok := rec["moe/expert_tokens"].([]any)
		require.True(t, ok, "%v", rec)
		require.Len(t, list, len(bias))
		var counts []float64
		sum := 0.0
		for _, x := range list {
			counts = append(counts, x.(float64))
			sum += x.(float64)
		}
		require.EqualValues(t, 4*16*2, sum) // every token of 4 sequences chooses 2
		for e, n := range counts {
			if mean := sum / 4; n != mean {
				bias[e] += math.Copysign(rate, mean-n)
			}
		}
		require.NotContains(t, rec, "loss_metrics/aux_loss")
		require.Zero(t, rec.number(t, "moe/dropped_tokens"))
		if step%2 == 0 {
			for e, x := range floats(saved(t, r, step)[name]) {
				require.EqualValues(t, bias[e], x, "step %d, expert %d", step, e)
			}
		}
	}
	require.NotEqual(t, make([]float64, 4), bias)

	half := recipe(t, prefix, set...)
	runUntil(t, half, "step:  3")
	require.Less(t, len(steps(t, half)), 4)
	run(t, half)
	sameState(t, saved(t, r, 6), saved(t, half, 6), "after resuming")
}

// With a capacity, what does not fit is dropped and counted.
func TestDroppedTokens(t *testing.T) {
	quickly(t)
	r := recipe(t, dataset(t, documents(1, 60, 8, 40)...), experts("moe.dispatch=capacity", "moe.capacity_factor=0.5", "training.steps=2", "checkpoint.enable=false")...)
	run(t, r)
	for _, rec := range records(t, r, "train") {
		dropped := rec.number(t, "moe/dropped_tokens")
		require.GreaterOrEqual(t, dropped, 0.5) // there is room for half
		require.Less(t, dropped, 1.0)
		require.GreaterOrEqual(t, rec.number(t, "moe/imbalance"), 1.0)
	}
}

// A model that begins with the parameters of one without a bias begins with none.
func TestNewRouterBias(t *testing.T) {
	quickly(t)
	prefix := dataset(t, documents(1, 60, 8, 40)...)
	old := recipe(t, prefix, experts("training.steps=2")...)
	run(t, old)
	set := experts("moe.load_balance=bias", "training.steps=2")
	r := recipe(t, prefix, append(set, "checkpoint.initial_load_path="+old.Job.DumpFolder+"/checkpoint", "checkpoint.initial_load_model_only=true")...)
	run(t, r)
	require.Contains(t, saved(t, r, 2), "layers.router_bias")

	// What chose experts with a bias must not go on without.
	lost := recipe(t, prefix, experts("training.steps=4")...)
	require.NoError(t, os.RemoveAll(lost.Job.DumpFolder))
	copyDir(t, r.Job.DumpFolder+"/checkpoint/step-00000002", lost.Job.DumpFolder+"/checkpoint/step-00000002")
	err, _ := fails(t, lost)
	require.ErrorContains(t, err, "moe.load_balance")
}
