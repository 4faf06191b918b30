package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// layout says where rows go that are multiplied by their expert's matrices, and how
// they are multiplied there.
type layout struct {
	slot *graph.Value // s32 [n]: the place of each row; any for one of no expert
	row  *graph.Value // s32 [M]: the row at each place; any where there is none
	by   expertProducts
}

// values lists what code with a derivative of its own takes as arguments; with makes
// the same layout of them.
func (l layout) values() []*graph.Value {
	return append([]*graph.Value{l.slot, l.row}, l.by.values()...)
}

func (l layout) with(v []*graph.Value) layout { return layout{v[0], v[1], l.by.with(v[2:])} }

// expertProducts multiplies rows, which lie by expert, by their experts' matrices.
type expertProducts interface {
	// forward takes rows xs [M, D] and returns what experts make of them, ys [M, D],
	// and the products with gate and up matrices [M, F], all in xs's type.
	forward(xs *graph.Value, w ffn) (ys, gate, up *graph.Value)
	// backward takes cotangents cts [M, D] of ys but for the weights shares f32 [M] by
	// which ys are added up, and gate and up; nil ones are computed again. It returns
	// the gradients of xs, in xs's type, of shares, f32 [M], and of the matrices, f32,
	// added to sums unless these are nil.
	backward(xs, cts, shares, gate, up *graph.Value, w, sums ffn) (dxs, dshares *graph.Value, dw ffn)
	values() []*graph.Value
	with(values []*graph.Value) expertProducts
}

// sumOfChoices adds up, for each of N tokens, the k of rows [M, D] at slot s32 [N·k] by
// weights f32 [N, k], in f32. What is added lies apart, a token's first row in the first
// of k arrays, since the vector units of a TPU add arrays faster than rows of one.
func sumOfChoices(rows, slot, weights *graph.Value) *graph.Value {
	N, k := weights.Dim(0), weights.Dim(1)
	at := graph.Reshape(graph.Transpose(graph.Reshape(slot, N, k), 1, 0), k*N)
	parts := graph.Convert(graph.Reshape(graph.Take(rows, at, 0), k, N, rows.Dim(1)), dtype.F32)
	return graph.Sum(graph.Mul(parts, graph.ExpandDims(graph.Transpose(weights, 1, 0), -1)), 0)
}

// ffn holds matrices of experts: gate and up [E, D, F], down [E, F, D].
type ffn [3]*graph.Value

// sorted is rows in the order of their experts, those of one expert in their own.
type sorted struct {
	order  *graph.Value // s32 [n]: the row at each place
	place  *graph.Value // s32 [n]: of each row
	counts *graph.Value // s32 [E]: rows of each expert
}

// countedRows sorts by counting: expert s32 [n] is that of each row, of experts.
func countedRows(expert *graph.Value, experts int) sorted {
	b, n := expert.Builder(), expert.Dim(0)
	hot, counts, rank := countRows(expert, experts)
	first := graph.Cumsum(counts, 0, graph.Exclusive())
	place := graph.Add(rank, graph.Sum(graph.Mul(hot, first), -1))
	order := graph.IndexUpdate(b.Zeros(graph.T(dtype.S32, n)), place, b.Iota(graph.T(dtype.S32, n), 0), 0, graph.UniqueIndices())
	return sorted{order, place, counts}
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

// swiglu is what the backward pass of an expert makes of rows: the products of the
// gate and up matrices [n, F], in f32.
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

// backward returns the gradients of the products, in d, given dh f32 [n, F], that of
// hidden.
func (a swiglu) backward(dh *graph.Value, d dtype.DType) (gate, up *graph.Value) {
	return graph.Convert(graph.Mul(graph.Mul(dh, a.up), a.dSilu), d), graph.Convert(graph.Mul(dh, a.silu), d)
}
