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
		blocks, w := expertBlocks{size, a[5], a[6], l.blocks.mean}, ffn(a[7:])
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
		return []*graph.Value{out}, append(append(residuals, a...), graph.Name(res[1], NameGate), graph.Name(res[2], NameUp))
	}
	backward := func(res, grads []*graph.Value) []*graph.Value {
		x, weights, slot, pair, filled := res[0], res[1], res[2], res[3], res[4]
		blocks, w := expertBlocks{size, res[5], res[6], l.blocks.mean}, ffn(res[7:10])
		gates, ups := res[10], res[11]
		d := x.DType()
		// A row's gradient by its weight is ⟨h, ct·Wdᵀ⟩, h being what the down matrix
		// Wd is multiplied with, so that its output need not be kept.
		cts, xs := graph.Take(graph.Convert(grads[0], d), token(pair), 0), graph.Take(x, token(pair), 0)
		shares := graph.Mul(graph.Take(graph.Reshape(weights, N*k), pair, 0), filled) // padding has none
		out, sums := blocks.each([]*graph.Value{rowZeros(b, d, M, D), rowZeros(b, dtype.F32, M)}, w, &ffn{}, func(c []*graph.Value, w, sums ffn, at *graph.Value) ([]*graph.Value, ffn) {
			ct, share := blocks.block(cts, at), graph.ExpandDims(blocks.block(shares, at), -1)
			act := newSwiglu(blocks.block(gates, at), blocks.block(ups, at))
			dh := graph.Einsum("bd,fd->bf", ct, w[2], graph.As(dtype.F32)) // but for the weight
			dw := graph.Sum(graph.Mul(dh, f32(act.hidden(d))), -1)
			dy := graph.Convert(graph.Mul(f32(ct), share), d)
			dx, sums := act.backward(blocks.block(xs, at), dy, graph.Mul(dh, share), w, sums)
			return []*graph.Value{put(c[0], dx, at), put(c[1], dw, at)}, sums
		})
		parts := graph.Reshape(graph.Take(out[0], slot, 0), N, k, D)
		dx := graph.Convert(graph.Sum(f32(parts), 1), d)
		dw := graph.Reshape(graph.Take(out[1], slot, 0), N, k)
		return append([]*graph.Value{dx, dw, nil, nil, nil, nil, nil}, sums[:]...)
	}
	args := []*graph.Value{x, weights, l.slot, l.row, l.filled, l.blocks.first, l.blocks.count}
	// Gathered here, and not by forward and by backward: where forward's part is
	// computed again, that serves backward as well.
	for i, n := range expertNames {
		args = append(args, g.place.Weight(stored[i], n))
	}
	return graph.CustomVJP(args, forward, backward)[0], nil
}
