package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// loopedBlocks loops over blocks of queries and, for each, over the blocks of
// keys that it sees, with running maxima and sums. Memory grows with the numbers
// of queries and keys, the program does not. Both, and the chunks of a piece, are
// multiples of size.
type loopedBlocks struct{ size int }

// at takes the block of rows along dim.
func (l loopedBlocks) at(x *graph.Value, dim int, i *graph.Value) *graph.Value {
	return graph.DynamicSliceDim(x, dim, l.start(i), l.size)
}

func (l loopedBlocks) start(i *graph.Value) *graph.Value {
	return graph.Mul(i, i.Builder().Int(dtype.S32, int64(l.size)))
}

// place returns which block of the keys lies where block i of the queries does.
func (l loopedBlocks) place(p piece, i *graph.Value) *graph.Value {
	if p.all || p.chunks == nil {
		return i
	}
	chunk := i.Builder().Int(dtype.S32, int64(p.q.Dim(2)/2/l.size)) // in blocks
	return graph.Select(graph.Less(i, chunk),
		graph.Add(graph.Mul(p.chunks[0], chunk), i),
		graph.Add(graph.Mul(p.chunks[1], chunk), graph.Sub(i, chunk)))
}

// first returns the first block of the queries that sees block j of the keys; all
// further ones do as well.
func (l loopedBlocks) first(p piece, j *graph.Value) *graph.Value {
	b := j.Builder()
	zero := b.Int(dtype.S32, 0)
	switch {
	case p.all:
		return zero
	case p.chunks == nil:
		return j
	}
	chunk := b.Int(dtype.S32, int64(p.q.Dim(2)/2/l.size))
	before := func(number *graph.Value) *graph.Value { // blocks of a chunk that lie before j
		return graph.Min(graph.Max(graph.Sub(j, graph.Mul(number, chunk)), zero), chunk)
	}
	return graph.Add(before(p.chunks[0]), before(p.chunks[1]))
}

// pairs is how many blocks of queries and keys meet; on all devices together, if
// the queries are two chunks of the keys, in the mean.
func (l loopedBlocks) pairs(p piece) float64 {
	queries, keys := float64(p.q.Dim(2)/l.size), float64(p.k.Dim(1)/l.size)
	if p.all {
		return queries * keys
	}
	return queries * (keys + 1) / 2
}

// mask masks the scores of block i of the queries, along qDim, with block j of
// the keys, along kDim.
func (l loopedBlocks) mask(p piece, scores, i *graph.Value, qDim int, j *graph.Value, kDim int) *graph.Value {
	b := scores.Builder()
	if !p.all {
		t := graph.T(dtype.S32, scores.Shape()...)
		ahead := graph.GreaterEqual(graph.Add(b.Iota(t, qDim), l.start(l.place(p, i))), graph.Add(b.Iota(t, kDim), l.start(j)))
		scores = graph.Select(ahead, scores, b.Scalar(dtype.F32, masked))
	}
	if p.qSegments != nil {
		scores = sameSegment(scores, l.at(p.qSegments, 1, i), qDim, l.at(p.kSegments, 1, j), kDim)
	}
	return scores
}

// blockNumbers returns s32 0, 1, …, n-1 to scan over.
func blockNumbers(b *graph.Builder, n int) *graph.Value { return b.Iota(graph.T(dtype.S32, n), 0) }

