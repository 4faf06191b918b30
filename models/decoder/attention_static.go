package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// staticBlocks writes every block out: block i of the queries meets the keys of
// blocks 0 to i only.
type staticBlocks struct{ size int }

// spans returns the blocks of S as [from, to) pairs.
func (s staticBlocks) spans(S int) [][2]int {
	var out [][2]int
	for at := 0; at < S; at += s.size {
		out = append(out, [2]int{at, min(at+s.size, S)})
	}
	return out
}

func (s staticBlocks) forward(args []*graph.Value) (out, lse *graph.Value) {
	q, k, v := args[0], args[1], args[2]
	var outs, lses []*graph.Value
	for _, span := range s.spans(q.Dim(2)) {
		lo, hi := span[0], span[1]
		keys, values := graph.SliceDim(k, 1, 0, hi), graph.SliceDim(v, 1, 0, hi)
		scores := graph.Einsum("grqh,gkh->grqk", graph.SliceDim(q, 2, lo, hi), keys, graph.As(dtype.F32))
		scores = causal(scores, 2, lo, 3, 0)
		if len(args) > 3 {
			scores = sameSegment(scores, graph.SliceDim(args[3], 1, lo, hi), 2, graph.SliceDim(args[3], 1, 0, hi), 3)
		}
		most := graph.ReduceMax(scores, 3)
		p := graph.Exp(graph.Sub(scores, graph.ExpandDims(most, 3)))
		sum := graph.Sum(p, 3)
		o := graph.Einsum("grqk,gkh->grqh", graph.Convert(p, v.DType()), values, graph.As(dtype.F32))
		outs = append(outs, graph.Convert(graph.Div(o, graph.ExpandDims(sum, 3)), v.DType()))
		lses = append(lses, graph.Add(most, graph.Log(sum)))
	}
	return graph.Concat(2, outs...), graph.Concat(2, lses...)
}

// backward goes through blocks of keys. Scores are made as [keys, queries], so
// that the products for k and v need no transposed operand; the one for q gives
// its transpose.
func (s staticBlocks) backward(args []*graph.Value, out, lse, ct *graph.Value) []*graph.Value {
	q, k, v := args[0], args[1], args[2]
	S := q.Dim(2)
	delta := graph.Sum(graph.Mul(graph.Convert(out, dtype.F32), graph.Convert(ct, dtype.F32)), 3)
	ct = graph.Convert(ct, v.DType())
	spans := s.spans(S)
	parts := make([][]*graph.Value, len(spans)) // transposed cotangents of q, for each block of queries
	var dks, dvs []*graph.Value
	for j, span := range spans {
		lo, hi := span[0], span[1]
		kj, vj := graph.SliceDim(k, 1, lo, hi), graph.SliceDim(v, 1, lo, hi)
		qs, cts := graph.SliceDim(q, 2, lo, S), graph.SliceDim(ct, 2, lo, S)
		row := func(x *graph.Value) *graph.Value { return graph.ExpandDims(graph.SliceDim(x, 2, lo, S), 1) }
		scores := graph.Einsum("gkh,grqh->gkrq", kj, qs, graph.As(dtype.F32))
		scores = causal(scores, 3, lo, 1, lo)
		if len(args) > 3 {
			scores = sameSegment(scores, graph.SliceDim(args[3], 1, lo, S), 3, graph.SliceDim(args[3], 1, lo, hi), 1)
		}
		p := graph.Exp(graph.Sub(scores, row(lse)))
		dp := graph.Einsum("gkh,grqh->gkrq", vj, cts, graph.As(dtype.F32))
		ds := graph.Convert(graph.Mul(p, graph.Sub(dp, row(delta))), q.DType())
		dvs = append(dvs, graph.Einsum("gkrq,grqh->gkh", graph.Convert(p, v.DType()), cts, graph.As(dtype.F32)))
		dks = append(dks, graph.Einsum("gkrq,grqh->gkh", ds, qs, graph.As(dtype.F32)))
		dq := graph.Einsum("gkh,gkrq->ghrq", kj, ds, graph.As(dtype.F32))
		for i := j; i < len(spans); i++ {
			parts[i] = append(parts[i], graph.SliceDim(dq, 3, spans[i][0]-lo, spans[i][1]-lo))
		}
	}
	dqs := make([]*graph.Value, len(parts))
	for i, p := range parts {
		sum := p[0]
		for _, x := range p[1:] {
			sum = graph.Add(sum, x)
		}
		dqs[i] = sum
	}
	dq := graph.Transpose(graph.Concat(3, dqs...), 0, 2, 3, 1)
	return []*graph.Value{
		graph.Convert(dq, q.DType()), graph.Convert(graph.Concat(1, dks...), k.DType()), graph.Convert(graph.Concat(1, dvs...), v.DType()),
	}
}

// sameSegment masks scores where the query's segment (s32 [G, Q], along qDim of
// the scores) is not the key's.
func sameSegment(scores, q *graph.Value, qDim int, k *graph.Value, kDim int) *graph.Value {
	same := graph.Equal(
		graph.BroadcastInDim(q, scores.Shape(), []int{0, qDim}),
		graph.BroadcastInDim(k, scores.Shape(), []int{0, kDim}))
	return graph.Select(same, scores, scores.Builder().Scalar(dtype.F32, masked))
}
