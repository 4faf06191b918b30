package decoder

import (
	"titan/dtype"
	"titan/graph"
	"titan/kernels"
)

// groupedFFN applies to every row the SwiGLU layers of its experts and adds them
// up by weight. Nothing is dropped: rows are laid out by expert and multiplied by
// tile kernels or, without, block by block. It runs on one device's rows.
type groupedFFN struct {
	experts, topK int
	block         int             // rows of a block; 0 chooses
	kernels       *kernels.Target // nil: no tile kernels
	tiles         kernels.GroupedTiles
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

// sort puts rows into the order of their experts s32 [n].
func (g groupedFFN) sort(expert *graph.Value) sorted {
	if g.kernels != nil {
		return sortedRows(expert, g.experts)
	}
	return countedRows(expert, g.experts)
}

// options are those of tile kernels on so many rows.
func (g groupedFFN) options(rows int) kernels.GroupedOptions {
	_, reduce := g.place.Types()
	return kernels.GroupedOptions{Target: *g.kernels, Tiles: g.tiles, Rows: rows, Grad: reduce}
}

// lay lays out rows by their experts s32 [n].
func (g groupedFFN) lay(expert *graph.Value) layout {
	n := expert.Dim(0)
	if g.kernels == nil {
		return layBlocks(expert, g.experts, blockRows(g.block, n, g.experts), n)
	}
	s := g.sort(expert)
	return layout{graph.Name(s.place, NameRouter), graph.Name(s.order, NameRouter), expertTiles{s.counts, g.options(n)}}
}

// apply takes rows x [N, D], weights f32 [N, k], experts s32 [N, k], and the
// stored expert matrices.
func (g groupedFFN) apply(x, weights, experts *graph.Value, stored []*graph.Value) (y, dropped *graph.Value) {
	b, N, k := x.Builder(), x.Dim(0), g.topK
	laid := g.lay(graph.Reshape(experts, N*k))
	args := append([]*graph.Value{x, weights}, laid.values()...)
	matrices := len(args)
	// Gathered here, and not by forward and by backward: where forward's part is
	// computed again, that serves backward as well.
	for i, n := range expertNames {
		args = append(args, g.place.Weight(stored[i], n))
	}
	token := func(pair *graph.Value) *graph.Value { return graph.Div(pair, b.Int(dtype.S32, int64(k))) }

	forward := func(a []*graph.Value) (outs, residuals []*graph.Value) {
		x, weights, l, w := a[0], a[1], laid.with(a[2:matrices]), ffn(a[matrices:])
		ys, gate, up := l.by.forward(graph.Take(x, token(l.row), 0), w)
		return []*graph.Value{graph.Convert(sumOfChoices(ys, l.slot, weights), x.DType())}, append(append(residuals, a...), graph.Name(gate, NameGate), graph.Name(up, NameUp))
	}
	backward := func(res, grads []*graph.Value) []*graph.Value {
		x, weights, l := res[0], res[1], laid.with(res[2:matrices])
		w, gate, up := ffn(res[matrices:matrices+3]), res[matrices+3], res[matrices+4]
		at := token(l.row)
		xs, cts := graph.Take(x, at, 0), graph.Take(graph.Convert(grads[0], x.DType()), at, 0)
		shares := graph.Take(graph.Reshape(weights, N*k), l.row, 0)
		dxs, dshares, dw := l.by.backward(xs, cts, shares, gate, up, w, ffn{})
		out := make([]*graph.Value, matrices)
		ones := b.Full(weights.Type(), 1)
		out[0], out[1] = graph.Convert(sumOfChoices(dxs, l.slot, ones), x.DType()), graph.Reshape(graph.Take(dshares, l.slot, 0), N, k)
		return append(out, dw[:]...)
	}
	return graph.CustomVJP(args, forward, backward)[0], nil
}
