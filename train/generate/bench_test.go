package generate

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/models"
	"titan/pjrt"
	"titan/sharding"
	"titan/train"
)

// BenchmarkDecode reads one token at a time behind a prompt of 100. The model is
// TITAN_BENCH_MODEL, a family and a flavor such as qwen3/0.6B, with new weights.
func BenchmarkDecode(b *testing.B) { benchmarkReading(b, 1) }

// BenchmarkPrompt reads 256 tokens at a time.
func BenchmarkPrompt(b *testing.B) { benchmarkReading(b, 256) }

func benchmarkReading(b *testing.B, n int) {
	family, flavor, _ := strings.Cut(os.Getenv("TITAN_BENCH_MODEL"), "/")
	if family == "" {
		family, flavor = "qwen3_moe", "debugmodel"
	}
	c, err := models.Lookup(family, flavor)
	require.NoError(b, err)
	m := machine(b)
	var vars []train.Var
	for _, p := range c.Rows() {
		vars = append(vars, train.Var{Name: p.Name, Type: graph.T(dtype.F32, p.Shape...), Spec: sharding.Replicated(len(p.Shape))})
	}
	mod, err := train.BuildInit(1, m.Mesh, c, vars)
	require.NoError(b, err)
	exe, err := m.Compile(mod)
	require.NoError(b, err)
	outs, err := exe.Exe.Run([][]*pjrt.Buffer{nil}, pjrt.ExecuteOptions{})
	require.NoError(b, err)
	exe.Close()
	e := &engine{machine: m, config: c, compute: dtype.F32, chunk: maxChunk, params: outs[0]}
	defer e.close()
	require.NoError(b, e.begin(512))
	tokens := make([]int32, n)
	_, err = e.read(ctx, make([]int32, 100))
	require.NoError(b, err)
	_, err = e.read(ctx, tokens)
	require.NoError(b, err)
	before := cpuSeconds(b)
	for b.Loop() {
		e.rewind(100)
		_, err = e.read(ctx, tokens)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric((cpuSeconds(b)-before)/float64(n*b.N), "cpu-s/token")
}

func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
