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
	{"qwen3_0_6b", "v5e:2x4", kept(2, 19), true},
	{"qwen3_0_6b", "v5e:2x4", kept(2, 22), false},
	{"qwen3_0_6b", "v6e:2x4", kept(4, 21), true},
	{"qwen3_0_6b", "v6e:2x4", kept(4, 22), true},
	{"qwen3_0_6b", "v6e:2x4", kept(4, 24), false},
	{"qwen3_0_6b", "v5p:2x2x1", kept(8, 35), true},
	{"qwen3_0_6b", "v5p:2x2x1", kept(8, 36), true},
	{"qwen3_0_6b", "v5p:2x2x1", kept(8, 38), false},
	{"qwen3_30b_a3b", "tpu7x:2x2x1", kept(3, 44), true},
}

// kept are the settings of so many layers and sequences of a device, all activations
// kept.
func kept(layers, batch int) []string {
	return []string{fmt.Sprintf("model.override.n_layers=%d", layers), fmt.Sprintf("training.local_batch_size=%d", batch), "activation_checkpoint.mode=none"}
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
// compiler's account at the effort with which devices run, or is marked. With
// TITAN_LONG; prints the table of docs/results/memory.md.
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
}
