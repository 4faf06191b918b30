package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// expertBlocks multiplies rows of which each expert's are padded to whole blocks:
// for every expert in turn a loop goes through as many as it has.
type expertBlocks struct {
	size   int          // rows of a block
	first  *graph.Value // s32 [E]: an expert's first block
	count  *graph.Value // s32 [E]: how many it has
	filled *graph.Value // f32 [M]: 1 where there is a row
	mean   float64      // blocks of an expert if rows are shared out equally
}

func (l expertBlocks) values() []*graph.Value { return []*graph.Value{l.first, l.count, l.filled} }

func (l expertBlocks) with(v []*graph.Value) expertProducts {
	return expertBlocks{l.size, v[0], v[1], v[2], l.mean}
}

// blockRows is the size of blocks for so many rows of so many experts; a given one
// is kept. Padding is half a block each on average: half of an expert's mean share
// makes up for it. Matrix units want no fewer rows, caches no more.
func blockRows(given, rows, experts int) int {
	if given > 0 {
		return min(given, rows)
	}
	size := 16
	for size < 128 && 4*size*experts <= rows {
		size *= 2
	}
	return size
}

// layBlocks gives rows their places in blocks of size rows. expert s32 [n] is that of
// each row, of experts; any other number stands for none. expected is how many rows
// are of one.
func layBlocks(expert *graph.Value, experts, size, expected int) layout {
	b, n := expert.Builder(), expert.Dim(0)
	hot, counts, rank := countRows(expert, experts)
	one := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	blocks := graph.Div(graph.Add(counts, one(size-1)), one(size))
	end := graph.Cumsum(blocks, 0) // in blocks
	start := graph.Mul(graph.Sub(end, blocks), one(size))
	places := ((n+size-1)/size + experts) * size
	// A row of no expert has a place of its own behind all others.
	none := graph.Mul(graph.Sub(one(1), graph.Sum(hot, -1)), graph.Add(b.Iota(graph.T(dtype.S32, n), 0), one(places+1)))
	slot := graph.Add(graph.Add(rank, graph.Sum(graph.Mul(hot, start), -1)), none)
	row := graph.IndexUpdate(b.Full(graph.T(dtype.S32, places), -1), slot, b.Iota(graph.T(dtype.S32, n), 0), 0, graph.UniqueIndices())
	filled := graph.Convert(graph.GreaterEqual(row, one(0)), dtype.F32)
	mean := float64(expected)/float64(experts*size) + 0.5 // the last of an expert's is half full
	return layout{slot, graph.Max(row, one(0)), expertBlocks{size, graph.Sub(end, blocks), blocks, filled, mean}}
}

func (l expertBlocks) forward(xs *graph.Value, w ffn) (ys, gate, up *graph.Value) {
	b, d, M, D, F := xs.Builder(), xs.DType(), xs.Dim(0), xs.Dim(1), w[0].Dim(2)
	init := []*graph.Value{rowZeros(b, d, M, D), rowZeros(b, d, M, F), rowZeros(b, d, M, F)}
	res, _ := l.each(init, w, nil, func(c []*graph.Value, w, _ ffn, at *graph.Value) ([]*graph.Value, ffn) {
		rows := l.block(xs, at)
		gate, up := gateAndUp(rows, w)
		y := graph.Einsum("bf,fd->bd", graph.Mul(graph.Silu(gate), up), w[2])
		return []*graph.Value{put(c[0], y, at), put(c[1], gate, at), put(c[2], up, at)}, ffn{}
	})
	return res[0], res[1], res[2]
}

// gateAndUp multiplies rows by the matrices of one expert.
func gateAndUp(rows *graph.Value, w ffn) (gate, up *graph.Value) {
	return graph.Einsum("bd,df->bf", rows, w[0]), graph.Einsum("bd,df->bf", rows, w[1])
}

