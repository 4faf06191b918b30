package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/sharding"
)

// A matrix that all devices of a torus share out is gathered by an all-gather, and its
// gradient scattered by a reduce-scatter. libtpu 0.0.52 makes all-reduces, which send
// twice as much, of both: of any all-gather of that kind without an option for it, and
// of reduce-scatters of 2 dimensions of some sizes, of which this is one.
func TestWholeTorusIsNotAllReducedOnTPU(t *testing.T) {
	const rows, in, out = 256, 512, 384
	topology, err := mesh.ParseTopology("tpu7x:2x4x4")
	require.NoError(t, err)
	chip, err := topology.Chip()
	require.NoError(t, err)
	n := topology.Devices()
	m, err := mesh.New([]mesh.Axis{{Name: "d", Size: n}}, nil)
	require.NoError(t, err)
	split := sharding.P("d")
	program, err := graph.Trace("step", m, func(b *graph.Builder) error {
		x := b.Input("x", graph.T(dtype.BF16, n*rows, in), graph.Sharded(split))
		w := b.Input("w", graph.T(dtype.F32, in, out), graph.Sharded(split), graph.Donated())
		loss := b.ShardMap([]*graph.Value{x, w}, []sharding.Spec{split, split}, []sharding.Spec{sharding.P()}, func(l []*graph.Value) []*graph.Value {
			whole := graph.WithGradIn(graph.AllGather(graph.Convert(l[1], dtype.BF16), 0, "d"), dtype.F32)
			y := graph.Convert(graph.Einsum("bi,io->bo", l[0], whole), dtype.F32)
			return []*graph.Value{graph.AllReduce(graph.Sum(graph.Square(y)), "d")}
		})[0]
		b.Output("w", graph.Sub(w, graph.MulScalar(graph.Grad(loss, w)[0], 0.1)), graph.Into(w))
		return nil
	})
	require.NoError(t, err)
	for _, unset := range []bool{false, true} {
		o := CompileOptions(m, Platform{Chip: &chip})
		if o.DeviceIDs = nil; unset {
			delete(o.Flags, "xla_tpu_prefer_async_allgather_to_allreduce")
		}
		mod, err := xlatest.CompileTPU(t, topology.SliceName(), program.StableHLO(), o).OptimizedHLO()
		require.NoError(t, err)
		got := map[string]int{}
		for _, c := range mod.Collectives() {
			if c.Op.Shape.Bytes() > 4 {
				got[c.Kind()]++
			}
		}
		want := map[string]int{"all-gather": 1, "reduce-scatter": 1}
		if unset {
			want = map[string]int{"all-reduce": 1, "reduce-scatter": 1}
		}
		require.Equal(t, want, got)
	}
}
