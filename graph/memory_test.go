package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
	"titan/pjrt"
)

func small(layers int, scan bool, remat *Policy) llama {
	return llama{vocab: 256, dim: 64, ffn: 192, layers: layers, heads: 4, kv: 2, headDim: 16, seq: 128, batch: 4, dtype: F32, scan: scan, remat: remat}
}

func compileStep(t *testing.T, c llama) (string, pjrt.MemoryStats, *Module) {
	t.Helper()
	m, err := Trace("step", nil, c.step)
	require.NoError(t, err)
	text := m.StableHLO()
	x := xlatest.Compile(t, xlatest.CPU(t), text, 1)
	s, err := x.MemoryStats()
	require.NoError(t, err)
	return text, s, m
}

// The compiler must see activation checkpointing: recomputation that it merged
// with the first computation would not save a byte. Donated parameters must be
// updated in place.
func TestCheckpointingCutsMemory(t *testing.T) {
	full, names := SaveNothing(), SaveNames("attn_out")
	for scan, layers := range map[bool]int{true: 32, false: 10} { // written out they take long to compile
		_, none, m := compileStep(t, small(layers, scan, nil))
		_, all, _ := compileStep(t, small(layers, scan, &full))
		_, some, _ := compileStep(t, small(layers, scan, &names))
		ratio := float64(none.Temp) / float64(all.Temp)
		t.Logf("%d layers, scan %v: temp %.1f MiB without, %.1f with full checkpointing (%.1f×), %.1f keeping attn_out",
			layers, scan, mib(none.Temp), mib(all.Temp), ratio, mib(some.Temp))
		require.Greater(t, ratio, 2.5)
		require.Less(t, all.Temp, some.Temp, "keeping more must cost more")
		require.Less(t, some.Temp, none.Temp)

		donated := int64(0)
		for _, in := range m.Inputs() {
			if in.Alias >= 0 {
				donated += int64(in.Type.Bytes())
			}
		}
		require.Positive(t, donated)
		for _, s := range []pjrt.MemoryStats{none, all, some} {
			require.Equal(t, donated, s.Alias, "every donated byte is an output's")
		}
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// With layers in a loop, neither the program nor what the compiler makes of it
// grows with their number.
func TestScannedSizeIsConstant(t *testing.T) {
	full := SaveNothing()
	for _, remat := range []*Policy{nil, &full} {
		text8, code8 := sizes(t, small(8, true, remat))
		text64, code64 := sizes(t, small(64, true, remat))
		t.Logf("8 layers: %d bytes of text, %d of executable; 64 layers: %d and %d", text8, code8, text64, code64)
		require.InEpsilon(t, text8, text64, 0.1, "program text")
		require.InEpsilon(t, code8, code64, 0.1, "executable")
	}
}

// sizes gives the bytes of a step's text and of its serialised executable.
func sizes(t *testing.T, c llama) (text, executable int) {
	t.Helper()
	program, _, _ := compileStep(t, c)
	x := xlatest.Compile(t, xlatest.CPU(t), program, 1)
	code, err := x.Serialize()
	require.NoError(t, err)
	return len(program), len(code)
}

// BenchmarkCompileScanned gives the compile times whose ratio the text test
// cannot show: ns/op at 8 and 64 layers should agree to 10%.
func BenchmarkCompileScanned(b *testing.B) {
	for name, layers := range map[string]int{"layers=8": 8, "layers=64": 64} {
		m, err := Trace("step", nil, small(layers, true, nil).step)
		require.NoError(b, err)
		text := []byte(m.StableHLO())
		c := xlatest.CPU(b)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				x, err := c.Compile(text, pjrt.CompileOptions{Shardy: true})
				require.NoError(b, err)
				require.NoError(b, x.Close())
			}
		})
	}
}