func (l expertBlocks) backward(xs, cts, shares, gates, ups *graph.Value, w, sums ffn) (dxs, dshares *graph.Value, dw ffn) {
	b, d, M, D := xs.Builder(), xs.DType(), xs.Dim(0), xs.Dim(1)
	shares = graph.Mul(shares, l.filled) // padding has none
	as32 := graph.As(dtype.F32)
	out, dw := l.each([]*graph.Value{rowZeros(b, d, M, D), rowZeros(b, dtype.F32, M)}, w, &sums, func(c []*graph.Value, w, sums ffn, at *graph.Value) ([]*graph.Value, ffn) {
		x, ct, share := l.block(xs, at), l.block(cts, at), graph.ExpandDims(l.block(shares, at), -1)
		var act swiglu
		if gates == nil {
			act = newSwiglu(gateAndUp(x, w))
		} else {
			act = newSwiglu(l.block(gates, at), l.block(ups, at))
		}
		// A row's gradient by its weight is ⟨h, ct·Wdᵀ⟩, h being what the down matrix
		// Wd is multiplied with, so that its output need not be kept.
		dh := graph.Einsum("bd,fd->bf", ct, w[2], as32) // but for the weight
		dshare := graph.Sum(graph.Mul(dh, graph.Convert(act.hidden(d), dtype.F32)), -1)
		dy := graph.Convert(graph.Mul(graph.Convert(ct, dtype.F32), share), d)
		dg, du := act.backward(graph.Mul(dh, share), d)
		dx := graph.Convert(graph.Add(graph.Einsum("bf,df->bd", dg, w[0], as32), graph.Einsum("bf,df->bd", du, w[1], as32)), d)
		return []*graph.Value{put(c[0], dx, at), put(c[1], dshare, at)}, ffn{
			graph.Add(sums[0], graph.Einsum("bd,bf->df", x, dg, as32)),
			graph.Add(sums[1], graph.Einsum("bd,bf->df", x, du, as32)),
			graph.Add(sums[2], graph.Einsum("bf,bd->fd", act.hidden(d), dy, as32)),
		}
	})
	return out[0], out[1], dw
}

// each runs body for every block of every expert, with the matrices w of that
// expert alone. rows are arrays of rows that body returns with the block at row at
// written. With sums, body also returns the expert's gradients f32 like w, added to
// what it is given: those of sums, or zero where these are nil.
func (l expertBlocks) each(rows []*graph.Value, w ffn, sums *ffn, body func(rows []*graph.Value, w, sums ffn, at *graph.Value) ([]*graph.Value, ffn)) ([]*graph.Value, ffn) {
	b := l.first.Builder()
	xs := []*graph.Value{l.first, l.count, w[0], w[1], w[2]}
	if sums != nil && sums[0] != nil {
		xs = append(xs, sums[:]...)
	}
	n := len(rows)
	out, grads := b.Scan(rows, xs, func(c, e []*graph.Value) (next, ys []*graph.Value) {
		w := ffn{e[2], e[3], e[4]}
		if sums != nil {
			start := e[5:]
			if len(start) == 0 {
				for _, m := range w {
					start = append(start, b.Zeros(graph.T(dtype.F32, m.Shape()...)))
				}
			}
			c = append(c[:n:n], start...)
		}
		end := graph.Add(e[0], e[1])
		c = b.While(append([]*graph.Value{e[0]}, c...),
			func(c []*graph.Value) *graph.Value { return graph.Less(c[0], end) },
			func(c []*graph.Value) []*graph.Value {
				at := graph.Mul(c[0], b.Int(dtype.S32, int64(l.size)))
				next := []*graph.Value{graph.Add(c[0], b.Int(dtype.S32, 1))}
				if sums == nil {
					rows, _ := body(c[1:], w, ffn{}, at)
					return append(next, rows...)
				}
				rows, g := body(c[1:n+1], w, ffn(c[n+1:]), at)
				return append(append(next, rows...), g[:]...)
			}, graph.ExpectedTrips(l.mean))[1:]
		return c[:n], c[n:]
	})
	if sums == nil {
		return out, ffn{}
	}
	return out, ffn(grads)
}

// block takes the rows of a block.
func (l expertBlocks) block(x, at *graph.Value) *graph.Value {
	return graph.DynamicSliceDim(x, 0, at, l.size)
}

// rowZeros are rows to be written: [M, …].
func rowZeros(b *graph.Builder, d dtype.DType, shape ...int) *graph.Value {
	return b.Zeros(graph.T(d, shape...))
}

func put(rows, block, at *graph.Value) *graph.Value {
	return graph.DynamicUpdateSliceDim(rows, block, 0, at)
}
