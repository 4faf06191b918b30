package train

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/mesh"
	"titan/metrics"
	"titan/models"
	"titan/models/decoder"
	"titan/parallel"
	"titan/train/traffic"
)

// plannedRun is a row of the table of docs/parallelism.md.
type plannedRun struct {
	family, flavor, topology string
	mesh                     degrees
	seq, rows                int // tokens of a sequence; sequences of each device that has its own
	passes                   int
}

var plannedRuns = []plannedRun{
	{"llama3", "8B", "v6e:2x4", "dp_shard=8", 8192, 1, 1},
	{"qwen3", "8B", "v6e:2x4", "dp_shard=8", 4096, 2, 1},
	{"qwen3_moe", "30B-A3B", "v5p:2x2x2", "ep=8", 4096, 4, 1},
	{"llama3", "8B", "v6e:16x16", "dp_shard=256", 8192, 2, 1},
	{"llama3", "70B", "v5p:4x8x8", "dp_shard=256", 8192, 1, 1},
	{"qwen3_moe", "30B-A3B", "v5p:4x8x8", "dp_shard=32 ep=8", 4096, 8, 1},
	{"qwen3_moe", "30B-A3B", "v5p:4x8x8", "dp_shard=256", 4096, 8, 1},
	{"llama3", "70B", "v5p:8x8x16", "dp_shard=256 tp=4", 8192, 2, 1},
	{"qwen3_moe", "235B-A22B", "v5p:8x8x16", "dp_shard=64 ep=16", 4096, 4, 1},
	{"llama3", "405B", "v5p:8x8x16", "dp_shard=128 tp=8", 8192, 2, 1},
	{"llama3", "70B", "v5p:8x8x16", "dp_shard=64 cp=16", 131072, 1, 1},
	{"llama3", "405B", "v5p:16x16x16*2", "dp_replicate=2 dp_shard=512 tp=8", 8192, 2, 1},
	{"qwen3_moe", "235B-A22B", "v5p:16x16x16*2", "dp_replicate=2 dp_shard=256 ep=16", 4096, 4, 1},
	{"llama3", "70B", "v6e:16x16*32", "pp=8 dp_replicate=4 dp_shard=64 tp=4", 8192, 1, 32},
}

// row computes a row: memory, traffic and times of one device.
func (r plannedRun) row(t *testing.T) string {
	t.Helper()
	model, err := models.Lookup(r.family, r.flavor)
	require.NoError(t, err)
	topo, err := mesh.ParseTopology(r.topology)
	require.NoError(t, err)
	chip, err := topo.Chip()
	require.NoError(t, err)
	m, err := mesh.ForTopology(r.mesh.mesh(t).Axes(), topo.DeviceInfos(), parallel.AcrossSlices()...)
	require.NoError(t, err)
	require.Equal(t, topo.Devices(), m.Size())
	pipelined := m.AxisSize(parallel.AxisPipeline) > 1
	plan, err := NewPlan(m, model, parallel.Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: !pipelined})
	require.NoError(t, err)
	model.MaxSeqLen = max(model.MaxSeqLen, r.seq)
	s := traffic.Step{
		Model: model, Plan: plan, Rows: r.rows * plan.BatchDevices(), Passes: r.passes, SeqLen: r.seq,
		Options: decoder.Options{Remat: decoder.ActivationCheckpoint{Mode: "full"}, LossChunks: 8},
	}

	all, embedding, routed := model.Count()
	shape := metrics.ModelShape{
		Params: all, Embedding: embedding, Tied: model.TieEmbeddings, Layers: model.Layers, Heads: model.Heads,
		HeadDimQK: model.HeadDim, HeadDimV: model.HeadDim, Routed: routed,
	}
	if model.MoE != nil {
		shape.TopK, shape.Experts = model.MoE.TopK, model.MoE.Experts
	}
	tokens := float64(s.Rows*s.Passes*s.SeqLen) / float64(m.Size())
	// Layers forward once more, of three such pieces.
	compute := shape.FlopsPerToken(r.seq).Total(metrics.Causal) * tokens * 4 / 3 / chip.PeakBF16PerDevice()
	if pipelined {
		compute *= 5.0 / 4 // stages too begin again from their inputs
	}

	bytes, seconds := map[string]float64{}, map[string]float64{}
	for _, x := range s.Transfers() {
		a := x.Axis()
		bytes[a] += float64(x.Bytes)
		sec, err := x.Seconds(m, chip)
		require.NoError(t, err)
		seconds[a] += sec
	}
	var sent []string
	for _, a := range parallel.AxisNames() {
		if bytes[a] >= 1e6 {
			sent = append(sent, fmt.Sprintf("%s %.3g GB, %.0f ms (%.0f%%)", a, bytes[a]/1e9, 1e3*seconds[a], 100*seconds[a]/compute))
		}
	}
	state := float64(plan.Bytes(4)*4+plan.KeptBytes()) / 1e9
	if pipelined { // gradients of what is kept are whole until the end of the step
		state += 2 * float64(plan.KeptBytes()) / 1e9
	}
	// The inputs of a stage's layers, and of the stage for the micro-batches under way.
	size := func(axis string) int { return max(1, m.AxisSize(axis)) }
	pp := size(parallel.AxisPipeline)
	inputs := float64(r.rows*r.seq*model.Dim*2*(model.Layers/pp+2*pp-2)) / float64(size(parallel.AxisContext)*size(parallel.AxisTensor)) / 1e9
	require.Less(t, state+inputs, 0.9*float64(chip.HBMPerDevice())/1e9, "%v does not fit", r)
	return fmt.Sprintf("| %d | %s %s | `%s` | %s | %s | %d × %d | %.3g | %.3g | %.0f | %s |\n", topo.Chips(), r.family, r.flavor, r.topology,
		strings.ReplaceAll(string(r.mesh), "=", " "), fmt.Sprintf("%.3gM", float64(s.Rows*s.Passes*s.SeqLen)/1e6), r.rows*r.passes, r.seq, state, inputs, 1e3*compute, strings.Join(sent, "<br>"))
}

// The worked table of docs/parallelism.md is what the formulas give.
func TestParallelismTable(t *testing.T) {
	page, err := os.ReadFile("../docs/parallelism.md")
	require.NoError(t, err)
	want := ""
	for _, r := range plannedRuns {
		want += r.row(t)
	}
	require.Contains(t, string(page), want, "the table should be:\n%s", want)
}
