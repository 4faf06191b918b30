package graph

import (
	"fmt"
	"math"
)

func init() {
	define(opErfInv, opDef{
		name: "erf_inv",
		infer: func(op *Op) ([]Type, error) {
			if d := op.operands[0].typ.DType; !d.IsFloat() {
				return nil, fmt.Errorf("element type %v is not a float", d)
			}
			return sameType(op)
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			y := a.val(op.results[0])
			a.add(op.operands[0], Mul(cts[0], MulScalar(Exp(Mul(y, y)), math.Sqrt(math.Pi)/2)))
		},
		flops: func(op *Op) float64 { return float64(op.results[0].typ.Elements()) },
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("chlo.erf_inv ")
			p.operands(op.operands)
			p.write(" : ")
			p.typ(op.operands[0].typ)
			p.write(" -> ")
			p.typ(op.results[0].typ)
		},
	})
}

// ErfInv is the inverse of the error function: ±∞ at ±1, NaN beyond.
func ErfInv(x *Value) *Value { return x.b().emit1(opErfInv, nil, x) }
