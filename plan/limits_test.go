package plan

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/internal/human"
	"titan/internal/xlatest"
	"titan/models/decoder"
	"titan/pjrt"
	"titan/train"
)

// limitCase is a recipe whose step takes about what a device has.
type limitCase struct {
	recipe, topology string
	set              []string
	fits             bool // at the compiler's default effort
}

// limitCases are on both sides of the limit.
var limitCases = []limitCase{
	{"qwen3_0_6b", "v5e:2x4", kept(2, 17), true},
	{"qwen3_0_6b", "v5e:2x4", kept(2, 18), true},
	{"qwen3_0_6b", "v5e:2x4", kept(2, 19), false},
	{"qwen3_0_6b", "v6e:2x4", kept(4, 21), true},
	{"qwen3_0_6b", "v6e:2x4", kept(4, 22), true},
	{"qwen3_0_6b", "v6e:2x4", kept(4, 24), false},
	{"qwen3_0_6b", "v5p:2x2x1", kept(8, 35), true},
	{"qwen3_0_6b", "v5p:2x2x1", kept(8, 36), true},
	{"qwen3_0_6b", "v5p:2x2x1", kept(8, 38), false},
	{"qwen3_0_6b", "tpu7x:2x2x1", kept(8, 35), true},
	{"qwen3_0_6b", "tpu7x:2x2x1", kept(8, 38), false},
	{"qwen3_30b_a3b", "tpu7x:2x2x1", kept(3, 44), true},
	{"qwen3_30b_a3b", "tpu7x:2x2x1", kept(3, 58), false},
	{"qwen3_30b_a3b", "v6e:2x4", kept(2, 17), true},
	{"qwen3_30b_a3b", "v6e:2x4", kept(2, 18), false},
	{"llama3_8b", "v6e:2x4", long(10), true},
	{"llama3_8b", "v6e:2x4", long(13), false},
	// Recipes as they are, or nearly.
	{"llama3_8b", "v6e:2x4", recomputed(3), true},
	{"llama3_8b", "v6e:2x4", recomputed(5), false},
	{"llama3_8b_v5e_256", "v5e:16x16", []string{"parallelism.data_parallel_replicate_degree=4"}, true},
	{"qwen3_8b", "v6e:4x4", []string{"training.local_batch_size=5"}, true},
	{"qwen3_8b", "v6e:4x4", []string{"training.local_batch_size=6"}, false},
	{"llama3_70b_v5p_128", "v5p:4x4x8", []string{"parallelism.data_parallel_replicate_degree=4", "training.local_batch_size=1", "activation_checkpoint.selective_ac_option=save_dot_with_context_except_mlp", "activation_checkpoint.save=[]"}, true},
	{"llama3_405b", "tpu7x:4x8x8", []string{"training.local_batch_size=1", "activation_checkpoint.mode=selective", "activation_checkpoint.selective_ac_option=op", "activation_checkpoint.save=[\"attn_out\"]", "activation_checkpoint.offload=[]"}, false},
}

// kept are the settings of so many layers and sequences of a device, all activations
// kept.
func kept(layers, batch int) []string {
	return []string{fmt.Sprintf("model.override.n_layers=%d", layers), fmt.Sprintf("training.local_batch_size=%d", batch), "activation_checkpoint.mode=none"}
}

// recomputed are those of so many sequences of a pass, of which only the layers'
// inputs are kept, on the device.
func recomputed(batch int) []string {
	return []string{fmt.Sprintf("training.local_batch_size=%d", batch), "activation_checkpoint.mode=full", "activation_checkpoint.offload=[]"}
}

// long are those of long sequences, of which only the layers' inputs are kept.
func long(batch int) []string {
	return []string{"model.override.n_layers=4", fmt.Sprintf("training.local_batch_size=%d", batch), "training.seq_len=16384", "activation_checkpoint.mode=full"}
}

// traced is the step of a case, not compiled.
func (c limitCase) traced(t *testing.T) *traced {
	t.Helper()
	set := append([]string{"mesh.platform=tpu", "mesh.devices=0", "mesh.topology=" + c.topology, "validation.enable=false"}, c.set...)
	r, _, err := configs.Load("builtin:"+c.recipe, set)
	require.NoError(t, err)
	s, err := build(r)
	require.NoError(t, err)
	return s
}

// memoryOf is what [Make] says of the memory of a step at a level of effort.
func memoryOf(t *testing.T, plugin string, s *traced, step *train.Step, level int) *Memory {
	t.Helper()
	top, err := openTopology(plugin, s.topology)
	require.NoError(t, err)
	defer top.close()
	m := &Memory{Limit: top.memory, Arguments: s.arguments}
	m.Needed, m.Fits = account(t, plugin, s, step, level, top.memory)
	m.Temporaries = m.Needed - m.Arguments
	if level == pjrt.LevelO0 {
		m.mark()
	}
	return m
}

