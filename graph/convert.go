package graph

import "fmt"

type precisionAttr struct{ exponent, mantissa int }

func init() {
	define(opConvert, opDef{
		name: "convert",
		infer: func(op *Op) ([]Type, error) {
			to := op.attr.(DType)
			if !to.Valid() {
				return nil, fmt.Errorf("invalid target element type")
			}
			return []Type{{to, op.operands[0].typ.Shape}}, nil
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			from, to := op.operands[0].typ.DType, op.results[0].typ.DType
			if from.IsFloat() && to.IsFloat() {
				a.add(op.operands[0], Convert(cts[0], from))
			}
		},
		wideCT: true,
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.convert ")
			p.operands(op.operands)
			p.write(" : ")
			p.signature(op)
		},
	})
	define(opBitcast, opDef{
		name: "bitcast",
		infer: func(op *Op) ([]Type, error) {
			from, to := op.operands[0].typ, op.attr.(DType)
			if from.DType.Size() != to.Size() || from.DType == Bool || to == Bool {
				return nil, fmt.Errorf("%v and %v differ in size", from.DType, to)
			}
			return []Type{{to, from.Shape}}, nil
		},
		noGrad: true,
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.bitcast_convert ")
			p.operands(op.operands)
			p.write(" : ")
			p.signature(op)
		},
	})
	define(opReducePrecision, opDef{
		name: "reduce_precision",
		infer: func(op *Op) ([]Type, error) {
			a := op.attr.(precisionAttr)
			if !op.operands[0].typ.DType.IsFloat() || a.exponent < 1 || a.mantissa < 0 {
				return nil, fmt.Errorf("%d exponent and %d mantissa bits", a.exponent, a.mantissa)
			}
			return sameType(op)
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(precisionAttr)
			a.add(op.operands[0], ReducePrecision(cts[0], at.exponent, at.mantissa))
		},
		print: func(p *printer, op *Op) {
			a := op.attr.(precisionAttr)
			p.assign(op)
			p.write("stablehlo.reduce_precision ")
			p.operands(op.operands)
			p.write(fmt.Sprintf(", format = e%dm%d : ", a.exponent, a.mantissa))
			p.typ(op.results[0].typ)
		},
	})
}

// Convert changes the element type, rounding to nearest even; x itself when it
// has the type already. Cotangents are converted back.
func Convert(x *Value, to DType) *Value {
	if x.typ.DType == to {
		return x
	}
	return x.b().emit1(opConvert, to, x)
}

// Bitcast reads the bits of x as another element type of the same size.
func Bitcast(x *Value, to DType) *Value { return x.b().emit1(opBitcast, to, x) }

// ReducePrecision rounds a float to the given exponent and mantissa widths and
// keeps its element type.
func ReducePrecision(x *Value, exponent, mantissa int) *Value {
	return x.b().emit1(opReducePrecision, precisionAttr{exponent, mantissa}, x)
}

// wider returns the smallest float type that holds what both do.
func wider(a, b DType) DType {
	if a.Size() != b.Size() {
		if a.Size() > b.Size() {
			return a
		}
		return b
	}
	if a == b {
		return a
	}
	if a.Size() == 2 && a.IsFloat() && b.IsFloat() { // f16 and bf16: neither holds the other
		return F32
	}
	if a.Size() == 1 && a.IsFloat() && b.IsFloat() { // e4m3 and e5m2: nor here
		return BF16
	}
	return a
}
