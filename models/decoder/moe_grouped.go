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
	names         []string // of gate, up and down
}

// layout says where rows go.
type layout struct {
	slot   *graph.Value // s32 [N·k]: place of each (row, choice) pair
	pair   *graph.Value // s32 [M]: the pair at each place, 0 where there is none
	filled *graph.Value // f32 [M]: 1 where there is one
	first  *graph.Value // s32 [E]: an expert's first block
	blocks *graph.Value // s32 [E]: how many it has
}

func (g groupedFFN) blockRows(pairs int) int {
	if g.block > 0 {
		return min(g.block, pairs)
	}
	// Half of an expert's mean share: padding is half a block each on average.
	// Matrix units want no fewer rows, caches no more.
	size := 16
	for size < 128 && 4*size*g.experts <= pairs {
		size *= 2
	}
	return size
}

// layout gives the rows' places by counting: how many pairs before this one go to
// the same expert.
func (g groupedFFN) layout(experts *graph.Value, size int) layout {
	b := experts.Builder()
	n := experts.Dim(0) * g.topK
	flat := graph.Reshape(experts, n)
	hot := graph.Convert(graph.Equal(graph.ExpandDims(flat, -1), b.Iota(graph.T(dtype.S32, n, g.experts), 1)), dtype.S32)
	upTo := countUp(hot)
	counts := graph.Reshape(graph.SliceDim(upTo, 0, n-1, n), g.experts)
	rank := graph.AddScalar(graph.Sum(graph.Mul(upTo, hot), -1), -1)
	one := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	blocks := graph.Div(graph.Add(counts, one(size-1)), one(size))
	end := graph.Cumsum(blocks, 0) // in blocks
	start := graph.Mul(graph.Sub(end, blocks), one(size))
	slot := graph.Add(rank, graph.Sum(graph.Mul(hot, start), -1))

	total := (n+size-1)/size + g.experts
	pair := graph.IndexUpdate(b.Full(graph.T(dtype.S32, total*size), -1), slot, b.Iota(graph.T(dtype.S32, n), 0), 0, graph.UniqueIndices())
	filled := graph.GreaterEqual(pair, one(0))
	return layout{slot, graph.Max(pair, one(0)), graph.Convert(filled, dtype.F32), graph.Sub(end, blocks), blocks}
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

// apply takes rows x [N, D], weights f32 [N, k], experts s32 [N, k], and the
// stored expert matrices.
func (g groupedFFN) apply(x, weights, experts, gate, up, down *graph.Value) *graph.Value {
	N, D, k := x.Dim(0), x.Dim(1), g.topK
	size := g.blockRows(N * k)
	l := g.layout(experts, size)
	M := l.pair.Dim(0)
	b := x.Builder()
	row := func(pair *graph.Value) *graph.Value {
		return graph.Div(pair, b.Int(dtype.S32, int64(k)))
	}
	f32 := func(v *graph.Value) *graph.Value { return graph.Convert(v, dtype.F32) }
	as32 := graph.As(dtype.F32)
	zeros := func(d dtype.DType, shape ...int) *graph.Value { return b.Zeros(graph.T(d, shape...)) }

	forward := func(a []*graph.Value) (outs, residuals []*graph.Value) {
		x, weights, slot, pair, first, blocks := a[0], a[1], a[2], a[3], a[5], a[6]
		wg, wu, wd := g.place.Gather(a[7], g.names[0]), g.place.Gather(a[8], g.names[1]), g.place.Gather(a[9], g.names[2])
		F := wg.Dim(2) // whole, whichever dimension is stored in parts
		xs := graph.Take(x, row(pair), 0)
		d := x.DType()
		init := []*graph.Value{zeros(d, M, D), zeros(d, M, F), zeros(d, M, F)}
		res, _ := b.Scan(init, []*graph.Value{wg, wu, wd, first, blocks}, func(c, e []*graph.Value) (next, ys []*graph.Value) {
			return eachBlock(e[3], e[4], size, c, func(c []*graph.Value, at *graph.Value) []*graph.Value {
				rows := graph.DynamicSliceDim(xs, 0, at, size)
				gt := graph.Einsum("bd,df->bf", rows, e[0])
				ut := graph.Einsum("bd,df->bf", rows, e[1])
				y := graph.Einsum("bf,fd->bd", graph.Mul(graph.Silu(gt), ut), e[2])
				return []*graph.Value{
					graph.DynamicUpdateSliceDim(c[0], y, 0, at), graph.DynamicUpdateSliceDim(c[1], gt, 0, at), graph.DynamicUpdateSliceDim(c[2], ut, 0, at),
				}
			}), nil
		})
		y := res[0]
		picked := graph.Reshape(graph.Take(y, slot, 0), N, k, D)
		out := graph.Convert(graph.Sum(graph.Mul(f32(picked), graph.ExpandDims(weights, -1)), 1), d)
		return []*graph.Value{out}, append(append(residuals, a...), res...)
	}
	backward := func(res, cts []*graph.Value) []*graph.Value {
		x, weights, slot, pair, filled, first, blocks := res[0], res[1], res[2], res[3], res[4], res[5], res[6]
		wg, wu, wd := g.place.Gather(res[7], g.names[0]), g.place.Gather(res[8], g.names[1]), g.place.Gather(res[9], g.names[2])
		y, gts, uts := res[10], res[11], res[12]
		F, d := wg.Dim(2), x.DType()
		ct := graph.Convert(cts[0], d)
		picked := graph.Reshape(graph.Take(y, slot, 0), N, k, D)
		dw := graph.Sum(graph.Mul(f32(picked), graph.ExpandDims(f32(ct), 1)), -1)

		share := graph.Mul(graph.Take(graph.Reshape(weights, N*k), pair, 0), filled) // padding has none
		dys := graph.Mul(graph.Take(ct, row(pair), 0), graph.Convert(graph.ExpandDims(share, -1), d))
		xs := graph.Take(x, row(pair), 0)
		one := b.Scalar(dtype.F32, 1)
		dxs, sums := b.Scan([]*graph.Value{zeros(d, M, D)}, []*graph.Value{wg, wu, wd, first, blocks}, func(c, e []*graph.Value) (next, ys []*graph.Value) {
			init := []*graph.Value{c[0], zeros(dtype.F32, D, F), zeros(dtype.F32, D, F), zeros(dtype.F32, F, D)}
			out := eachBlock(e[3], e[4], size, init, func(c []*graph.Value, at *graph.Value) []*graph.Value {
				of := func(v *graph.Value) *graph.Value { return graph.DynamicSliceDim(v, 0, at, size) }
				xb, dy, gt, ut := of(xs), of(dys), f32(of(gts)), f32(of(uts))
				s := graph.Logistic(gt)
				silu := graph.Mul(gt, s)
				dh := graph.Einsum("bd,fd->bf", dy, e[2], as32)
				du := graph.Convert(graph.Mul(dh, silu), d)
				dSilu := graph.Mul(s, graph.Add(one, graph.Mul(gt, graph.Sub(one, s))))
				dg := graph.Convert(graph.Mul(graph.Mul(dh, ut), dSilu), d)
				h := graph.Convert(graph.Mul(silu, ut), d)
				dx := graph.Add(graph.Einsum("bf,df->bd", dg, e[0], as32), graph.Einsum("bf,df->bd", du, e[1], as32))
				return []*graph.Value{
					graph.DynamicUpdateSliceDim(c[0], graph.Convert(dx, d), 0, at),
					graph.Add(c[1], graph.Einsum("bd,bf->df", xb, dg, as32)),
					graph.Add(c[2], graph.Einsum("bd,bf->df", xb, du, as32)),
					graph.Add(c[3], graph.Einsum("bf,bd->fd", h, dy, as32)),
				}
			})
			return out[:1], out[1:]
		})
		parts := graph.Reshape(graph.Take(dxs[0], slot, 0), N, k, D)
		dx := graph.Convert(graph.Sum(f32(parts), 1), d)
		return []*graph.Value{
			dx, dw, nil, nil, nil, nil, nil,
			g.place.Scatter(sums[0], g.names[0]), g.place.Scatter(sums[1], g.names[1]), g.place.Scatter(sums[2], g.names[2]),
		}
	}
	return graph.CustomVJP([]*graph.Value{x, weights, l.slot, l.pair, l.filled, l.first, l.blocks, gate, up, down}, forward, backward)[0]
}

// eachBlock runs body for blocks first to first+n-1, given the row each starts at.
func eachBlock(first, n *graph.Value, size int, init []*graph.Value, body func(c []*graph.Value, at *graph.Value) []*graph.Value) []*graph.Value {
	b := n.Builder()
	end := graph.Add(first, n)
	c := b.While(append([]*graph.Value{first}, init...),
		func(c []*graph.Value) *graph.Value { return graph.Less(c[0], end) },
		func(c []*graph.Value) []*graph.Value {
			at := graph.Mul(c[0], b.Int(dtype.S32, int64(size)))
			return append([]*graph.Value{graph.Add(c[0], b.Int(dtype.S32, 1))}, body(c[1:], at)...)
		})
	return c[1:]
}
