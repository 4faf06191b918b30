package train

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/train/traffic"
)

// tableCase is a combination whose collectives are listed.
type tableCase struct {
	parityCase
	remat string // "": full
	never bool   // fsdp_reshard_after_forward
	tied  bool
	long  bool // not in a quick run
}

func (c tableCase) String() string {
	s := strings.ReplaceAll(c.parityCase.String(), " ", "_")
	if c.remat != "" {
		s += "_" + c.remat
	}
	if c.never {
		s += "_never"
	}
	if c.tied {
		s += "_tied"
	}
	return s
}

func (c tableCase) options(t testing.TB) StepOptions {
	t.Helper()
	o := c.parityCase.options(t)
	o.Placement.Reshard = !c.never
	o.Model.TieEmbeddings = c.tied
	switch c.remat {
	case "none":
		o.Options.Remat.Mode = "none"
	case "op":
		o.Options.Remat = decoder.ActivationCheckpoint{Mode: "selective", SelectiveOption: "op", Save: []string{decoder.NameAttnOut, decoder.NameResid}}
	case "second":
		o.Options.Remat = decoder.ActivationCheckpoint{Mode: "selective", SelectiveOption: "2"}
	}
	o.Optimizer = goldenOptimizer(t, o.Model)
	return o
}

// onPaper is what the step exchanges by the formulas.
func onPaper(s *Step, o StepOptions) traffic.Step {
	return traffic.Step{Model: o.Model, Options: o.Options, Plan: s.Plan, Rows: o.Rows, Passes: o.Passes, SeqLen: o.SeqLen}
}

// stepProgram compiles the step for virtual devices and returns the compiled program.
func stepProgram(t testing.TB, o StepOptions) (*Step, *hlo.Module) {
	t.Helper()
	s, err := BuildStep(o)
	require.NoError(t, err)
	client := xlatest.CPU(t)
	if o.Mesh.Size() > xlatest.Devices {
		client = xlatest.CPUMany(t)
	}
	x, err := client.Compile([]byte(s.Module.StableHLO()), pjrt.CompileOptions{Partitions: o.Mesh.Size(), Shardy: true, Flags: xlatest.LittleEffort()})
	require.NoError(t, err)
	defer x.Close()
	return s, optimized(t, x.Executable)
}

func optimized(t testing.TB, x *pjrt.Executable) *hlo.Module {
	t.Helper()
	mod, err := x.OptimizedHLO()
	require.NoError(t, err)
	return mod
}

// table is a line of text for every kind and axes, with what it is for.
func table(ts []traffic.Transfer) string {
	var sb strings.Builder
	for _, t := range ts {
		fmt.Fprintf(&sb, "%-18s %-24s %5d × = %9d B  %s\n", t.Kind, strings.Join(t.Axes, "×"), t.Count, t.Bytes, t.What)
	}
	return sb.String()
}

