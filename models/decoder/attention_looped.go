package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// loopedBlocks loops over blocks of queries and, for each, over the blocks of
// keys up to it, with running maxima and sums. Memory grows with S, the program
// does not.
type loopedBlocks struct{ size int }

// at takes the block of rows along dim.
func (l loopedBlocks) at(x *graph.Value, dim int, i *graph.Value) *graph.Value {
	return graph.DynamicSliceDim(x, dim, l.start(i), l.size)
}

func (l loopedBlocks) start(i *graph.Value) *graph.Value {
	return graph.Mul(i, i.Builder().Int(dtype.S32, int64(l.size)))
}

// mask masks the scores of block i of the queries, along qDim, with block j of
// the keys, along kDim.
func (l loopedBlocks) mask(args []*graph.Value, scores, i *graph.Value, qDim int, j *graph.Value, kDim int) *graph.Value {
	b := scores.Builder()
	t := graph.T(dtype.S32, scores.Shape()...)
	ahead := graph.GreaterEqual(graph.Add(b.Iota(t, qDim), l.start(i)), graph.Add(b.Iota(t, kDim), l.start(j)))
	scores = graph.Select(ahead, scores, b.Scalar(dtype.F32, masked))
	if len(args) > 3 {
		scores = sameSegment(scores, l.at(args[3], 1, i), qDim, l.at(args[3], 1, j), kDim)
	}
	return scores
}

// blockNumbers returns s32 0, 1, …, n-1 to scan over.
func blockNumbers(b *graph.Builder, n int) *graph.Value { return b.Iota(graph.T(dtype.S32, n), 0) }

func (l loopedBlocks) forward(args []*graph.Value) (out, lse *graph.Value) {
	q, k, v := args[0], args[1], args[2]
	b := q.Builder()
	G, R, S, h := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	n := S / l.size
	_, ys := b.Scan(nil, []*graph.Value{blockNumbers(b, n)}, func(_, x []*graph.Value) (next, ys []*graph.Value) {
		i := x[0]
		qi := l.at(q, 2, i)
		like := graph.ZerosLike(graph.Convert(qi, dtype.F32)) // differs from device to device as q does
		row := graph.Sum(like, 3)
		init := []*graph.Value{b.Int(dtype.S32, 0), graph.AddScalar(row, masked), row, like}
		c := b.While(init,
			func(c []*graph.Value) *graph.Value { return graph.LessEqual(c[0], i) },
			func(c []*graph.Value) []*graph.Value {
				j, most, sum, acc := c[0], c[1], c[2], c[3]
				s := graph.Einsum("grqh,gkh->grqk", qi, l.at(k, 1, j), graph.As(dtype.F32))
				s = l.mask(args, s, i, 2, j, 3)
				now := graph.Max(most, graph.ReduceMax(s, 3))
				p := graph.Exp(graph.Sub(s, graph.ExpandDims(now, 3)))
				fade := graph.Exp(graph.Sub(most, now))
				o := graph.Einsum("grqk,gkh->grqh", graph.Convert(p, v.DType()), l.at(v, 1, j), graph.As(dtype.F32))
				return []*graph.Value{
					graph.Add(j, b.Int(dtype.S32, 1)), now,
					graph.Add(graph.Mul(sum, fade), graph.Sum(p, 3)),
					graph.Add(graph.Mul(acc, graph.ExpandDims(fade, 3)), o),
				}
			})
		o := graph.Convert(graph.Div(c[3], graph.ExpandDims(c[2], 3)), v.DType())
		return nil, []*graph.Value{o, graph.Add(c[1], graph.Log(c[2]))}
	})
	out = graph.Reshape(graph.Transpose(ys[0], 1, 2, 0, 3, 4), G, R, S, h)
	lse = graph.Reshape(graph.Transpose(ys[1], 1, 2, 0, 3), G, R, S)
	return out, lse
}

func (l loopedBlocks) backward(args []*graph.Value, out, lse, ct *graph.Value) []*graph.Value {
	q, k, v := args[0], args[1], args[2]
	b := q.Builder()
	S := q.Dim(2)
	n := S / l.size
	delta := graph.Sum(graph.Mul(graph.Convert(out, dtype.F32), graph.Convert(ct, dtype.F32)), 3)
	ct = graph.Convert(ct, v.DType())
	carry, ys := b.Scan([]*graph.Value{graph.ZerosLike(graph.Convert(q, dtype.F32))}, []*graph.Value{blockNumbers(b, n)},
		func(carry, x []*graph.Value) (next, ys []*graph.Value) {
			j := x[0]
			kj, vj := l.at(k, 1, j), l.at(v, 1, j)
			zero := graph.ZerosLike(graph.Convert(kj, dtype.F32))
			c := b.While([]*graph.Value{j, carry[0], zero, zero},
				func(c []*graph.Value) *graph.Value { return graph.Less(c[0], b.Int(dtype.S32, int64(n))) },
				func(c []*graph.Value) []*graph.Value {
					i, dq, dk, dv := c[0], c[1], c[2], c[3]
					qi, cti := l.at(q, 2, i), l.at(ct, 2, i)
					row := func(x *graph.Value) *graph.Value { return graph.ExpandDims(l.at(x, 2, i), 1) }
					s := l.mask(args, graph.Einsum("gkh,grqh->gkrq", kj, qi, graph.As(dtype.F32)), i, 3, j, 1)
					p := graph.Exp(graph.Sub(s, row(lse)))
					dp := graph.Einsum("gkh,grqh->gkrq", vj, cti, graph.As(dtype.F32))
					ds := graph.Convert(graph.Mul(p, graph.Sub(dp, row(delta))), q.DType())
					dv = graph.Add(dv, graph.Einsum("gkrq,grqh->gkh", graph.Convert(p, v.DType()), cti, graph.As(dtype.F32)))
					dk = graph.Add(dk, graph.Einsum("gkrq,grqh->gkh", ds, qi, graph.As(dtype.F32)))
					dqi := graph.Add(l.at(dq, 2, i), graph.Einsum("gkrq,gkh->grqh", ds, kj, graph.As(dtype.F32)))
					dq = graph.DynamicUpdateSliceDim(dq, dqi, 2, l.start(i))
					return []*graph.Value{graph.Add(i, b.Int(dtype.S32, 1)), dq, dk, dv}
				})
			return []*graph.Value{c[1]}, []*graph.Value{c[2], c[3]}
		})
	whole := func(y *graph.Value, like *graph.Value) *graph.Value {
		return graph.Convert(graph.Reshape(graph.Transpose(y, 1, 0, 2, 3), like.Shape()...), like.DType())
	}
	return []*graph.Value{graph.Convert(carry[0], q.DType()), whole(ys[0], k), whole(ys[1], v)}
}
