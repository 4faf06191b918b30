package graph

import (
	"fmt"
	"math"
	"slices"
)

type reduceKind uint8

const (
	reduceSum reduceKind = iota
	reduceMax
	reduceMin
	reduceProd
	reduceAnd
	reduceOr
)

var reduceNames = [...]string{"sum", "max", "min", "prod", "all", "any"}
var reduceHLO = [...]string{"add", "maximum", "minimum", "multiply", "and", "or"}

func (k reduceKind) String() string { return reduceNames[k] }

// initial is the neutral element.
func (k reduceKind) initial(b *Builder, d DType) *Value {
	switch k {
	case reduceMax:
		return b.lowest(d)
	case reduceMin:
		return b.highest(d)
	case reduceProd, reduceAnd:
		return b.Scalar(d, 1)
	}
	return b.Scalar(d, 0)
}

// lowest is the smallest value of d, -∞ for floats that have it.
func (b *Builder) lowest(d DType) *Value {
	switch {
	case d == F8E4M3:
		return b.Scalar(d, -448)
	case d.IsFloat():
		return b.Scalar(d, math.Inf(-1))
	case !d.IsSigned():
		return b.Scalar(d, 0)
	}
	return b.Int(d, -1<<(8*d.Size()-1))
}

// highest is the largest value of d, +∞ for floats that have it.
func (b *Builder) highest(d DType) *Value {
	switch {
	case d == F8E4M3:
		return b.Scalar(d, 448)
	case d.IsFloat():
		return b.Scalar(d, math.Inf(1))
	case d == Bool:
		return b.Scalar(d, 1)
	case !d.IsSigned():
		return b.Int(d, -1)
	}
	return b.Int(d, 1<<(8*d.Size()-1)-1)
}

type reduceAttr struct {
	kind reduceKind
	dims []int
}

func init() {
	define(opReduce, opDef{
		name: "reduce",
		infer: func(op *Op) ([]Type, error) {
			at, t, init := op.attr.(reduceAttr), op.operands[0].typ, op.operands[1].typ
			if err := checkDims(at.dims, t.Rank()); err != nil {
				return nil, err
			}
			if logical := at.kind >= reduceAnd; logical != (t.DType == Bool) {
				return nil, fmt.Errorf("%v of element type %v", at.kind, t.DType)
			}
			if !init.Equal(T(t.DType)) {
				return nil, fmt.Errorf("initial value of type %v", init)
			}
			return []Type{{t.DType, pick(t.Shape, without(seq(0, t.Rank()), at.dims...))}}, nil
		},
		vjp:   reduceVJP,
		flops: func(op *Op) float64 { return float64(op.operands[0].typ.Elements()) },
		print: func(p *printer, op *Op) {
			at := op.attr.(reduceAttr)
			p.assign(op)
			p.write("stablehlo.reduce(")
			p.value(op.operands[0])
			p.write(" init: ")
			p.value(op.operands[1])
			p.write(") applies stablehlo." + reduceHLO[at.kind] + " across dimensions = ")
			p.ints(at.dims)
			p.write(" : ")
			p.signature(op)
		},
	})
}

func reduceVJP(a *adjoint, op *Op, cts []*Value) {
	at, x, ct := op.attr.(reduceAttr), op.operands[0], cts[0]
	if !a.wants(x) {
		return
	}
	kept := without(seq(0, x.Rank()), at.dims...)
	spread := func(v *Value) *Value { return BroadcastInDim(v, x.typ.Shape, kept) }
	switch at.kind {
	case reduceSum:
		a.add(x, spread(ct))
	case reduceMax, reduceMin:
		// Elements equal to the extreme share the cotangent, as in JAX.
		hit := Convert(Equal(a.val(x), spread(a.val(op.results[0]))), ct.typ.DType)
		count := Sum(hit, at.dims...)
		a.add(x, Mul(hit, spread(Div(ct, count))))
	case reduceProd:
		a.add(x, Mul(spread(ct), productOfOthers(a.val(x), at.dims)))
	default:
		a.missing(op)
	}
}

