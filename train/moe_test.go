package train

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/decoder"
	"titan/pjrt"
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

// nans are f32 that are no numbers.
func nans(n int) []byte {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return pjrt.AsBytes(x)
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
	require.ErrorContains(t, err, `its routers choose experts with a bias, moe.load_balance is not "bias": set it to that; another run, with a job.dump_folder of its own, may begin from its parameters: checkpoint.initial_load_path`)
	begun := recipe(t, prefix, experts("training.steps=1", "checkpoint.initial_load_path="+r.Job.DumpFolder+"/checkpoint")...)
	_, log := run(t, begun)
	require.Contains(t, log, "its parameters fit and are used")
}

// On every mesh, stages among them, the bias of every layer goes by the tokens of all
// devices and passes. Where an update is skipped, so is the bias's.
func TestRouterBiasOnMeshes(t *testing.T) {
	quickly(t)
	const rate = 1.0 / 1024
	bias := func(mesh degrees, steps int, broken bool) []float32 {
		c := parityCase{mesh: mesh, moe: true, passes: 2, change: func(o *StepOptions) {
			moe := *o.Model.MoE
			moe.AuxLossCoef, moe.BiasRate = 0, rate
			o.Model.MoE = &moe
		}}
		o := c.options(t)
		step, err := BuildStep(o)
		require.NoError(t, err)
		machine := virtual(t, o.Mesh)
		exe, err := machine.Compile(step.Module)
		require.NoError(t, err)
		defer exe.Close()
		s, err := machine.Init(1, o.Model, step.Vars)
		require.NoError(t, err)
		defer s.Close()
		for k := range steps {
			batch := c.batch(uint64(k))
			var arrays [][]byte
			for _, v := range step.Batch {
				arrays = append(arrays, batch[v.Name])
			}
			rates := o.Optimizer.Rates(k)
			if broken {
				require.NoError(t, s.put(exe.Devices, machine.Client, s.index("norm"), []int{0}, nans(o.Model.Dim)))
			}
			_, err := (&Running{exe: exe, step: step, state: s}).Step(rates, arrays)
			require.NoError(t, err)
		}
		raw, err := s.Whole(s.index(decoder.RouterBias))
		require.NoError(t, err)
		return floats(raw)
	}
	want := bias("dp_shard=1", 3, false)
	require.Len(t, want, 4*8)
	moved := 0
	for _, x := range want {
		if x != 0 {
			moved++
		}
	}
	require.Greater(t, moved, 16)
	require.Equal(t, want, bias("pp=2 dp_shard=2 ep=2", 3, false))
	require.Equal(t, make([]float32, 4*8), bias("dp_shard=1", 1, true))
}
