package graph

import (
	"fmt"
	"math"
	"slices"

	"titan/dtype"
)

// sortAttr: with perm the last operand counts along dim, so that its result is
// the permutation, which the derivative needs.
type sortAttr struct {
	dim              int
	descending, fast bool
	perm             bool
}

// SortOption changes how elements are put in order.
type SortOption func(*sortAttr)

// Descending puts the largest first. Equal elements stay in order.
func Descending() SortOption { return func(a *sortAttr) { a.descending = true } }

// Unstable lets equal elements change places, which may be faster.
func Unstable() SortOption { return func(a *sortAttr) { a.fast = true } }

func init() {
	define(opSort, opDef{
		name: "sort",
		infer: func(op *Op) ([]Type, error) {
			at := op.attr.(sortAttr)
			key := op.operands[0].typ
			if at.dim < 0 || at.dim >= key.Rank() {
				return nil, fmt.Errorf("dimension %d of a value of rank %d", at.dim, key.Rank())
			}
			for _, o := range op.operands[1:] {
				if !slices.Equal(o.typ.Shape, key.Shape) {
					return nil, fmt.Errorf("values of shape [%s] cannot follow keys of shape [%s]", joinInts(o.typ.Shape, ","), joinInts(key.Shape, ","))
				}
			}
			return typesOf(op.operands), nil
		},
		wideCT: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(sortAttr)
			if !at.perm {
				a.missing(op)
			}
			// Sorted by where they came from, the cotangents are back in place.
			var back, to []*Value
			for i, ct := range cts {
				if ct != nil && a.wants(op.operands[i]) {
					back, to = append(back, ct), append(to, op.operands[i])
				}
			}
			if to == nil {
				return
			}
			from := a.val(op.results[len(op.results)-1])
			for i, g := range SortBy(from, at.dim, back, Unstable())[1:] {
				a.add(to[i], g)
			}
		},
		print: printSort,
	})
}

// Sort puts the elements of x in ascending order along dimension dim. The order
// is total: NaNs are larger than +∞ and equal among themselves, and -0 equals 0;
// equal elements stay in order. Cotangents go back to where the elements were.
func Sort(x *Value, dim int, opts ...SortOption) *Value {
	return SortBy(x, dim, nil, opts...)[0]
}

// SortBy orders keys along dimension dim as Sort does and moves the elements of
// values, which have the shape of keys, in the same way. It returns the sorted
// keys followed by the values.
func SortBy(keys *Value, dim int, values []*Value, opts ...SortOption) []*Value {
	b := keys.b()
	at := sortAttr{dim: b.dim("sort", dim, keys.Rank())}
	for _, f := range opts {
		f(&at)
	}
	operands := append([]*Value{keys}, values...)
	n := len(operands)
	for _, o := range operands {
		at.perm = at.perm || o != nil && o.typ.DType.IsFloat()
	}
	if at.perm { // the compiler drops it again where no derivative is taken
		operands = append(operands, b.positions("sort", keys, at.dim))
	}
	return slices.Clone(b.emit(opSort, at, operands...).results[:n])
}

// Argsort gives the s32 indices that put x in order along dimension dim, so that
// TakeAlong(x, Argsort(x, dim), dim) is Sort(x, dim). The options mean the same
// as for Sort.
func Argsort(x *Value, dim int, opts ...SortOption) *Value {
	b := x.b()
	at := sortAttr{dim: b.dim("argsort", dim, x.Rank())}
	for _, f := range opts {
		f(&at)
	}
	return b.emit(opSort, at, StopGradient(x), b.positions("argsort", x, at.dim)).results[1]
}

// positions counts along dimension dim of x.
func (b *Builder) positions(name string, x *Value, dim int) *Value {
	if x.typ.Shape[dim] > math.MaxInt32 {
		b.failAt(b.position(2), name, []*Value{x}, "dimension %d of size %d is too long for s32 indices", dim, x.typ.Shape[dim])
	}
	return b.Iota(T(S32, x.typ.Shape...), dim)
}

