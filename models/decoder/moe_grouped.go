package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// groupedFFN applies to every row the SwiGLU layers of its experts and adds them
// up by weight. Nothing is dropped: rows are laid out by expert, each expert's
// padded to whole blocks, and for every expert in turn a loop goes through as
// many blocks as it has. It runs on one device's rows.
type groupedFFN struct {
	experts, topK int
	block         int // rows of a block; 0 chooses
	place         Placement
}

// expertNames are the stacks of the experts' matrices.
var expertNames = [3]string{"layers.experts.w_gate", "layers.experts.w_up", "layers.experts.w_down"}

// gather makes the stored matrices ready for use.
func (g groupedFFN) gather(stored []*graph.Value) ffn {
	var w ffn
	for i, n := range expertNames {
		w[i] = g.place.Gather(stored[i], n)
	}
	return w
}

// scatter returns the parts of the matrices' gradients that are stored here.
func (g groupedFFN) scatter(sums ffn) []*graph.Value {
	var out []*graph.Value
	for i, n := range expertNames {
		out = append(out, g.place.Scatter(sums[i], n))
	}
	return out
}

// apply takes rows x [N, D], weights f32 [N, k], experts s32 [N, k], and the
// stored expert matrices.
func (g groupedFFN) apply(x, weights, experts *graph.Value, stored []*graph.Value) (y, dropped *graph.Value) {
	N, D, k := x.Dim(0), x.Dim(1), g.topK
	l := layRows(graph.Reshape(experts, N*k), g.experts, blockRows(g.block, N*k, g.experts))
	M := l.row.Dim(0)
	b, size := x.Builder(), l.blocks.size
	token := func(pair *graph.Value) *graph.Value { return graph.Div(pair, b.Int(dtype.S32, int64(k))) }
	f32 := func(v *graph.Value) *graph.Value { return graph.Convert(v, dtype.F32) }

	forward := func(a []*graph.Value) (outs, residuals []*graph.Value) {
		x, weights, slot, pair := a[0], a[1], a[2], a[3]
		blocks, w := expertBlocks{size, a[5], a[6]}, g.gather(a[7:])
		F, d := w[0].Dim(2), x.DType() // F whole, whichever dimension is stored in parts
		xs := graph.Take(x, token(pair), 0)
		init := []*graph.Value{rowZeros(b, d, M, D), rowZeros(b, d, M, F), rowZeros(b, d, M, F)}
		res, _ := blocks.each(init, w, nil, func(c []*graph.Value, w, _ ffn, at *graph.Value) ([]*graph.Value, ffn) {
			rows := blocks.block(xs, at)
			gate := graph.Einsum("bd,df->bf", rows, w[0])
			up := graph.Einsum("bd,df->bf", rows, w[1])
			y := graph.Einsum("bf,fd->bd", graph.Mul(graph.Silu(gate), up), w[2])
			return []*graph.Value{put(c[0], y, at), put(c[1], gate, at), put(c[2], up, at)}, ffn{}
		})
		picked := graph.Reshape(graph.Take(res[0], slot, 0), N, k, D)
		out := graph.Convert(graph.Sum(graph.Mul(f32(picked), graph.ExpandDims(weights, -1)), 1), d)
		return []*graph.Value{out}, append(append(residuals, a...), res...)
	}
	backward := func(res, cts []*graph.Value) []*graph.Value {
		x, weights, slot, pair, filled := res[0], res[1], res[2], res[3], res[4]
		blocks, w := expertBlocks{size, res[5], res[6]}, g.gather(res[7:10])
		y, gates, ups := res[10], res[11], res[12]
		d := x.DType()
		ct := graph.Convert(cts[0], d)
		picked := graph.Reshape(graph.Take(y, slot, 0), N, k, D)
		dw := graph.Sum(graph.Mul(f32(picked), graph.ExpandDims(f32(ct), 1)), -1)

		share := graph.Mul(graph.Take(graph.Reshape(weights, N*k), pair, 0), filled) // padding has none
		dys := graph.Mul(graph.Take(ct, token(pair), 0), graph.Convert(graph.ExpandDims(share, -1), d))
		xs := graph.Take(x, token(pair), 0)
		dxs, sums := blocks.each([]*graph.Value{rowZeros(b, d, M, D)}, w, &ffn{}, func(c []*graph.Value, w, sums ffn, at *graph.Value) ([]*graph.Value, ffn) {
			dy := blocks.block(dys, at)
			act := newSwiglu(blocks.block(gates, at), blocks.block(ups, at))
			dh := graph.Einsum("bd,fd->bf", dy, w[2], graph.As(dtype.F32))
			dx, sums := act.backward(blocks.block(xs, at), dy, dh, w, sums)
			return []*graph.Value{put(c[0], dx, at)}, sums
		})
		parts := graph.Reshape(graph.Take(dxs[0], slot, 0), N, k, D)
		dx := graph.Convert(graph.Sum(f32(parts), 1), d)
		return append([]*graph.Value{dx, dw, nil, nil, nil, nil, nil}, g.scatter(sums)...)
	}
	args := []*graph.Value{x, weights, l.slot, l.row, l.filled, l.blocks.first, l.blocks.count}
	return graph.CustomVJP(append(args, stored...), forward, backward)[0], nil
}
