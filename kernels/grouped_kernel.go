package kernels

import (
	"fmt"

	"titan/dtype"
	"titan/graph"
)

// groupedShape is the size of a grouped product of lhs [M, K] with rhs [E, K, N], or of
// the sum of several.
type groupedShape struct {
	E, M, K, N int
	in         dtype.DType
	out        dtype.DType
	products   int
}

// visits is how many tiles are visited if so many rows are in groups.
func (s groupedShape) visits(t MatmulTiles, rows int) int { return (rows+t.M-1)/t.M + s.E - 1 }

// groupedKernel multiplies the rows of each group by the group's matrix. rhs is
// [E, K, N] or, transposed, [E, N, K]. Operands: the number of visits; group, tile
// and lhsTile of each visit; rows; lhs and rhs of each product. Rows of no group become
// zero. Costs are
// those of expected rows in groups.
func groupedKernel(s groupedShape, t MatmulTiles, visits, expected int, transposed bool) *Kernel {
	name := "grouped_matmul"
	if transposed {
		name = "grouped_matmul_transposed"
	}
	k := New(name)
	nk := s.K / t.K
	n, v, kk := k.Grid(s.N/t.N, Parallel), k.DynamicGrid(visits, s.visits(t, expected)), k.Grid(nk, Sequential)
	groups, tiles := k.Prefetch("group", visits+1), k.Prefetch("tile", visits+1)
	lhsTiles, rows := k.Prefetch("lhs_tile", visits+1), k.Prefetch("rows", s.E+1)
	typical := groupOf(typicalSizes(s.E, min(expected, s.M), t.M), 0, s.M, t.M, true)
	k.Expect([]int{typical.bound}, typical.group, typical.tile, typical.lhsTile, typical.rows)

	none := k.Int(s.E)
	g, tile := groups.At(v), tiles.At(v)
	some := Less(g, none)
	// A visit without a group needs no operands: its indices repeat the last ones.
	matrix, kat := Min(g, k.Int(s.E-1)), Select(some, kk, k.Int(nk-1))
	rhsDim := 0 // contracted
	if transposed {
		rhsDim = 1
	}
	var lhs, rhs []*Ref
	for i := range s.products {
		x, y := "lhs", "rhs"
		if i > 0 {
			x, y = fmt.Sprint(x, i), fmt.Sprint(y, i)
		}
		lhs = append(lhs, k.In(x, graph.T(s.in, s.M, s.K), []int{t.M, t.K}, lhsTiles.At(v), kat))
		if transposed {
			rhs = append(rhs, k.In(y, graph.T(s.in, s.E, s.N, s.K), []int{1, t.N, t.K}, matrix, n, kat))
		} else {
			rhs = append(rhs, k.In(y, graph.T(s.in, s.E, s.K, s.N), []int{1, t.K, t.N}, matrix, kat, n))
		}
	}
	out := k.Out("out", graph.T(s.out, s.M, s.N), []int{t.M, t.N}, tile, n)

	store := func(sum *Value) {
		top, start, end := Mul(tile, k.Int(t.M)), rows.At(g), rows.At(Add(g, k.Int(1)))
		bottom := Add(top, k.Int(t.M))
		whole := And(LessEqual(start, top), LessEqual(bottom, end))
		k.If(whole, func() { out.Store(Convert(sum, s.out)) })
		k.If(Not(whole), func() {
			fresh := Or(Equal(v, k.Int(0)), NotEqual(tiles.At(Max(Sub(v, k.Int(1)), k.Int(0))), tile))
			row := Add(k.Iota(t.M, t.N, 0), top)
			mine := And(GreaterEqual(row, start), Less(row, end))
			others := Select(fresh, k.F32(0), Convert(out.Load(), dtype.F32))
			out.Store(Convert(Select(mine, sum, others), s.out))
		})
	}
	product := func() *Value {
		sum := Dot(lhs[0].Load(), 1, rhs[0].Load(), rhsDim)
		for i := 1; i < s.products; i++ {
			sum = Add(sum, Dot(lhs[i].Load(), 1, rhs[i].Load(), rhsDim))
		}
		return sum
	}
	if nk == 1 {
		k.If(some, func() { store(product()) })
	} else {
		acc := k.Scratch("sum", graph.T(dtype.F32, t.M, t.N))
		k.If(some, func() {
			p := product()
			k.If(Equal(kk, k.Int(0)), func() { acc.Store(p) })
			k.If(Greater(kk, k.Int(0)), func() { acc.Store(Add(acc.Load(), p)) })
			k.If(Equal(kk, k.Int(nk-1)), func() { store(acc.Load()) })
		})
	}
	k.If(And(Equal(g, none), Equal(kk, k.Int(0))), func() { out.Store(k.Zeros(graph.T(s.out, t.M, t.N))) })
	k.Flops(2*float64(s.products)*float64(expected)*float64(s.K)*float64(s.N), 0)
	return k
}