// productOfOthers is, for every element, the product of the other elements
// along dims, without dividing, so that zeros are no special case. It costs n
// times the product.
func productOfOthers(x *Value, dims []int) *Value {
	kept := without(seq(0, x.Rank()), dims...)
	perm := slices.Concat(kept, dims)
	flat := Transpose(x, perm...)
	n := product(pick(x.typ.Shape, dims))
	rows := Reshape(flat, product(pick(x.typ.Shape, kept)), n)
	b := x.b()
	eye := Equal(b.Iota(T(S32, n, n), 0), b.Iota(T(S32, n, n), 1))
	each := BroadcastInDim(rows, []int{rows.Dim(0), n, n}, []int{0, 2}) // [row, i, j] = x[row, j]
	others := Prod(Select(eye, b.Scalar(x.typ.DType, 1), each), 2)
	return Transpose(Reshape(others, flat.typ.Shape...), inversePerm(perm)...)
}

// reduce normalises dims (none means all) and records the op.
func reduce(k reduceKind, x *Value, dims []int) *Value {
	b := x.b()
	if len(dims) == 0 {
		dims = seq(0, x.Rank())
	}
	dims = slices.Sorted(slices.Values(b.dims(k.String(), dims, x.Rank())))
	if len(dims) == 0 {
		return x
	}
	return b.emit1(opReduce, reduceAttr{k, dims}, x, k.initial(b, x.typ.DType))
}

// Sum adds over the given dimensions, or over all of them. Narrow floats are
// added in f32 and rounded once.
func Sum(x *Value, dims ...int) *Value {
	if len(dims) == 0 {
		dims = seq(0, x.Rank())
	}
	return sumIn(x, dims, x.typ.DType)
}

// sumIn adds over dims, in at least f32 for floats, and gives element type out.
func sumIn(x *Value, dims []int, out DType) *Value {
	if len(dims) == 0 {
		return Convert(x, out)
	}
	if d := x.typ.DType; d.IsFloat() && d.Size() < 4 {
		x = Convert(x, F32)
	}
	return Convert(reduce(reduceSum, x, dims), out)
}

// Prod multiplies over the given dimensions, or over all of them.
func Prod(x *Value, dims ...int) *Value { return reduce(reduceProd, x, dims) }

// ReduceMax is the largest element over the given dimensions, or over all.
func ReduceMax(x *Value, dims ...int) *Value { return reduce(reduceMax, x, dims) }

// ReduceMin is the smallest element over the given dimensions, or over all.
func ReduceMin(x *Value, dims ...int) *Value { return reduce(reduceMin, x, dims) }

// All is the conjunction of booleans over the given dimensions, or over all.
func All(x *Value, dims ...int) *Value { return reduce(reduceAnd, x, dims) }

// Any is the disjunction of booleans over the given dimensions, or over all.
func Any(x *Value, dims ...int) *Value { return reduce(reduceOr, x, dims) }

// Mean is the arithmetic mean over the given dimensions, or over all; NaN where
// there are no elements.
func Mean(x *Value, dims ...int) *Value {
	if !x.typ.DType.IsFloat() {
		x.b().failAt(x.b().position(1), "mean", []*Value{x}, "needs a float")
	}
	s := Sum(x, dims...)
	return MulScalar(s, float64(s.typ.Elements())/float64(x.typ.Elements()))
}

// KeepDims gives a reduction over dims of a value of rank len(shape) the
// reduced dimensions back with size 1, for broadcasting.
func KeepDims(reduced *Value, shape []int, dims ...int) *Value {
	out := slices.Clone(shape)
	for _, d := range reduced.b().dims("keep_dims", dims, len(shape)) {
		out[d] = 1
	}
	return Reshape(reduced, out...)
}