func (l loopedBlocks) forward(p piece, as dtype.DType) (out, lse *graph.Value) {
	q, k, v := p.q, p.k, p.v
	b := q.Builder()
	G, R, Q, h := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	n := Q / l.size
	_, ys := b.Scan(nil, []*graph.Value{blockNumbers(b, n)}, func(_, x []*graph.Value) (next, ys []*graph.Value) {
		i := x[0]
		last := l.place(p, i)
		if p.all {
			last = b.Int(dtype.S32, int64(k.Dim(1)/l.size-1))
		}
		qi := l.at(q, 2, i)
		like := graph.ZerosLike(graph.Convert(qi, dtype.F32)) // differs from device to device as q does
		row := graph.Sum(like, 3)
		init := []*graph.Value{b.Int(dtype.S32, 0), graph.AddScalar(row, masked), row, like}
		c := b.While(init,
			func(c []*graph.Value) *graph.Value { return graph.LessEqual(c[0], last) },
			func(c []*graph.Value) []*graph.Value {
				j, most, sum, acc := c[0], c[1], c[2], c[3]
				s := graph.Einsum("grqh,gkh->grqk", qi, l.at(k, 1, j), graph.As(dtype.F32))
				s = l.mask(p, s, i, 2, j, 3)
				now := graph.Max(most, graph.ReduceMax(s, 3))
				e := graph.Exp(graph.Sub(s, graph.ExpandDims(now, 3)))
				fade := graph.Exp(graph.Sub(most, now))
				o := graph.Einsum("grqk,gkh->grqh", graph.Convert(e, v.DType()), l.at(v, 1, j), graph.As(dtype.F32))
				return []*graph.Value{
					graph.Add(j, b.Int(dtype.S32, 1)), now,
					graph.Add(graph.Mul(sum, fade), graph.Sum(e, 3)),
					graph.Add(graph.Mul(acc, graph.ExpandDims(fade, 3)), o),
				}
			}, graph.ExpectedTrips(l.pairs(p)/float64(n)))
		o := graph.Convert(graph.Div(c[3], graph.ExpandDims(c[2], 3)), as)
		return nil, []*graph.Value{o, graph.Add(c[1], graph.Log(c[2]))}
	})
	out = graph.Reshape(graph.Transpose(ys[0], 1, 2, 0, 3, 4), G, R, Q, h)
	lse = graph.Reshape(graph.Transpose(ys[1], 1, 2, 0, 3), G, R, Q)
	return out, lse
}

func (l loopedBlocks) backward(p piece, lse, delta, ct *graph.Value) []*graph.Value {
	q, k, v := p.q, p.k, p.v
	b := q.Builder()
	n := q.Dim(2) / l.size
	carry, ys := b.Scan([]*graph.Value{graph.ZerosLike(graph.Convert(q, dtype.F32))}, []*graph.Value{blockNumbers(b, k.Dim(1)/l.size)},
		func(carry, x []*graph.Value) (next, ys []*graph.Value) {
			j := x[0]
			kj, vj := l.at(k, 1, j), l.at(v, 1, j)
			zero := graph.ZerosLike(graph.Convert(kj, dtype.F32))
			c := b.While([]*graph.Value{l.first(p, j), carry[0], zero, zero},
				func(c []*graph.Value) *graph.Value { return graph.Less(c[0], b.Int(dtype.S32, int64(n))) },
				func(c []*graph.Value) []*graph.Value {
					i, dq, dk, dv := c[0], c[1], c[2], c[3]
					qi, cti := l.at(q, 2, i), l.at(ct, 2, i)
					row := func(x *graph.Value) *graph.Value { return graph.ExpandDims(l.at(x, 2, i), 1) }
					s := l.mask(p, graph.Einsum("gkh,grqh->gkrq", kj, qi, graph.As(dtype.F32)), i, 3, j, 1)
					e := graph.Exp(graph.Sub(s, row(lse)))
					dp := graph.Einsum("gkh,grqh->gkrq", vj, cti, graph.As(dtype.F32))
					ds := graph.Convert(graph.Mul(e, graph.Sub(dp, row(delta))), q.DType())
					dv = graph.Add(dv, graph.Einsum("gkrq,grqh->gkh", graph.Convert(e, v.DType()), cti, graph.As(dtype.F32)))
					dk = graph.Add(dk, graph.Einsum("gkrq,grqh->gkh", ds, qi, graph.As(dtype.F32)))
					dqi := graph.Add(l.at(dq, 2, i), graph.Einsum("gkrq,gkh->grqh", ds, kj, graph.As(dtype.F32)))
					dq = graph.DynamicUpdateSliceDim(dq, dqi, 2, l.start(i))
					return []*graph.Value{graph.Add(i, b.Int(dtype.S32, 1)), dq, dk, dv}
				}, graph.ExpectedTrips(l.pairs(p)/float64(k.Dim(1)/l.size)))
			return []*graph.Value{c[1]}, []*graph.Value{c[2], c[3]}
		})
	whole := func(y *graph.Value) *graph.Value { return graph.Reshape(graph.Transpose(y, 1, 0, 2, 3), k.Shape()...) }
	return []*graph.Value{carry[0], whole(ys[0]), whole(ys[1])}
}