// TopK gives the k largest elements along the last dimension of x, the largest
// first, and their s32 indices: x [..., n] → values and indices [..., k]. Equal
// elements come in the order of their indices; NaNs count as larger than +∞.
// Cotangents of the values go back to the chosen elements.
//
// It sorts: on TPU, that is what the compiler makes of a top-k op too, and on
// other platforms the op's operand is gathered when it is sharded.
func TopK(x *Value, k int) (values, indices *Value) {
	b := x.b()
	if x.Rank() == 0 || k < 1 || k > x.Dim(-1) {
		b.failAt(b.position(1), "top_k", []*Value{x}, "k = %d; it must be between 1 and the size of the last dimension", k)
	}
	out := CustomVJP([]*Value{x}, func(args []*Value) (outs, residuals []*Value) {
		x := args[0]
		at := sortAttr{dim: x.Rank() - 1, descending: true}
		sorted := b.emit(opSort, at, x, b.positions("top_k", x, at.dim)).results
		v, i := SliceDim(sorted[0], -1, 0, k), SliceDim(sorted[1], -1, 0, k)
		return []*Value{v, i}, []*Value{i}
	}, func(residuals, cts []*Value) []*Value {
		t := Type{cts[0].typ.DType, x.typ.Shape}
		return []*Value{scatterInto(t, ExpandDims(residuals[0], -1), cts[0], alongDims(t.Rank(), t.Rank()-1), indexOptions{unique: true})}
	})
	return out[0], out[1]
}

func printSort(p *printer, op *Op) {
	at, d := op.attr.(sortAttr), op.operands[0].typ.DType
	p.assign(op)
	p.write(`"stablehlo.sort"(`)
	p.operands(op.operands)
	fmt.Fprintf(&p.sb, ") <{dimension = %d : i64, is_stable = %v}> ({\n", at.dim, !at.fast)
	p.indent++
	var scalars []Type
	for _, o := range op.operands {
		scalars = append(scalars, T(o.typ.DType), T(o.typ.DType))
	}
	args := p.freshArgs(scalars)
	x, y, kind := args[0], args[1], compareKind(d)
	if d.IsFloat() {
		// The total order of IEEE 754 tells -0 from 0 and NaNs by sign and payload.
		t := T(d).mlir()
		zero := p.stmt("stablehlo.constant dense<%s> : %s", literal(d, dtype.AppendFloat(nil, d, 0)), t)
		nan := p.stmt("stablehlo.constant dense<%s> : %s", literal(d, dtype.AppendFloat(nil, d, math.NaN())), t)
		x, y, kind = p.plainKey(x, zero, nan, t), p.plainKey(y, zero, nan, t), "TOTALORDER"
	}
	dir := "LT"
	if at.descending {
		dir = "GT"
	}
	t := T(d).mlir()
	before := p.stmt("stablehlo.compare %s, %s, %s, %s : (%s, %s) -> tensor<i1>", dir, x, y, kind, t, t)
	p.ret("stablehlo.return", []string{before}, []Type{T(Bool)})
	p.indent--
	p.line("}) : ")
	p.signature(op)
}

// plainKey writes x with every zero as +0 and every NaN as the same one.
func (p *printer) plainKey(x, zero, nan, t string) string {
	is := p.stmt("stablehlo.compare EQ, %s, %s, FLOAT : (%s, %s) -> tensor<i1>", x, zero, t, t)
	v := p.stmt("stablehlo.select %s, %s, %s : tensor<i1>, %s", is, zero, x, t)
	is = p.stmt("stablehlo.compare NE, %s, %s, FLOAT : (%s, %s) -> tensor<i1>", x, x, t, t)
	return p.stmt("stablehlo.select %s, %s, %s : tensor<i1>, %s", is, nan, v, t)
}

// compareKind is the comparison type of d in StableHLO.
func compareKind(d DType) string {
	switch {
	case d.IsFloat():
		return "FLOAT"
	case d.IsSigned():
		return "SIGNED"
	}
	return "UNSIGNED"
}