// agrees checks that what is said after little effort holds at the default effort, or
// is marked.
func agrees(t *testing.T, quick, full *Memory) {
	t.Helper()
	require.InEpsilon(t, full.Limit, full.Needed, 0.1, "not around the limit: it shows nothing")
	require.True(t, quick.Fits == full.Fits || quick.Tight, "plainly said with little effort, and wrong: %v", quick)
}

// Around the limit, what a plan with little effort says of memory agrees with the
// compiler's account at the effort with which devices run, or is marked; of a memory
// budget, the policy that is chosen fits, and one that computes less again does not.
// With TITAN_LONG; prints the table of docs/results/memory.md.
func TestLimits(t *testing.T) {
	if os.Getenv("TITAN_LONG") == "" {
		t.Skip("with TITAN_LONG=1: some seconds of the compiler for each of the recipes, twice")
	}
	plugin := xlatest.TPU(t).Path()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| recipe\t| topology\t| set\t| arguments\t| counted\t| quick\t| default\t| of limit\t| quick\t| default\t|")
	row := func(t *testing.T, c limitCase, set string, counted int64, q, f *Memory) {
		line := fmt.Sprintf("| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %.1f%%\t| %s\t| %s\t|", c.recipe, c.topology, set, human.Memory(f.Arguments), human.Memory(counted), human.Memory(q.Temporaries), human.Memory(f.Temporaries),
			100*float64(f.Needed)/float64(f.Limit), verdict(q.Fits, q.Tight), verdict(f.Fits, f.Tight))
		t.Log(line)
		fmt.Fprintln(w, line)
	}
	t.Cleanup(func() {
		_ = w.Flush() // a strings.Builder takes everything
		t.Logf("\n%s", &table)
	})
	for _, c := range limitCases {
		t.Run(strings.Join(append([]string{c.recipe, c.topology}, c.set...), " "), func(t *testing.T) {
			s := c.traced(t)
			full, quick := memoryOf(t, plugin, s, s.step, 0), memoryOf(t, plugin, s, s.step, pjrt.LevelO0)
			row(t, c, strings.Join(c.set, " "), s.counted(), quick, full)
			require.Equal(t, c.fits, full.Fits)
			agrees(t, quick, full)
		})
	}
	t.Run("memory_budget", func(t *testing.T) {
		c := limitCase{"qwen3_0_6b", "v6e:2x4", []string{"model.override.n_layers=8", "training.local_batch_size=16", "activation_checkpoint.mode=memory_budget"}, true}
		s := c.traced(t)
		require.Equal(t, decoder.RematBudget, s.recipe.ActivationCheckpoint.Mode)
		top, err := openTopology(plugin, s.topology)
		require.NoError(t, err)
		defer top.close()
		compiled := map[*train.Step]*Memory{}
		fit, err := train.FitStep(s.options, top.memory, true, func(step *train.Step) (train.Trial[*train.Step], error) {
			m := memoryOf(t, plugin, s, step, 0)
			compiled[step] = m
			if !m.Fits {
				return train.Trial[*train.Step]{}, &pjrt.OutOfMemory{Err: &pjrt.Error{}, Needed: m.Needed, Available: m.Limit, Memory: "hbm"}
			}
			return train.Trial[*train.Step]{Program: step, InUse: m.Needed, Close: func() {}}, nil
		})
		require.NoError(t, err)
		t.Log(strings.Join(fit.Lines(), "\n"))
		count := func(trial train.RematTrial) int64 { return trial.Estimate - trial.State }
		full, quick := compiled[fit.Program], memoryOf(t, plugin, s, fit.Program, pjrt.LevelO0)
		row(t, c, "chosen: "+fit.Chosen.Policy.String(), count(fit.Chosen), quick, full)
		require.True(t, full.Fits)
		require.True(t, quick.Fits || quick.Tight)
		// The next policy that computes less again.
		var next *train.RematTrial
		for k := range fit.Trials {
			if fit.Trials[k].Policy.String() == fit.Chosen.Policy.String() {
				require.Positive(t, k, "all that there is fits: it shows nothing")
				next = &fit.Trials[k-1]
			}
		}
		o := s.options
		o.Options.Remat = next.Policy
		step, err := train.BuildStep(o)
		require.NoError(t, err)
		full, quick = memoryOf(t, plugin, s, step, 0), memoryOf(t, plugin, s, step, pjrt.LevelO0)
		row(t, c, "not chosen: "+next.Policy.String(), count(*next), quick, full)
		require.False(t, full.Fits, "%v computes less again and fits", next.Policy)
		require.True(t, !quick.Fits || quick.Tight)
	})
}