var tableCases = []tableCase{
	// FSDP
	{parityCase: parityCase{mesh: "dp_shard=8"}},
	{parityCase: parityCase{mesh: "dp_shard=8"}, remat: "none", long: true},
	{parityCase: parityCase{mesh: "dp_shard=8"}, never: true, tied: true, long: true},
	{parityCase: parityCase{mesh: "dp_shard=4", passes: 4}, tied: true, long: true},
	// an embedding of which each device looks up its columns
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=2 tp=2", passes: 4, change: wide}},
	{parityCase: parityCase{mesh: "dp_shard=2 cp=2", change: wide}, tied: true, long: true},
	// HSDP
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=4"}, long: true},
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=4"}, tied: true},
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=2", passes: 4}, long: true},
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=2", passes: 4}, never: true},
	// tensor parallel
	{parityCase: parityCase{mesh: "tp=4"}, long: true},
	{parityCase: parityCase{mesh: "tp=8"}, remat: "none", long: true},
	{parityCase: parityCase{mesh: "dp_shard=2 tp=4"}, remat: "op", tied: true},
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=2 tp=2", passes: 4}, remat: "second", long: true},
	// context parallel
	{parityCase: parityCase{mesh: "cp=8"}, remat: "op", long: true},
	{parityCase: parityCase{mesh: "dp_shard=2 cp=4"}},
	{parityCase: parityCase{mesh: "dp_shard=2 cp=4", change: gatherKeys}, long: true},
	{parityCase: parityCase{mesh: "dp_replicate=2 cp=2 tp=2"}, remat: "none", long: true},
	// expert parallel
	{parityCase: parityCase{mesh: "dp_shard=4", moe: true}},
	{parityCase: parityCase{mesh: "ep=4", moe: true}, long: true},
	{parityCase: parityCase{mesh: "dp_replicate=2 dp_shard=2 ep=2", moe: true}, remat: "none", long: true},
	{parityCase: parityCase{mesh: "dp_shard=2 ep=2 tp=2", moe: true, passes: 4}},
	{parityCase: parityCase{mesh: "dp_shard=2 ep=4", moe: true, change: withCapacity}, long: true},
	// pipelines
	{parityCase: parityCase{mesh: "pp=2", passes: 4}, never: true, long: true},
	{parityCase: parityCase{mesh: "pp=4 dp_shard=2", passes: 4}, never: true, remat: "none", long: true},
	{parityCase: parityCase{mesh: "pp=2 dp_replicate=2 dp_shard=2", passes: 4}, never: true, remat: "op"},
	{parityCase: parityCase{mesh: "pp=2 cp=2 tp=2", passes: 4}, never: true, long: true},
	{parityCase: parityCase{mesh: "pp=2 ep=2 tp=2", passes: 4, moe: true}, never: true, long: true},
}

func withCapacity(o *StepOptions) { o.Model.MoE.CapacityFactor = 1.25 }

// What devices exchange in a step is, by kind and axes and to the byte, what the
// formulas of docs/parallelism.md say; and every array lies where the plan puts it.
func TestCollectives(t *testing.T) {
	for _, c := range tableCases {
		t.Run(c.String(), func(t *testing.T) {
			if c.long && !long {
				t.Skip("set TITAN_LONG=1")
			}
			o := c.options(t)
			s, mod := stepProgram(t, o)
			got, err := traffic.Compiled(mod, o.Mesh)
			require.NoError(t, err)
			paper := onPaper(s, o)
			paper.Hoisted = true
			if c.moe && o.Model.MoE.CapacityFactor == 0 && o.Mesh.AxisSize(parallel.AxisExpert) > 1 {
				// The loop over further rounds, of which there are none as a rule, is
				// counted once.
				paper.Rounds = 2
			}
			want := paper.Transfers()
			t.Logf("compiled:\n%son paper:\n%s", table(got), table(want))
			require.Equal(t, traffic.Sums(want), traffic.Sums(got))
			checkPlacements(t, o, s, mod, got)
		})
	}
}

// So it is for TPU slices, in bf16: gradients are scattered, and not summed whole.
func TestCollectivesForTPU(t *testing.T) {
	for _, mesh := range []degrees{"dp_shard=8", "dp_replicate=2 dp_shard=2 tp=2", "pp=2 dp_shard=4"} {
		t.Run(string(mesh), func(t *testing.T) {
			var o StepOptions
			s, stats, mod := compiledFor(t, "v5e:2x4", "llama3", 1, 8, func(x *StepOptions) {
				x.Mesh = mesh.mesh(t)
				x.Model.VocabSize, x.Options.LossChunks = 4096, 2
				if x.Mesh.AxisSize(parallel.AxisPipeline) > 1 {
					x.Passes, x.Rows, x.Placement.Reshard = 4, 4, false
				}
				o = *x
			})
			got, err := traffic.Compiled(mod, o.Mesh)
			require.NoError(t, err)
			want := onPaper(s, o).Transfers()
			t.Logf("compiled:\n%son paper:\n%s", table(got), table(want))
			require.Equal(t, traffic.Sums(want), traffic.Sums(got))
			requireState(t, s, stats)
		})
	}
}
