package graph

import (
	"fmt"
	"math"
)

type argReduceAttr struct {
	dim int
	min bool
}

func init() {
	define(opArgReduce, opDef{
		name: "arg_reduce",
		infer: func(op *Op) ([]Type, error) {
			at, t, init := op.attr.(argReduceAttr), op.operands[0].typ, op.operands[1].typ
			if at.dim < 0 || at.dim >= t.Rank() {
				return nil, fmt.Errorf("dimension %d of a value of rank %d", at.dim, t.Rank())
			}
			if n := t.Shape[at.dim]; n < 1 || n > math.MaxInt32 {
				return nil, fmt.Errorf("dimension %d has size %d; it must be between 1 and %d", at.dim, n, math.MaxInt32)
			}
			if !init.Equal(T(t.DType)) {
				return nil, fmt.Errorf("initial value of type %v", init)
			}
			return []Type{{S32, pick(t.Shape, without(seq(0, t.Rank()), at.dim))}}, nil
		},
		noGrad: true,
		flops:  func(op *Op) float64 { return float64(op.operands[0].typ.Elements()) },
		print:  printArgReduce,
	})
}

// ArgMax is the s32 index of the largest element along dimension dim, which
// disappears; of equal ones the first. A NaN counts as largest, as in NumPy.
func ArgMax(x *Value, dim int) *Value { return argReduce("argmax", x, dim, false) }

// ArgMin is the s32 index of the smallest element along dimension dim, which
// disappears; of equal ones the first. A NaN counts as smallest, as in NumPy.
func ArgMin(x *Value, dim int) *Value { return argReduce("argmin", x, dim, true) }

func argReduce(name string, x *Value, dim int, least bool) *Value {
	b := x.b()
	at := argReduceAttr{b.dim(name, dim, x.Rank()), least}
	init := b.lowest
	if least {
		init = b.highest
	}
	return b.emit1(opArgReduce, at, x, init(x.typ.DType))
}

// printArgReduce writes a reduction of (element, index) pairs. The comparison
// orders all pairs, so that the result is the same in whatever tree the
// compiler reduces; the initial pair can win only where its index 0 is right.
func printArgReduce(p *printer, op *Op) {
	at, x := op.attr.(argReduceAttr), op.operands[0]
	d := x.typ.DType
	it := Type{S32, x.typ.Shape}
	index := p.stmt("stablehlo.iota dim = %d : %s", at.dim, it.mlir())
	zero := p.stmt("stablehlo.constant dense<0> : tensor<i32>")
	result, elem := p.fresh(), Type{d, op.results[0].typ.Shape}
	p.line(fmt.Sprintf("%s:2 = \"stablehlo.reduce\"(%s, %s, %s, %s) <{dimensions = array<i64: %d>}> ({\n",
		result, p.names[x], index, p.names[op.operands[1]], zero, at.dim))
	p.indent++
	args := p.freshArgs([]Type{T(d), T(S32), T(d), T(S32)})
	t := T(d).mlir()
	compare := func(dir, x, y string) string {
		return p.stmt("stablehlo.compare %s, %s, %s, %s : (%s, %s) -> tensor<i1>", dir, x, y, compareKind(d), t, t)
	}
	logic := func(op, x, y string) string { return p.stmt("stablehlo.%s %s, %s : tensor<i1>", op, x, y) }
	better := "GT"
	if at.min {
		better = "LT"
	}
	wins, same := compare(better, args[0], args[2]), compare("EQ", args[0], args[2])
	if d.IsFloat() {
		nanX, nanY := compare("NE", args[0], args[0]), compare("NE", args[2], args[2])
		numY := compare("EQ", args[2], args[2])
		wins = logic("or", wins, logic("and", nanX, numY))
		same = logic("or", same, logic("and", nanX, nanY))
	}
	first := p.stmt("stablehlo.compare LT, %s, %s, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>", args[1], args[3])
	wins = logic("or", wins, logic("and", same, first))
	v := p.stmt("stablehlo.select %s, %s, %s : tensor<i1>, %s", wins, args[0], args[2], t)
	i := p.stmt("stablehlo.select %s, %s, %s : tensor<i1>, tensor<i32>", wins, args[1], args[3])
	p.ret("stablehlo.return", []string{v, i}, []Type{T(d), T(S32)})
	p.indent--
	p.line("}) : (")
	p.typeList([]Type{x.typ, it, T(d), T(S32)})
	p.write(") -> (")
	p.typeList([]Type{elem, op.results[0].typ})
	p.write(")")
	p.names[op.results[0]] = result + "#1"
}
