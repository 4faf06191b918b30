package kernels_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/pjrt"
)

// At the sizes of Qwen3-235B-A22B on a pod (128 experts, 131,072 rows a device;
// sequences of 4,096 and 32,768), each kernel alone, at the compiler's production
// level, the tiles of the table fit. The log says how long each took.
func TestKernelsAtProductionLevel(t *testing.T) {
	if os.Getenv("TITAN_LONG") == "" {
		t.Skip("a compile of each kernel for each chip; set TITAN_LONG=1")
	}
	const E, D, F, M = 128, 4096, 1536, 131072
	grouped := func(wrt ...int) func(kernels.Target) ([]graph.Type, func([]*graph.Value) []*graph.Value) {
		return func(target kernels.Target) ([]graph.Type, func([]*graph.Value) []*graph.Value) {
			types := []graph.Type{graph.T(dtype.BF16, M, D), graph.T(dtype.BF16, E, D, F), graph.T(dtype.S32, E), graph.T(dtype.BF16, M, F)}
			return types, func(x []*graph.Value) []*graph.Value {
				out := kernels.GroupedMatmul(x[0], x[1], x[2], kernels.GroupedOptions{Target: target})
				if len(wrt) == 0 {
					return []*graph.Value{out}
				}
				return graph.VJP([]*graph.Value{out}, x[3:], []*graph.Value{x[wrt[0]]})
			}
		}
	}
	attention := func(S int, gradients, apart bool) func(kernels.Target) ([]graph.Type, func([]*graph.Value) []*graph.Value) {
		return func(target kernels.Target) ([]graph.Type, func([]*graph.Value) []*graph.Value) {
			q, kv := graph.T(dtype.BF16, 4, 16, S, 128), graph.T(dtype.BF16, 4, S, 128)
			return []graph.Type{q, kv, kv, q, graph.T(dtype.S32, 1, S)}, func(x []*graph.Value) []*graph.Value {
				b := x[0].Builder()
				a := kernels.Attention{Q: x[0], K: x[1], V: x[2], Causal: true, Apart: apart, Target: target}
				a.Lo, a.Hi = kernels.KeyIntervals(b, S, S, kernels.Intervals{Places: b.Iota(graph.T(dtype.S32, S), 0), Starts: kernels.Starts(x[4])})
				out := kernels.FlashAttention(a)
				if !gradients {
					return []*graph.Value{out}
				}
				return graph.VJP([]*graph.Value{out}, x[3:4], x[:3])
			}
		}
	}
	for _, s := range slicesOf {
		for _, c := range []struct {
			name string
			make func(kernels.Target) ([]graph.Type, func([]*graph.Value) []*graph.Value)
		}{
			{"product", grouped()}, {"gradient of lhs", grouped(0)}, {"gradient of rhs", grouped(1)},
			{"attention 4k", attention(4096, false, false)}, {"gradients 4k", attention(4096, true, false)}, {"gradients apart 4k", attention(4096, true, true)},
			{"attention 32k", attention(32768, false, false)}, {"gradients 32k", attention(32768, true, false)},
		} {
			t.Run(s.kind+" "+c.name, func(t *testing.T) {
				types, f := c.make(on(t, s.kind))
				m, err := onDevices(s.devices, types, f)
				require.NoError(t, err)
				topo, err := xlatest.TPU(t).NewTopology(s.topology, nil)
				require.NoError(t, err)
				defer topo.Close()
				start := time.Now()
				x, err := topo.Compile([]byte(m.StableHLO()), pjrt.CompileOptions{Partitions: s.devices, Shardy: true})
				require.NoError(t, err)
				defer x.Close()
				stats, err := x.MemoryStats()
				require.NoError(t, err)
				t.Logf("compiled in %.1f s, temporaries %d MiB", time.Since(start).Seconds(), stats.Temp>>20)
			})
		}
	}
}
