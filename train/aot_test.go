package train

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/human"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/models"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
	"titan/pjrt/hlo"
)

// compiledFor compiles the step of a debug model in bf16 for a TPU topology of
// eight devices.
func compiledFor(t *testing.T, topology, family string, replicate, shard int, change func(*StepOptions)) (*Step, pjrt.MemoryStats, *hlo.Module) {
	t.Helper()
	c, err := models.Lookup(family, "debugmodel")
	require.NoError(t, err)
	c.HeadDim, c.Heads, c.KVHeads = 128, 8, 4 // fills the lanes
	m := testMesh(t, replicate, shard)
	o := StepOptions{
		Model: c, Placement: parallel.Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: true}, Mesh: m,
		Options: decoder.Options{Remat: decoder.ActivationCheckpoint{Mode: "full"}},
		Rows:    8, SeqLen: 256, Passes: 1,
	}
	if change != nil {
		change(&o)
	}
	o.Optimizer = goldenOptimizer(t, o.Model)
	s, err := BuildStep(o)
	require.NoError(t, err)
	x := xlatest.CompileTPU(t, topology, s.Module.StableHLO(), pjrt.CompileOptions{Partitions: m.Size(), Shardy: true, OptLevel: pjrt.LevelO0})
	stats, err := x.MemoryStats()
	require.NoError(t, err)
	mod, err := x.OptimizedHLO()
	require.NoError(t, err)
	return s, stats, mod
}

// The very step that runs on virtual devices compiles for TPU slices, with the
// state sharded as the recipe says: FSDP over eight, and HSDP, which holds a
// quarter on each device and is not silently FSDP.
func TestStepCompilesForTPU(t *testing.T) {
	type slice struct {
		topology, family string
		replicate, shard int
	}
	targets := []slice{{"v5e:2x4", "qwen3_moe", 2, 4}}
	if long { // FSDP: see TestCollectivesForTPU; tpu7x: see TestFloat8CompilesForTPU
		targets = append(targets, slice{"v5e:2x4", "llama3", 1, 8}, slice{"tpu7x:2x2x1", "qwen3_moe", 1, 8})
	}
	for _, c := range targets {
		t.Run(c.topology+" "+c.family, func(t *testing.T) {
			s, stats, mod := compiledFor(t, c.topology, c.family, c.replicate, c.shard, func(o *StepOptions) {
				topology, err := mesh.ParseTopology(c.topology)
				require.NoError(t, err)
				chip, err := topology.Chip()
				require.NoError(t, err)
				useKernels(&o.Options, kernels.DefaultConfig(), Platform{Chip: &chip})
			})
			requireState(t, s, stats)
			kinds := map[string]int{}
			for _, c := range mod.Collectives() {
				kinds[c.Kind()]++
			}
			t.Logf("temp %s, collectives %v", human.Memory(stats.Temp), kinds)
			tiled := map[string]bool{}
			for _, c := range mod.Computations {
				for _, i := range c.Instructions {
					if i.CustomCallTarget == hlo.TileKernel {
						tiled[i.KernelName()] = true
					}
				}
			}
			require.Subset(t, slices.Collect(maps.Keys(tiled)), []string{"attention", "attention_gradient"}, "tile kernels")
			require.Positive(t, kinds["all-gather"], "parameters are gathered")
			require.Positive(t, kinds["reduce-scatter"]+kinds["all-reduce"], "gradients are summed")
		})
	}
}

// requireState holds the compiler's account of what a device keeps, and what is
// updated in place, against the plan: parameters and both moments in f32; vectors and
// counters are whole.
func requireState(t *testing.T, s *Step, stats pjrt.MemoryStats) {
	t.Helper()
	require.InEpsilon(t, 3*s.Plan.Bytes(4), stats.Alias, 0.02, "state on a device, updated in place")
}

// Gathered parameters are not kept for the backward pass: temporaries do not
// grow by the size of the model, gathered, without activation checkpointing.
func TestGatheredParametersAreDropped(t *testing.T) {
	none := func(o *StepOptions) {
		o.Options.Remat.Mode = "none"
		o.SeqLen = 128
		o.Model.Layers, o.Model.HiddenDim = 16, 2048
	}
	_, dropped, _ := compiledFor(t, "v5e:2x4", "llama3", 1, 8, none)
	s, kept, _ := compiledFor(t, "v5e:2x4", "llama3", 1, 8, func(o *StepOptions) {
		none(o)
		o.Placement.Reshard = false
	})
	i := slices.IndexFunc(s.Vars, func(v Var) bool { return v.Name == "layers.w_gate" })
	gathered := int64(2 * s.Vars[i].Type.Elements()) // one stack, bf16
	t.Logf("temporaries: dropped %s, kept %s; one stack gathered %s", human.Memory(dropped.Temp), human.Memory(kept.Temp), human.Memory(gathered))
	require.Greater(t, kept.Temp-dropped.Temp, 3*gathered*8/10, "gate, up and down are three stacks")
}

// The setting has an effect whatever is computed again, and where layers are
// written out.
func TestReshardAfterForwardHasAnEffect(t *testing.T) {
	c, err := models.Lookup("qwen3_moe", "debugmodel")
	require.NoError(t, err)
	for _, mode := range []string{"none", "full"} {
		for _, unroll := range []bool{false, true} {
			var texts []string
			for _, reshard := range []bool{false, true} {
				o := StepOptions{
					Model: c, Placement: parallel.Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: reshard}, Mesh: testMesh(t, 1, 8), Optimizer: goldenOptimizer(t, c),
					Options: decoder.Options{Remat: decoder.ActivationCheckpoint{Mode: mode}, Unroll: unroll},
					Rows:    8, SeqLen: 64, Passes: 1,
				}
				s, err := BuildStep(o)
				require.NoError(t, err)
				texts = append(texts, s.Module.StableHLO())
			}
			require.NotEqual(t, texts[0], texts[1], "mode %s, unrolled %v", mode, unroll)
		}
	}
}
