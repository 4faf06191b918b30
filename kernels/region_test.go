package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/sharding"
)

// layersProgram is two layers of attention and experts, scanned over and computed
// again in the backward pass, in a manual region where each of n devices has rows
// (and groups of them) of its own; its outputs are the loss and the gradients of x and w.
func layersProgram(t *testing.T, n int, target kernels.Target) string {
	t.Helper()
	const rows, h, E = 16, 4, 3
	m, err := mesh.New([]mesh.Axis{{Name: "x", Size: n}}, nil)
	require.NoError(t, err)
	mod, err := graph.Trace("layers", m, func(b *graph.Builder) error {
		spec := sharding.P("x")
		x := b.Input("x", graph.T(dtype.F32, n*rows, h), graph.Sharded(spec))
		w := b.Input("w", graph.T(dtype.F32, 2, E, h, h), graph.Sharded(sharding.Replicated(4)))
		sizes := b.Input("sizes", graph.T(dtype.S32, n*E), graph.Sharded(spec))
		outs := b.ShardMap([]*graph.Value{x, w, sizes}, []sharding.Spec{spec, sharding.Replicated(4), spec}, []sharding.Spec{sharding.Replicated(0), spec, sharding.Replicated(4)},
			func(a []*graph.Value) []*graph.Value {
				x, w, sizes := a[0], a[1], a[2]
				carry, _ := b.Scan([]*graph.Value{x}, []*graph.Value{w}, func(carry, y []*graph.Value) (next, ys []*graph.Value) {
					next = b.Checkpoint(graph.SaveNothing(), func() []*graph.Value {
						x := carry[0]
						q, kv := graph.Reshape(x, 1, 1, rows, h), graph.Reshape(x, 1, rows, h)
						at := kernels.Attention{Q: q, K: kv, V: kv, Causal: true, Target: target, Tiles: kernels.AttentionTiles{Q: 8, K: 4}}
						at.Lo, at.Hi = kernels.KeyIntervals(b, rows, rows, kernels.Intervals{Places: b.Iota(graph.T(dtype.S32, rows), 0)})
						x = graph.Add(x, graph.Reshape(kernels.FlashAttention(at), rows, h))
						y := kernels.GroupedMatmul(x, y[0], sizes, kernels.GroupedOptions{Target: target, Tiles: kernels.GroupedTiles{Product: kernels.MatmulTiles{M: 8}, RHS: kernels.MatmulTiles{M: 8}}})
						return []*graph.Value{graph.Tanh(graph.Add(x, y))}
					})
					return next, nil
				})
				loss := graph.AllReduce(graph.Sum(graph.Square(carry[0])), "x")
				return append([]*graph.Value{loss}, graph.Grad(loss, x, w)...)
			})
		b.Output("loss", outs[0])
		b.Output("dx", outs[1], graph.Sharded(spec))
		b.Output("dw", outs[2], graph.Sharded(sharding.Replicated(4)))
		return nil
	})
	require.NoError(t, err)
	return mod.StableHLO()
}

// Inside a manual region, a scan and a checkpoint, where devices have groups of
// their own, so that their loops differ in length, results are those of one device
// after the other; and the same program compiles for a TPU.
func TestKernelsInsideLayers(t *testing.T) {
	const n, rows, h, E = 2, 16, 4, 3
	c := xlatest.CPU(t)
	r := rand.New(rand.NewPCG(9, 10))
	w := xlatest.F32(floats(r, 2*E*h*h), 2, E, h, h)
	var args [][]xlatest.Array
	sizes := [][]int32{{5, 0, 11}, {1, 15, 0}}
	for d := range n {
		args = append(args, []xlatest.Array{xlatest.F32(floats(r, rows*h), rows, h), w, xlatest.S32(sizes[d])})
	}
	got := xlatest.Run(t, c, layersProgram(t, n, strict), n, args)
	var loss float32
	dw := make([]float32, w.Len())
	for d := range n {
		one := xlatest.Run(t, c, layersProgram(t, 1, kernels.Target{}), 1, args[d:d+1])[0]
		loss += one[0].Float32s()[0]
		for i, x := range one[2].Float32s() {
			dw[i] += x
		}
		requireClose(t, one[1].Float32s(), got[d][1].Float32s(), 1e-4, "dx of device %d", d)
	}
	for d := range n {
		requireClose(t, []float32{loss}, got[d][0].Float32s(), 1e-4, "loss")
		requireClose(t, dw, got[d][2].Float32s(), 1e-4, "dw")
	}
}
