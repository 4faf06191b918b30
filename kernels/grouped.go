package kernels

import (
	"titan/dtype"
	"titan/graph"
)

// GroupedOptions say how [GroupedMatmul] runs.
type GroupedOptions struct {
	Target Target
	// Tiles override the table's sizes: of the product, of the gradient of lhs and
	// of that of rhs. Zero fields are chosen.
	Tiles GroupedTiles
	// First, an s32 scalar, is the row at which the first group begins, for devices
	// that hold some of the groups only; nil is 0.
	First *graph.Value
	// Grad is the type in which rhs's gradient is returned, without rounding to any
	// other in between; 0 is f32.
	Grad dtype.DType
	// Rows is how many rows the groups are expected to have together, for the cost; 0
	// is all.
	Rows int
}

// GroupedMatmul multiplies consecutive groups of rows, each by a matrix of its own:
// lhs [M, K], rhs [E, K, N], both f32 or both bf16, sizes s32 [E] → [M, N] of their
// type. Group g's sizes[g] rows follow those of group g−1; sums are in f32. Rows
// that belong to no group come out as zeros, whatever they hold; rows beyond M are
// cut off. Work is in proportion to the rows of the groups.
//
// It has gradients for lhs (zero in rows of no group) and rhs. Like every kernel
// it must be called in a manual region where the mesh has several devices.
func GroupedMatmul(lhs, rhs, sizes *graph.Value, o GroupedOptions) *graph.Value {
	b := lhs.Builder()
	s, ok := groupedShapeOf(lhs.Type(), rhs.Type(), sizes.Type())
	if !ok {
		b.Fail("GroupedMatmul of %v, %v and groups %v: want [M, K], [E, K, N] of one type (f32 or bf16) and s32 [E]", lhs.Type(), rhs.Type(), sizes.Type())
	}
	args := []*graph.Value{lhs, rhs, sizes}
	if o.First != nil {
		if !o.First.Type().Equal(graph.T(dtype.S32)) {
			b.Fail("GroupedMatmul: First has type %v, not s32", o.First.Type())
		}
		args = append(args, o.First)
	}
	with := func(a []*graph.Value) GroupedOptions {
		o := o
		if o.First != nil {
			o.First = a[3]
		}
		return o
	}
	return graph.CustomVJP(args,
		func(a []*graph.Value) (outs, residuals []*graph.Value) {
			return []*graph.Value{groupedProduct(a[:1], a[1:2], a[2], s, with(a), false)}, a
		},
		func(a, cts []*graph.Value) []*graph.Value {
			ct := graph.Convert(cts[0], s.in)
			back := s
			back.K, back.N = s.N, s.K
			dlhs := groupedProduct([]*graph.Value{ct}, a[1:2], a[2], back, with(a), true)
			return []*graph.Value{dlhs, groupedGrad(a[0], ct, a[2], s, with(a)), nil, nil}[:len(args)]
		})[0]
}

// GroupedProduct is [GroupedMatmul] without a derivative, for code that has its own;
// with transposed, rhs is [E, N, K].
func GroupedProduct(lhs, rhs, sizes *graph.Value, transposed bool, o GroupedOptions) *graph.Value {
	return GroupedSum([]*graph.Value{lhs}, []*graph.Value{rhs}, sizes, transposed, o)
}

// GroupedSum adds up what [GroupedProduct] makes of each lhs with its rhs, all of the
// same types, and rounds once.
func GroupedSum(lhs, rhs []*graph.Value, sizes *graph.Value, transposed bool, o GroupedOptions) *graph.Value {
	b := sizes.Builder()
	if len(lhs) == 0 || len(lhs) != len(rhs) {
		b.Fail("GroupedSum of %d arrays of rows with %d of matrices: want as many of both, and one at least", len(lhs), len(rhs))
	}
	var s groupedShape
	for i := range lhs {
		y := rhs[i].Type()
		if transposed && y.Rank() == 3 {
			y = graph.T(y.DType, y.Shape[0], y.Shape[2], y.Shape[1])
		}
		next, ok := groupedShapeOf(lhs[i].Type(), y, sizes.Type())
		if !ok {
			b.Fail("grouped product of %v, %v (transposed: %v) and groups %v: want [M, K], [E, K, N] of one type (f32 or bf16) and s32 [E]", lhs[i].Type(), rhs[i].Type(), transposed, sizes.Type())
		}
		if i > 0 && next != s {
			b.Fail("GroupedSum of %v with %v and of %v with %v: want the same types", lhs[0].Type(), rhs[0].Type(), lhs[i].Type(), rhs[i].Type())
		}
		s = next
	}
	s.products = len(lhs)
	return groupedProduct(lhs, rhs, sizes, s, o, transposed)
}