// groupedGradKernel computes for each group lhsᵀ·ct over the group's rows, with lhs
// [M, K] and ct [M, N]: the gradient [E, K, N] of the matrices. Operands: the
// number of visits; group and tile of each visit; rows; lhs; ct. Costs are those of
// expected rows in groups.
func groupedGradKernel(s groupedShape, t MatmulTiles, visits, expected int) *Kernel {
	k := New("grouped_matmul_gradient")
	kk, n, v := k.Grid(s.K/t.K, Parallel), k.Grid(s.N/t.N, Parallel), k.DynamicGrid(visits, s.visits(t, expected))
	groups, tiles := k.Prefetch("group", visits+1), k.Prefetch("tile", visits+1)
	rows := k.Prefetch("rows", s.E+1)
	typical := groupOf(typicalSizes(s.E, min(expected, s.M), t.M), 0, s.M, t.M, false)
	k.Expect([]int{typical.bound}, typical.group, typical.tile, typical.rows)
	g, tile := groups.At(v), tiles.At(v)
	lhs := k.In("lhs", graph.T(s.in, s.M, s.K), []int{t.M, t.K}, tile, kk)
	ct := k.In("ct", graph.T(s.in, s.M, s.N), []int{t.M, t.N}, tile, n)
	out := k.Out("out", graph.T(s.out, s.E, s.K, s.N), []int{1, t.K, t.N}, g, kk, n)
	acc := k.Scratch("sum", graph.T(dtype.F32, t.K, t.N))

	one := k.Int(1)
	top, start, end := Mul(tile, k.Int(t.M)), rows.At(g), rows.At(Add(g, one))
	bottom := Add(top, k.Int(t.M))
	fresh := Or(Equal(v, k.Int(0)), NotEqual(groups.At(Max(Sub(v, one), k.Int(0))), g))
	k.If(fresh, func() { acc.Store(k.Zeros(graph.T(dtype.F32, t.K, t.N))) })
	add := func(x, y *Value) { acc.Store(Add(acc.Load(), Dot(x, 0, y, 0))) }
	k.If(And(LessEqual(start, top), LessEqual(bottom, end)), func() { add(lhs.Load(), ct.Load()) })
	k.If(And(Less(start, end), Or(Less(top, start), Less(end, bottom))), func() {
		// Both are masked: a row of no group may hold anything, even NaN.
		mine := func(x *Value) *Value {
			row := Add(k.Iota(t.M, x.typ.Shape[1], 0), top)
			in := And(GreaterEqual(row, start), Less(row, end))
			return Convert(Select(in, Convert(x, dtype.F32), k.F32(0)), s.in)
		}
		add(mine(lhs.Load()), mine(ct.Load()))
	})
	k.If(NotEqual(groups.At(Add(v, one)), g), func() { out.Store(Convert(acc.Load(), s.out)) })
	k.Flops(2*float64(expected)*float64(s.K)*float64(s.N), 0)
	return k
}
