package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// slices are small ones of each kind of chip, with the number of their devices.
var slicesOf = []struct {
	kind, topology string
	devices        int
}{
	{"v5e", "v5e:2x2", 4}, {"v5p", "v5p:2x2x1", 4}, {"v6e", "v6e:2x2", 4}, {"tpu7x", "tpu7x:2x2x1", 8},
}

// onDevices traces f inside a manual region over all devices, each of which has
// the arguments whole, and returns what f returns, one part a device.
func onDevices(devices int, types []graph.Type, f func(args []*graph.Value) []*graph.Value) (*graph.Module, error) {
	m, err := mesh.New([]mesh.Axis{{Name: "x", Size: devices}}, nil)
	if err != nil {
		return nil, err
	}
	return graph.Trace("on_devices", m, func(b *graph.Builder) error {
		var args []*graph.Value
		var specs []sharding.Spec
		for _, t := range types {
			spec := sharding.Replicated(t.Rank())
			if t.DType.IsFloat() { // other rows on each device
				spec = sharding.P("x")
				t.Shape = append([]int{t.Shape[0] * devices}, t.Shape[1:]...)
			}
			specs = append(specs, spec)
			args = append(args, b.Input("arg", t, graph.Sharded(spec)))
		}
		outs := b.ShardMapOut(args, specs, func(local []*graph.Value) ([]*graph.Value, []sharding.Spec) {
			outs := f(local)
			specs := make([]sharding.Spec, len(outs))
			for i := range outs {
				specs[i] = sharding.P("x")
			}
			return outs, specs
		})
		for _, o := range outs {
			b.Output("out", o)
		}
		return nil
	})
}

// compileFor compiles m, at the compiler's quickest level.
func compileFor(t *testing.T, m *graph.Module, topology string, devices int) {
	t.Helper()
	compileProgram(t, m.StableHLO(), topology, devices)
}

func compileProgram(t *testing.T, program, topology string, devices int) {
	t.Helper()
	xlatest.CompileTPU(t, topology, program, pjrt.CompileOptions{Partitions: devices, Shardy: true, OptLevel: pjrt.LevelO0, MemoryFittingLevel: pjrt.LevelO0})
}

// The three products of experts compile for every chip at the sizes of large
// models, with the tiles of the table.
func TestGroupedMatmulCompilesForTPU(t *testing.T) {
	for _, s := range slicesOf {
		t.Run(s.kind, func(t *testing.T) {
			target, err := kernels.For(s.kind)
			require.NoError(t, err)
			const E, D, F, M = 16, 4096, 1536, 16384
			types := []graph.Type{graph.T(dtype.BF16, M, D), graph.T(dtype.BF16, E, D, F), graph.T(dtype.S32, E), graph.T(dtype.BF16, M, F)}
			m, err := onDevices(s.devices, types, func(a []*graph.Value) []*graph.Value {
				out := kernels.GroupedMatmul(a[0], a[1], a[2], kernels.GroupedOptions{Target: target})
				return append([]*graph.Value{out}, graph.VJP([]*graph.Value{out}, a[3:], a[:2])...)
			})
			require.NoError(t, err)
			compileFor(t, m, s.topology, s.devices)
		})
	}
}

// Attention and its gradients compile for every chip, with packed documents.
func TestAttentionCompilesForTPU(t *testing.T) {
	for _, s := range slicesOf {
		t.Run(s.kind, func(t *testing.T) {
			target, err := kernels.For(s.kind)
			require.NoError(t, err)
			const B, K, R, S, h = 2, 4, 8, 4096, 128
			q, kv, seg := graph.T(dtype.BF16, B*K, R, S, h), graph.T(dtype.BF16, B*K, S, h), graph.T(dtype.S32, B, S)
			m, err := onDevices(s.devices, []graph.Type{q, kv, kv, q, seg}, func(x []*graph.Value) []*graph.Value {
				b := x[0].Builder()
				a := kernels.Attention{Q: x[0], K: x[1], V: x[2], Causal: true, Target: target}
				a.Lo, a.Hi = kernels.KeyIntervals(b, S, S, kernels.Intervals{Places: b.Iota(graph.T(dtype.S32, S), 0), Starts: kernels.Starts(x[4])})
				outs := []*graph.Value{kernels.FlashAttention(a)}
				outs = append(outs, graph.VJP(outs, x[3:4], x[:3])...)
				if s.kind == "v5e" || s.kind == "tpu7x" { // on all with TITAN_LONG, see long_test.go
					a.Apart = true
					outs = append(outs, graph.VJP([]*graph.Value{kernels.FlashAttention(a)}, x[3:4], x[:3])...)
				}
				return outs
			})
			require.NoError(t, err)
			compileFor(t, m, s.topology, s.devices)
		})
	}
}
