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
	s, ok := groupedShapeOf(lhs, rhs, sizes)
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
	first := func(a []*graph.Value) *graph.Value {
		if o.First == nil {
			return nil
		}
		return a[3]
	}
	return graph.CustomVJP(args,
		func(a []*graph.Value) (outs, residuals []*graph.Value) {
			return []*graph.Value{groupedProduct(a[0], a[1], a[2], first(a), s, o.Target, o.Tiles.Product, false)}, a
		},
		func(a, cts []*graph.Value) []*graph.Value {
			ct := graph.Convert(cts[0], s.in)
			back := groupedShape{s.E, s.M, s.N, s.K, s.in, s.in}
			dlhs := groupedProduct(ct, a[1], a[2], first(a), back, o.Target, o.Tiles.LHS, true)
			grads := s
			grads.out = o.Grad
			if o.Grad == dtype.Invalid {
				grads.out = dtype.F32
			}
			drhs := groupedGrad(a[0], ct, a[2], first(a), grads, o.Target, o.Tiles.RHS)
			return []*graph.Value{dlhs, drhs, nil, nil}[:len(args)]
		})[0]
}

func groupedShapeOf(lhs, rhs, sizes *graph.Value) (s groupedShape, ok bool) {
	x, y := lhs.Type(), rhs.Type()
	if x.Rank() != 2 || y.Rank() != 3 || x.Shape[1] != y.Shape[1] || x.DType != y.DType || x.Elements() == 0 || y.Elements() == 0 {
		return s, false
	}
	if x.DType != dtype.F32 && x.DType != dtype.BF16 || !sizes.Type().Equal(graph.T(dtype.S32, y.Shape[0])) {
		return s, false
	}
	return groupedShape{y.Shape[0], x.Shape[0], x.Shape[1], y.Shape[2], x.DType, x.DType}, true
}

func groupedProduct(lhs, rhs, sizes, first *graph.Value, s groupedShape, target Target, want MatmulTiles, transposed bool) *graph.Value {
	t := want.fit(target, s, transposed, false)
	M := s.M
	lhs, s.M = padRows(lhs, t.M), roundUp(M, t.M)
	g := group(sizes, first, s.M, t.M, true)
	k := groupedKernel(s, t, g.visits, transposed)
	out := k.Call(target, g.bound, g.group, g.tile, g.lhsTile, g.rows, lhs, rhs)[0]
	return graph.SliceDim(out, 0, 0, M)
}

func groupedGrad(lhs, ct, sizes, first *graph.Value, s groupedShape, target Target, want MatmulTiles) *graph.Value {
	t := want.fit(target, s, false, true)
	lhs, ct, s.M = padRows(lhs, t.M), padRows(ct, t.M), roundUp(s.M, t.M)
	g := group(sizes, first, s.M, t.M, false)
	k := groupedGradKernel(s, t, g.visits)
	return k.Call(target, g.bound, g.group, g.tile, g.rows, lhs, ct)[0]
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
