package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
	"titan/sharding"
)

// FSDP written in a manual region stays what it is: parameters are gathered for
// use and their gradients scattered; nothing of a parameter's size is
// all-reduced, only the loss is.
func TestManualFSDPIsCompiledAsWritten(t *testing.T) {
	m := newMesh(t, axis("dp_shard", 8))
	split := sharding.P("dp_shard")
	prog := trace(t, m, func(b *Builder) {
		x := b.Input("x", T(F32, 16, 32), Sharded(split))
		ws := []*Value{b.Input("w0", T(F32, 32, 64), Sharded(split), Donated()), b.Input("w1", T(F32, 64, 32), Sharded(split), Donated())}
		specs := []sharding.Spec{split, split, split}
		loss := b.ShardMap(append([]*Value{x}, ws...), specs, []sharding.Spec{sharding.P()}, func(l []*Value) []*Value {
			h := l[0]
			for _, w := range l[1:] {
				h = Tanh(Einsum("bi,io->bo", h, AllGather(w, 0, "dp_shard")))
			}
			return []*Value{AllReduce(Sum(Square(h)), "dp_shard")}
		})[0]
		grads := Grad(loss, ws...)
		b.Output("loss", loss)
		for i, w := range ws {
			b.Output([]string{"w0", "w1"}[i], Sub(w, MulScalar(grads[i], 0.1)), Into(w))
		}
	})
	x := xlatest.Compile(t, xlatest.CPU(t), prog.StableHLO(), 8)
	module, err := x.OptimizedHLO()
	require.NoError(t, err)
	got := map[string]int{}
	for _, c := range module.Collectives() {
		got[c.Kind()]++
		if c.Kind() == "all-reduce" {
			require.Empty(t, c.Op.Shape.Dims, "only the scalar loss is all-reduced")
		}
	}
	require.GreaterOrEqual(t, got["all-gather"], 2)
	require.Equal(t, 2, got["reduce-scatter"])
	require.LessOrEqual(t, got["all-reduce"], 1)
	require.Len(t, got, 3, "%v", got)
}
