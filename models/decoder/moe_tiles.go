package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
	"titan/kernels"
)

// expertTiles multiplies rows sorted by expert by tile kernels (kernels.GroupedMatmul);
// rows of no expert, which are last, come out as zeros.
type expertTiles struct {
	sizes   *graph.Value // s32 [E]: rows of each expert
	options kernels.GroupedOptions
}

func (l expertTiles) values() []*graph.Value { return []*graph.Value{l.sizes} }

func (l expertTiles) with(v []*graph.Value) expertProducts { return expertTiles{v[0], l.options} }

// product multiplies rows by their experts' matrices or, transposed, by the transposed
// ones.
func (l expertTiles) product(rows, w *graph.Value, transposed bool) *graph.Value {
	return kernels.GroupedProduct(rows, w, l.sizes, transposed, l.options)
}

func (l expertTiles) forward(xs *graph.Value, w ffn) (ys, gate, up *graph.Value) {
	gate, up = l.product(xs, w[0], false), l.product(xs, w[1], false)
	return l.product(graph.Mul(graph.Silu(gate), up), w[2], false), gate, up
}

func (l expertTiles) backward(xs, cts, shares, gate, up *graph.Value, w, sums ffn) (dxs, dshares *graph.Value, dw ffn) {
	d := xs.DType()
	f32 := func(x *graph.Value) *graph.Value { return graph.Convert(x, dtype.F32) }
	if gate == nil {
		gate, up = l.product(xs, w[0], false), l.product(xs, w[1], false)
	}
	act, share := newSwiglu(gate, up), graph.ExpandDims(shares, -1)
	dh := f32(l.product(cts, w[2], true)) // but for the weight; see expertBlocks.backward
	h := graph.Mul(act.silu, act.up)
	dshares = graph.Sum(graph.Mul(dh, h), -1)
	dg, du := act.backward(graph.Mul(dh, share), d)
	dxs = kernels.GroupedSum([]*graph.Value{dg, du}, []*graph.Value{w[0], w[1]}, l.sizes, true, l.options)
	add := func(i int, rows, cts *graph.Value) {
		dw[i] = kernels.GroupedGradient(rows, cts, l.sizes, l.options)
		if sums[i] != nil {
			dw[i] = graph.Add(sums[i], dw[i])
		}
	}
	add(0, xs, dg)
	add(1, xs, du)
	// The weight goes to h, which is narrower than cts as a rule.
	add(2, graph.Convert(graph.Mul(h, share), d), cts)
	return dxs, dshares, dw
}

// sortedRows sorts as countedRows does, but in memory that does not grow with the
// number of experts.
func sortedRows(expert *graph.Value, experts int) sorted {
	b, n := expert.Builder(), expert.Dim(0)
	order := rowOrder(expert, experts)
	hot := graph.Equal(graph.ExpandDims(expert, -1), b.Iota(graph.T(dtype.S32, n, experts), 1))
	return sorted{order, graph.Argsort(order, 0, graph.Unstable()), graph.Sum(graph.Convert(hot, dtype.S32), 0)}
}

// rowOrder is the order of rows by expert s32 [n]. One array to sort is faster than
// two, and so is not having to keep equal ones in order.
func rowOrder(expert *graph.Value, experts int) *graph.Value {
	n := expert.Dim(0)
	if experts > math.MaxInt32/n {
		return graph.Argsort(expert, 0)
	}
	b := expert.Builder()
	N := b.Int(dtype.S32, int64(n))
	keys := graph.Add(graph.Mul(expert, N), b.Iota(graph.T(dtype.S32, n), 0))
	return graph.Rem(graph.Sort(keys, 0, graph.Unstable()), N)
}

// stepped gives, for every x s32 [n], the value of the last of some steps that begin
// at or before it: at and value s32 [m], at ascending and not above the first x's.
func stepped(x, at, value *graph.Value) *graph.Value {
	m := value.Dim(0)
	first := value.Builder().Zeros(graph.T(dtype.S32, 1))
	jump := graph.Sub(value, graph.Concat(0, first, graph.SliceDim(value, 0, 0, m-1)))
	past := graph.Convert(graph.GreaterEqual(graph.ExpandDims(x, -1), at), dtype.S32)
	return graph.Sum(graph.Mul(past, jump), -1)
}
