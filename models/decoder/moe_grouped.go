package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// groupedFFN applies to every row the SwiGLU layers of its experts and adds them
// up by weight. Nothing is dropped: rows are laid out by expert, each expert's
// padded to whole blocks, and a loop multiplies block after block by the weights
// of the expert it belongs to. It runs on one device's rows.
type groupedFFN struct {
	experts, topK int
	block         int // rows of a block; 0 chooses
	region        Region
	names         []string // of gate, up and down
}

// layout says where rows go.
type layout struct {
	slot   *graph.Value // s32 [N·k]: place of each (row, choice) pair
	pair   *graph.Value // s32 [M]: the pair at each place, 0 where there is none
	filled *graph.Value // f32 [M]: 1 where there is one
	expert *graph.Value // s32 [M/block]: whose a block is
}

func (g groupedFFN) blockRows(pairs int) int {
	if g.block > 0 {
		return min(g.block, pairs)
	}
	// Large enough for the matrix units, small enough that padding (half a block
	// an expert on average) stays small.
	size := 256
	for size > 16 && 8*size*g.experts > pairs {
		size /= 2
	}
	return size
}

// place gives the rows' places by counting: how many pairs before this one go to
// the same expert.
func (g groupedFFN) place(experts *graph.Value, size int) layout {
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
	number := graph.ExpandDims(b.Iota(graph.T(dtype.S32, total), 0), -1)
	expert := graph.Sum(graph.Convert(graph.GreaterEqual(number, end), dtype.S32), -1)
	return layout{slot, graph.Max(pair, one(0)), graph.Convert(filled, dtype.F32), graph.Min(expert, one(g.experts-1))}
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
	l := g.place(experts, size)
	blocks := l.expert.Dim(0)
	b := x.Builder()
	byExpert := func(rows *graph.Value) *graph.Value { return graph.Reshape(rows, blocks, size, rows.Dim(1)) }
	row := func(pair *graph.Value) *graph.Value {
		return graph.Div(pair, pair.Builder().Int(dtype.S32, int64(k)))
	}
	of := func(stack, e *graph.Value) *graph.Value {
		return graph.Squeeze(graph.DynamicSliceDim(stack, 0, e, 1), 0)
	}
	f32 := func(v *graph.Value) *graph.Value { return graph.Convert(v, dtype.F32) }

	forward := func(a []*graph.Value) (outs, residuals []*graph.Value) {
		x, weights, slot, pair, filled, expert := a[0], a[1], a[2], a[3], a[4], a[5]
		wg, wu, wd := g.region.Gather(a[6], g.names[0]), g.region.Gather(a[7], g.names[1]), g.region.Gather(a[8], g.names[2])
		xs := byExpert(graph.Take(x, row(pair), 0))
		_, ys := b.Scan(nil, []*graph.Value{xs, expert}, func(_, r []*graph.Value) (next, ys []*graph.Value) {
			gt := graph.Einsum("bd,df->bf", r[0], of(wg, r[1]))
			ut := graph.Einsum("bd,df->bf", r[0], of(wu, r[1]))
			return nil, []*graph.Value{graph.Einsum("bf,fd->bd", graph.Mul(graph.Silu(gt), ut), of(wd, r[1])), gt, ut}
		})
		y := graph.Reshape(ys[0], blocks*size, D)
		picked := graph.Reshape(graph.Take(y, slot, 0), N, k, D)
		out := graph.Convert(graph.Sum(graph.Mul(f32(picked), graph.ExpandDims(weights, -1)), 1), x.DType())
		return []*graph.Value{out}, []*graph.Value{x, weights, slot, pair, filled, expert, a[6], a[7], a[8], y, ys[1], ys[2]}
	}
	backward := func(res, cts []*graph.Value) []*graph.Value {
		x, weights, slot, pair, filled, expert := res[0], res[1], res[2], res[3], res[4], res[5]
		wg, wu, wd := g.region.Gather(res[6], g.names[0]), g.region.Gather(res[7], g.names[1]), g.region.Gather(res[8], g.names[2])
		y, ct := res[9], graph.Convert(cts[0], x.DType())
		picked := graph.Reshape(graph.Take(y, slot, 0), N, k, D)
		dw := graph.Sum(graph.Mul(f32(picked), graph.ExpandDims(f32(ct), 1)), -1)

		share := graph.Mul(graph.Take(graph.Reshape(weights, N*k), pair, 0), filled) // padding has none
		dys := byExpert(graph.Mul(graph.Take(ct, row(pair), 0), graph.Convert(graph.ExpandDims(share, -1), x.DType())))
		xs := byExpert(graph.Take(x, row(pair), 0))
		zero := func(w *graph.Value) *graph.Value { return graph.ZerosLike(f32(w)) }
		add := func(sum, e, part *graph.Value) *graph.Value {
			return graph.DynamicUpdateSliceDim(sum, graph.ExpandDims(graph.Add(of(sum, e), part), 0), 0, e)
		}
		sums, ys := b.Scan([]*graph.Value{zero(wg), zero(wu), zero(wd)}, []*graph.Value{xs, dys, res[10], res[11], expert}, func(c, r []*graph.Value) (next, ys []*graph.Value) {
			xb, dy, gt, ut, e := r[0], r[1], f32(r[2]), f32(r[3]), r[4]
			s := graph.Logistic(gt)
			silu := graph.Mul(gt, s)
			dh := graph.Einsum("bd,fd->bf", dy, of(wd, e), graph.As(dtype.F32))
			du := graph.Convert(graph.Mul(dh, silu), x.DType())
			dSilu := graph.Mul(s, graph.Add(b.Scalar(dtype.F32, 1), graph.Mul(gt, graph.Sub(b.Scalar(dtype.F32, 1), s))))
			dg := graph.Convert(graph.Mul(graph.Mul(dh, ut), dSilu), x.DType())
			h := graph.Convert(graph.Mul(silu, ut), x.DType())
			dx := graph.Add(graph.Einsum("bf,df->bd", dg, of(wg, e), graph.As(dtype.F32)), graph.Einsum("bf,df->bd", du, of(wu, e), graph.As(dtype.F32)))
			as32 := graph.As(dtype.F32)
			return []*graph.Value{
				add(c[0], e, graph.Einsum("bd,bf->df", xb, dg, as32)),
				add(c[1], e, graph.Einsum("bd,bf->df", xb, du, as32)),
				add(c[2], e, graph.Einsum("bf,bd->fd", h, dy, as32)),
			}, []*graph.Value{graph.Convert(dx, x.DType())}
		})
		dxs := graph.Reshape(graph.Take(graph.Reshape(ys[0], blocks*size, D), slot, 0), N, k, D)
		dx := graph.Convert(graph.Sum(f32(dxs), 1), x.DType())
		return []*graph.Value{
			dx, dw, nil, nil, nil, nil,
			g.region.Scatter(sums[0], g.names[0]), g.region.Scatter(sums[1], g.names[1]), g.region.Scatter(sums[2], g.names[2]),
		}
	}
	return graph.CustomVJP([]*graph.Value{x, weights, l.slot, l.pair, l.filled, l.expert, gate, up, down}, forward, backward)[0]
}
