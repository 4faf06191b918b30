package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// layout says where rows go that are multiplied by their expert's matrices: they
// are sorted by expert, and each expert's padded to whole blocks.
type layout struct {
	slot   *graph.Value // s32 [n]: the place of each row; outside for one of no expert
	row    *graph.Value // s32 [M]: the row at each place, 0 where there is none
	filled *graph.Value // f32 [M]: 1 where there is one
	blocks expertBlocks
}

// expertBlocks says which blocks of rows are an expert's.
type expertBlocks struct {
	size  int          // rows of a block
	first *graph.Value // s32 [E]: an expert's first block
	count *graph.Value // s32 [E]: how many it has
	mean  float64      // how many it has if rows are shared out equally
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

// meanBlocks is how many blocks of size rows an expert has if n rows are shared out
// equally; the last of them is half full.
func meanBlocks(n, experts, size int) float64 {
	return float64(n)/float64(experts*size) + 0.5
}

// layRows gives rows their places by counting: how many rows before this one go to
// the same expert. expert s32 [n] is that of each row, of experts; any other number
// stands for none.
func layRows(expert *graph.Value, experts, size int) layout {
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
	filled := graph.GreaterEqual(row, one(0))
	return layout{slot, graph.Max(row, one(0)), graph.Convert(filled, dtype.F32), expertBlocks{size, graph.Sub(end, blocks), blocks, meanBlocks(n, experts, size)}}
}

// countRows tells of every row, given its expert s32 [n], how many rows before it
// go to the same one: rank s32 [n], -1 for a row of no expert; and counts s32 [E]
// of rows by expert. hot s32 [n, E] is 1 where a row goes.
func countRows(expert *graph.Value, experts int) (hot, counts, rank *graph.Value) {
	b, n := expert.Builder(), expert.Dim(0)
	hot = graph.Convert(graph.Equal(graph.ExpandDims(expert, -1), b.Iota(graph.T(dtype.S32, n, experts), 1)), dtype.S32)
	upTo := countUp(hot)
	counts = graph.Reshape(graph.SliceDim(upTo, 0, n-1, n), experts)
	return hot, counts, graph.AddScalar(graph.Sum(graph.Mul(upTo, hot), -1), -1)
}

// countUp is the running sum along dimension 0 of [N, E], in two levels: within
// chunks as a product with a triangle of ones, then over the chunks' totals.
func countUp(hot *graph.Value) *graph.Value {
	const chunk = 128
	n, e := hot.Dim(0), hot.Dim(1)
	if n%chunk != 0 || n <= chunk {
		return graph.Cumsum(hot, 0)
	}
	b := hot.Builder()
	t := graph.T(dtype.S32, chunk, chunk)
	triangle := graph.Convert(graph.GreaterEqual(b.Iota(t, 0), b.Iota(t, 1)), dtype.F32)
	x := graph.Reshape(graph.Convert(hot, dtype.F32), n/chunk, chunk, e)
	within := graph.Convert(graph.Einsum("ij,cje->cie", triangle, x, graph.WithPrecision(graph.Highest)), dtype.S32) // exact: counts are below 2^24
	totals := graph.Reshape(graph.SliceDim(within, 1, chunk-1, chunk), n/chunk, e)
	before := graph.Cumsum(totals, 0, graph.Exclusive())
	return graph.Reshape(graph.Add(within, graph.ExpandDims(before, 1)), n, e)
}

// ffn holds matrices of experts: gate and up [E, D, F], down [E, F, D].
type ffn [3]*graph.Value

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

// swiglu is what the backward pass of an expert makes of a block: x [n, D], ct
// [n, D], the products of the gate and up matrices [n, F], all in the compute type.
type swiglu struct{ silu, dSilu, gate, up *graph.Value }

// newSwiglu takes the products gate and up [n, F].
func newSwiglu(gate, up *graph.Value) swiglu {
	g := graph.Convert(gate, dtype.F32)
	s := graph.Logistic(g)
	one := g.Builder().Scalar(dtype.F32, 1)
	return swiglu{graph.Mul(g, s), graph.Mul(s, graph.Add(one, graph.Mul(g, graph.Sub(one, s)))), g, graph.Convert(up, dtype.F32)}
}

// hidden is what the down matrix is multiplied with, in d.
func (a swiglu) hidden(d dtype.DType) *graph.Value {
	return graph.Convert(graph.Mul(a.silu, a.up), d)
}

// backward returns the gradients of x, in x's type, and of the matrices, added to
// sums, given dh f32 [n, F], the gradient of hidden, and that of the rows dy.
func (a swiglu) backward(x, dy, dh *graph.Value, w, sums ffn) (dx *graph.Value, next ffn) {
	d, as32 := x.DType(), graph.As(dtype.F32)
	du := graph.Convert(graph.Mul(dh, a.silu), d)
	dg := graph.Convert(graph.Mul(graph.Mul(dh, a.up), a.dSilu), d)
	dx = graph.Convert(graph.Add(graph.Einsum("bf,df->bd", dg, w[0], as32), graph.Einsum("bf,df->bd", du, w[1], as32)), d)
	return dx, ffn{
		graph.Add(sums[0], graph.Einsum("bd,bf->df", x, dg, as32)),
		graph.Add(sums[1], graph.Einsum("bd,bf->df", x, du, as32)),
		graph.Add(sums[2], graph.Einsum("bf,bd->fd", a.hidden(d), dy, as32)),
	}
}
