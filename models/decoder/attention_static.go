package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// staticBlocks writes every block out: block i of the queries meets the keys of
// blocks 0 to i only, or all of them. It knows no chunks.
type staticBlocks struct{ size int }

// spans returns the blocks of S as [from, to) pairs.
func (s staticBlocks) spans(S int) [][2]int {
	var out [][2]int
	for at := 0; at < S; at += s.size {
		out = append(out, [2]int{at, min(at+s.size, S)})
	}
	return out
}

func (s staticBlocks) forward(p piece, as dtype.DType) (out, lse *graph.Value) {
	var outs, lses []*graph.Value
	for _, span := range s.spans(p.q.Dim(2)) {
		lo, hi := span[0], span[1]
		seen := hi
		if p.all {
			seen = p.k.Dim(1)
		}
		keys, values := graph.SliceDim(p.k, 1, 0, seen), graph.SliceDim(p.v, 1, 0, seen)
		scores := graph.Einsum("grqh,gkh->grqk", graph.SliceDim(p.q, 2, lo, hi), keys, graph.As(dtype.F32))
		if !p.all {
			scores = causal(scores, 2, lo, 3, 0)
		}
		if p.qSegments != nil {
			scores = sameSegment(scores, graph.SliceDim(p.qSegments, 1, lo, hi), 2, graph.SliceDim(p.kSegments, 1, 0, seen), 3)
		}
		most := graph.ReduceMax(scores, 3)
		e := graph.Exp(graph.Sub(scores, graph.ExpandDims(most, 3)))
		sum := graph.Sum(e, 3)
		o := graph.Einsum("grqk,gkh->grqh", graph.Convert(e, p.v.DType()), values, graph.As(dtype.F32))
		outs = append(outs, graph.Convert(graph.Div(o, graph.ExpandDims(sum, 3)), as))
		lses = append(lses, graph.Add(most, graph.Log(sum)))
	}
	return graph.Concat(2, outs...), graph.Concat(2, lses...)
}

// backward goes through blocks of keys. Scores are made as [keys, queries], so
// that the products for k and v need no transposed operand; the one for q gives
// its transpose.
func (s staticBlocks) backward(p piece, lse, delta, ct *graph.Value) []*graph.Value {
	Q := p.q.Dim(2)
	queries := s.spans(Q)
	parts := make([][]*graph.Value, len(queries)) // transposed cotangents of q, for each block of queries
	var dks, dvs []*graph.Value
	for j, span := range s.spans(p.k.Dim(1)) {
		lo, hi := span[0], span[1]
		first, from := j, lo // the first block of queries that sees the keys, and where it starts
		if p.all {
			first, from = 0, 0
		}
		kj, vj := graph.SliceDim(p.k, 1, lo, hi), graph.SliceDim(p.v, 1, lo, hi)
		qs, cts := graph.SliceDim(p.q, 2, from, Q), graph.SliceDim(ct, 2, from, Q)
		row := func(x *graph.Value) *graph.Value { return graph.ExpandDims(graph.SliceDim(x, 2, from, Q), 1) }
		scores := graph.Einsum("gkh,grqh->gkrq", kj, qs, graph.As(dtype.F32))
		if !p.all {
			scores = causal(scores, 3, from, 1, lo)
		}
		if p.qSegments != nil {
			scores = sameSegment(scores, graph.SliceDim(p.qSegments, 1, from, Q), 3, graph.SliceDim(p.kSegments, 1, lo, hi), 1)
		}
		e := graph.Exp(graph.Sub(scores, row(lse)))
		dp := graph.Einsum("gkh,grqh->gkrq", vj, cts, graph.As(dtype.F32))
		ds := graph.Convert(graph.Mul(e, graph.Sub(dp, row(delta))), p.q.DType())
		dvs = append(dvs, graph.Einsum("gkrq,grqh->gkh", graph.Convert(e, p.v.DType()), cts, graph.As(dtype.F32)))
		dks = append(dks, graph.Einsum("gkrq,grqh->gkh", ds, qs, graph.As(dtype.F32)))
		dq := graph.Einsum("gkh,gkrq->ghrq", kj, ds, graph.As(dtype.F32))
		for i := first; i < len(queries); i++ {
			parts[i] = append(parts[i], graph.SliceDim(dq, 3, queries[i][0]-from, queries[i][1]-from))
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
	return []*graph.Value{dq, graph.Concat(1, dks...), graph.Concat(1, dvs...)}
}

// sameSegment masks scores where the query's segment (s32 [G, Q], along qDim of
// the scores) is not the key's.
func sameSegment(scores, q *graph.Value, qDim int, k *graph.Value, kDim int) *graph.Value {
	same := graph.Equal(
		graph.BroadcastInDim(q, scores.Shape(), []int{0, qDim}),
		graph.BroadcastInDim(k, scores.Shape(), []int{0, kDim}))
	return graph.Select(same, scores, scores.Builder().Scalar(dtype.F32, masked))
}