// GroupedGradient sums lhsᵀ·ct over the rows of each group: lhs [M, K] and ct [M, N],
// both f32 or both bf16, sizes s32 [E] → [E, K, N] in o.Grad. That is the gradient of
// rhs in [GroupedMatmul] where ct is the product's. Groups without rows get zeros.
func GroupedGradient(lhs, ct, sizes *graph.Value, o GroupedOptions) *graph.Value {
	x, y := lhs.Type(), ct.Type()
	var s groupedShape
	ok := x.Rank() == 2 && y.Rank() == 2 && sizes.Type().Rank() == 1 && x.Shape[0] == y.Shape[0]
	if ok {
		s, ok = groupedShapeOf(x, graph.T(y.DType, sizes.Dim(0), x.Shape[1], y.Shape[1]), sizes.Type())
	}
	if !ok {
		lhs.Builder().Fail("GroupedGradient of %v, %v and groups %v: want [M, K], [M, N] of one type (f32 or bf16) and s32 [E]", x, y, sizes.Type())
	}
	return groupedGrad(lhs, ct, sizes, s, o)
}

func groupedShapeOf(x, y, sizes graph.Type) (s groupedShape, ok bool) {
	if x.Rank() != 2 || y.Rank() != 3 || x.Shape[1] != y.Shape[1] || x.DType != y.DType || x.Elements() == 0 || y.Elements() == 0 {
		return s, false
	}
	if x.DType != dtype.F32 && x.DType != dtype.BF16 || !sizes.Equal(graph.T(dtype.S32, y.Shape[0])) {
		return s, false
	}
	return groupedShape{y.Shape[0], x.Shape[0], x.Shape[1], y.Shape[2], x.DType, x.DType, 1}, true
}

func groupedProduct(lhs, rhs []*graph.Value, sizes *graph.Value, s groupedShape, o GroupedOptions, transposed bool) *graph.Value {
	want := o.Tiles.Product
	if transposed {
		want = o.Tiles.LHS
	}
	t, M := want.fit(o.Target, s, transposed, false), s.M
	s.M = roundUp(M, t.M)
	g := group(sizes, o.First, s.M, t.M, true)
	operands := []*graph.Value{g.bound, g.group, g.tile, g.lhsTile, g.rows}
	for i := range lhs {
		operands = append(operands, padRows(lhs[i], t.M), rhs[i])
	}
	out := groupedKernel(s, t, g.visits, o.expected(M), transposed).Call(o.Target, operands...)[0]
	return graph.SliceDim(out, 0, 0, M)
}

func groupedGrad(lhs, ct, sizes *graph.Value, s groupedShape, o GroupedOptions) *graph.Value {
	if s.out = o.Grad; s.out == dtype.Invalid {
		s.out = dtype.F32
	}
	t, M := o.Tiles.RHS.fit(o.Target, s, false, true), s.M
	lhs, ct, s.M = padRows(lhs, t.M), padRows(ct, t.M), roundUp(M, t.M)
	g := group(sizes, o.First, s.M, t.M, false)
	k := groupedGradKernel(s, t, g.visits, o.expected(M))
	return k.Call(o.Target, g.bound, g.group, g.tile, g.rows, lhs, ct)[0]
}

// expected is how many of M rows costs are counted with.
func (o GroupedOptions) expected(M int) int {
	if o.Rows > 0 {
		return min(o.Rows, M)
	}
	return M
}

// padRows adds rows of zeros up to a multiple of n.
func padRows(x *graph.Value, n int) *graph.Value {
	more := roundUp(x.Dim(0), n) - x.Dim(0)
	if more == 0 {
		return x
	}
	zero := x.Builder().Scalar(x.DType(), 0)
	return graph.Pad(x, zero, []int{0, 0}, []int{more, 0}, []int{0, 0})
}

func roundUp(n, m int) int { return (n + m - 1) / m * m }
