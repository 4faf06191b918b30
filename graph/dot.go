package graph

import (
	"fmt"
	"slices"
)

// Precision is the number of bfloat16 passes that a matrix unit spends on f32
// operands: Default one, High three, Highest six. CPUs compute in full anyway.
type Precision uint8

// The precisions, named as in JAX and StableHLO.
const (
	Default Precision = iota
	High
	Highest
)

func (p Precision) String() string { return [...]string{"DEFAULT", "HIGH", "HIGHEST"}[min(p, 2)] }

type dotAttr struct {
	lhsBatch, rhsBatch       []int
	lhsContract, rhsContract []int
	precision                Precision
	out                      DType
}

func init() {
	define(opDot, opDef{
		name:  "dot",
		infer: inferDot,
		vjp:   dotVJP,
		flops: func(op *Op) float64 {
			at := op.attr.(dotAttr)
			k := product(pick(op.operands[0].typ.Shape, at.lhsContract))
			return 2 * float64(k) * float64(op.results[0].typ.Elements())
		},
		print: func(p *printer, op *Op) {
			at := op.attr.(dotAttr)
			p.assign(op)
			p.write("stablehlo.dot_general ")
			p.operands(op.operands)
			if len(at.lhsBatch) > 0 {
				p.write(", batching_dims = ")
				p.ints(at.lhsBatch)
				p.write(" x ")
				p.ints(at.rhsBatch)
			}
			p.write(", contracting_dims = ")
			p.ints(at.lhsContract)
			p.write(" x ")
			p.ints(at.rhsContract)
			p.write(", precision = [" + at.precision.String() + ", " + at.precision.String() + "] : ")
			p.signature(op)
		},
	})
}

func inferDot(op *Op) ([]Type, error) {
	at, x, y := op.attr.(dotAttr), op.operands[0].typ, op.operands[1].typ
	if x.DType == Bool || y.DType == Bool {
		return nil, fmt.Errorf("element type bool")
	}
	if x.DType.IsFloat() != y.DType.IsFloat() {
		return nil, fmt.Errorf("element types %v and %v do not multiply", x.DType, y.DType)
	}
	if !at.out.Valid() || at.out.IsFloat() != x.DType.IsFloat() {
		return nil, fmt.Errorf("result element type %v", at.out)
	}
	if err := checkDims(slices.Concat(at.lhsBatch, at.lhsContract), x.Rank()); err != nil {
		return nil, fmt.Errorf("left operand: %w", err)
	}
	if err := checkDims(slices.Concat(at.rhsBatch, at.rhsContract), y.Rank()); err != nil {
		return nil, fmt.Errorf("right operand: %w", err)
	}
	if len(at.lhsBatch) != len(at.rhsBatch) || len(at.lhsContract) != len(at.rhsContract) {
		return nil, fmt.Errorf("the operands name different numbers of batch or contracted dimensions")
	}
	ls, rs := slices.Concat(at.lhsBatch, at.lhsContract), slices.Concat(at.rhsBatch, at.rhsContract)
	for i := range ls {
		if x.Shape[ls[i]] != y.Shape[rs[i]] {
			return nil, fmt.Errorf("left dimension %d has size %d, right dimension %d has %d", ls[i], x.Shape[ls[i]], rs[i], y.Shape[rs[i]])
		}
	}
	shape := pick(x.Shape, at.lhsBatch)
	shape = append(shape, pick(x.Shape, without(seq(0, x.Rank()), ls...))...)
	shape = append(shape, pick(y.Shape, without(seq(0, y.Rank()), rs...))...)
	return []Type{{at.out, shape}}, nil
}

// DotDims says which dimensions of the operands of DotGeneral are paired.
// Batch and Contract hold {left, right} pairs.
type DotDims struct {
	Batch, Contract [][2]int
}

// DotGeneral multiplies and sums over the contracted dimensions. The result has
// the batch dimensions, then the left operand's other dimensions, then the
// right operand's. out is the element type of the result and of the sum;
// dtype.Invalid means that of the operands. Model code uses Einsum.
func DotGeneral(x, y *Value, dims DotDims, out DType, precision Precision) *Value {
	at := dotAttr{precision: precision, out: out}
	for _, p := range dims.Batch {
		at.lhsBatch, at.rhsBatch = append(at.lhsBatch, p[0]), append(at.rhsBatch, p[1])
	}
	for _, p := range dims.Contract {
		at.lhsContract, at.rhsContract = append(at.lhsContract, p[0]), append(at.rhsContract, p[1])
	}
	return dot(x, y, at)
}

func dot(x, y *Value, at dotAttr) *Value {
	if at.out == 0 && x != nil && y != nil {
		at.out = wider(x.typ.DType, y.typ.DType)
	}
	return x.b().emit1(opDot, at, x, y)
}

// dotVJP: each operand's cotangent is the contraction of the result's cotangent
// with the other operand, produced in the operand's cotangent type so that
// partial sums are added across devices in that type.
func dotVJP(a *adjoint, op *Op, cts []*Value) {
	at := op.attr.(dotAttr)
	nb := len(at.lhsBatch)
	for side := range 2 {
		x, y := op.operands[side], op.operands[1-side]
		if !a.wants(x) {
			continue
		}
		xb, xc, yb, yc := at.lhsBatch, at.lhsContract, at.rhsBatch, at.rhsContract
		if side == 1 {
			xb, xc, yb, yc = yb, yc, xb, xc
		}
		xFree := without(seq(0, x.Rank()), slices.Concat(xb, xc)...)
		yFree := without(seq(0, y.Rank()), slices.Concat(yb, yc)...)
		// The cotangent has dimensions batch, left free, right free.
		yFreeAt := nb + len(xFree)
		if side == 1 {
			yFreeAt = nb
		}
		ct, yv := matchFloat(cts[0], a.val(y))
		ctFree := seq(yFreeAt, yFreeAt+len(yFree))
		grad := dotAttr{
			lhsBatch: seq(0, nb), rhsBatch: yb, lhsContract: ctFree, rhsContract: yFree,
			precision: at.precision, out: a.gradDType(x),
		}
		// The product has x's batch, free and contracted dimensions, the last in
		// y's order; with the operands exchanged the last two groups are. Take
		// the order that needs no transpose, if there is one.
		var contracted []int
		for _, d := range slices.Sorted(slices.Values(yc)) {
			contracted = append(contracted, xc[slices.Index(yc, d)])
		}
		have := slices.Concat(xb, xFree, contracted)
		if swapped := slices.Concat(xb, contracted, xFree); !isIota(have) && isIota(swapped) {
			have = swapped
			grad.lhsBatch, grad.rhsBatch = grad.rhsBatch, grad.lhsBatch
			grad.lhsContract, grad.rhsContract = grad.rhsContract, grad.lhsContract
			ct, yv = yv, ct
		}
		a.add(x, Transpose(dot(ct, yv, grad), inversePerm(have)...))
	}
}

// matchFloat converts the narrower of two floats to the wider one's type.
func matchFloat(x, y *Value) (*Value, *Value) {
	if x.typ.DType == y.typ.DType {
		return x, y
	}
	w := wider(x.typ.DType, y.typ.DType)
	return Convert(x, w), Convert(y, w)
}
