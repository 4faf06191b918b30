package graph

import (
	"fmt"
	"math"
)

// class says which element types an elementwise op takes.
type class uint8

const (
	anyNumber class = iota
	floats
	signedNumbers
	bits // integers and booleans
	integers
)

func (c class) ok(d DType) bool {
	switch c {
	case anyNumber:
		return d != Bool
	case floats:
		return d.IsFloat()
	case signedNumbers:
		return d.IsSigned()
	case bits:
		return !d.IsFloat()
	default:
		return d.IsInt()
	}
}

func (c class) String() string {
	return [...]string{"a number", "a float", "a signed number", "an integer or bool", "an integer"}[c]
}

type elementwise struct {
	name, hlo string
	class     class
	flops     float64
	vjp       func(a *adjoint, op *Op, ct *Value)
}

// d1 makes a vjp of a one-operand op from its derivative: given ct, operand x
// and result y, it returns the operand's cotangent. Only what it asks for is
// kept for the backward pass.
func d1(f func(ct *Value, x, y func() *Value) *Value) func(*adjoint, *Op, *Value) {
	return func(a *adjoint, op *Op, ct *Value) {
		x := op.operands[0]
		a.add(x, f(ct, func() *Value { return a.val(x) }, func() *Value { return a.val(op.results[0]) }))
	}
}

// zeroGrad is the vjp of step functions.
func zeroGrad(*adjoint, *Op, *Value) {}

func init() {
	unary := map[opKind]elementwise{
		opNeg:   {"neg", "negate", anyNumber, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Neg(ct) })},
		opAbs:   {"abs", "abs", signedNumbers, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(ct, Sign(x())) })},
		opSign:  {"sign", "sign", signedNumbers, 1, zeroGrad},
		opExp:   {"exp", "exponential", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(ct, y()) })},
		opExpm1: {"expm1", "exponential_minus_one", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(ct, AddScalar(y(), 1)) })},
		opLog:   {"log", "log", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Div(ct, x()) })},
		opLog1p: {"log1p", "log_plus_one", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Div(ct, AddScalar(x(), 1)) })},
		opSqrt:  {"sqrt", "sqrt", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Div(MulScalar(ct, 0.5), y()) })},
		opRsqrt: {"rsqrt", "rsqrt", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(MulScalar(ct, -0.5), Div(y(), x())) })},
		opCbrt:  {"cbrt", "cbrt", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(MulScalar(ct, 1.0/3), Div(y(), x())) })},
		opTanh: {"tanh", "tanh", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value {
			return Mul(ct, Sub(ct.b().Scalar(ct.typ.DType, 1), Mul(y(), y())))
		})},
		opSin: {"sin", "sine", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(ct, Cos(x())) })},
		opCos: {"cos", "cosine", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Neg(Mul(ct, Sin(x()))) })},
		opTan: {"tan", "tan", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value { return Mul(ct, AddScalar(Mul(y(), y()), 1)) })},
		opLogistic: {"logistic", "logistic", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value {
			return Mul(ct, Mul(y(), Sub(ct.b().Scalar(ct.typ.DType, 1), y())))
		})},
		opErf: {"erf", "erf", floats, 1, d1(func(ct *Value, x, y func() *Value) *Value {
			return Mul(MulScalar(ct, 2/math.Sqrt(math.Pi)), Exp(Neg(Mul(x(), x()))))
		})},
		opFloor:  {"floor", "floor", floats, 1, zeroGrad},
		opCeil:   {"ceil", "ceil", floats, 1, zeroGrad},
		opRound:  {"round", "round_nearest_even", floats, 1, zeroGrad},
		opNot:    {"not", "not", bits, 0, zeroGrad},
		opPopcnt: {"popcnt", "popcnt", integers, 0, zeroGrad},
	}
	for k, e := range unary {
		defineElementwise(k, e, 1)
	}
	two := map[opKind]elementwise{
		opAdd: {"add", "add", anyNumber, 1, func(a *adjoint, op *Op, ct *Value) {
			a.add(op.operands[0], ct)
			a.add(op.operands[1], ct)
		}},
		opSub: {"sub", "subtract", anyNumber, 1, func(a *adjoint, op *Op, ct *Value) {
			a.add(op.operands[0], ct)
			if a.wants(op.operands[1]) {
				a.add(op.operands[1], Neg(ct))
			}
		}},
		opMul: {"mul", "multiply", anyNumber, 1, func(a *adjoint, op *Op, ct *Value) {
			x, y := op.operands[0], op.operands[1]
			if a.wants(x) {
				a.add(x, Mul(ct, a.val(y)))
			}
			if a.wants(y) {
				a.add(y, Mul(ct, a.val(x)))
			}
		}},
		opDiv: {"div", "divide", anyNumber, 1, func(a *adjoint, op *Op, ct *Value) {
			x, y := op.operands[0], op.operands[1]
			if a.wants(x) {
				a.add(x, Div(ct, a.val(y)))
			}
			if a.wants(y) {
				yv := a.val(y)
				a.add(y, Neg(Mul(ct, Div(a.val(x), Mul(yv, yv)))))
			}
		}},
		opMax:   {"max", "maximum", anyNumber, 1, extremeVJP(Greater)},
		opMin:   {"min", "minimum", anyNumber, 1, extremeVJP(Less)},
		opPow:   {"pow", "power", anyNumber, 1, powVJP},
		opRem:   {"rem", "remainder", anyNumber, 1, remVJP},
		opAtan2: {"atan2", "atan2", floats, 1, atan2VJP},
		opAnd:   {"and", "and", bits, 0, zeroGrad}, opOr: {"or", "or", bits, 0, zeroGrad}, opXor: {"xor", "xor", bits, 0, zeroGrad},
		opShiftLeft:            {"shift_left", "shift_left", integers, 0, zeroGrad},
		opShiftRightLogical:    {"shift_right_logical", "shift_right_logical", integers, 0, zeroGrad},
		opShiftRightArithmetic: {"shift_right_arithmetic", "shift_right_arithmetic", integers, 0, zeroGrad},
	}
	for k, e := range two {
		defineElementwise(k, e, 2)
	}
}

func defineElementwise(k opKind, e elementwise, operands int) {
	define(k, opDef{
		name: e.name,
		infer: func(op *Op) ([]Type, error) {
			if len(op.operands) != operands {
				return nil, fmt.Errorf("%d operands, want %d", len(op.operands), operands)
			}
			t := op.operands[0].typ
			if !e.class.ok(t.DType) {
				return nil, fmt.Errorf("element type %v is not %v", t.DType, e.class)
			}
			for _, o := range op.operands[1:] {
				if !o.typ.Equal(t) {
					return nil, fmt.Errorf("operand types %v and %v differ", t, o.typ)
				}
			}
			return []Type{t}, nil
		},
		vjp:   func(a *adjoint, op *Op, cts []*Value) { e.vjp(a, op, cts[0]) },
		print: elementwisePrinter(e.hlo),
		flops: func(op *Op) float64 { return e.flops * float64(op.results[0].typ.Elements()) },
	})
}

func elementwisePrinter(hlo string) func(*printer, *Op) {
	full := "stablehlo." + hlo + " "
	if hlo == "erf" {
		full = "chlo.erf "
	}
	return func(p *printer, op *Op) {
		p.assign(op)
		p.write(full)
		p.operands(op.operands)
		p.write(" : ")
		if hlo == "erf" {
			p.typ(op.operands[0].typ)
			p.write(" -> ")
		}
		p.typ(op.results[0].typ)
	}
}

// extremeVJP sends the cotangent to the winner, halves on a tie, as JAX does.
func extremeVJP(wins func(x, y *Value) *Value) func(*adjoint, *Op, *Value) {
	return func(a *adjoint, op *Op, ct *Value) {
		x, y := a.val(op.operands[0]), a.val(op.operands[1])
		half := Select(Equal(x, y), MulScalar(ct, 0.5), ZerosLike(ct))
		if a.wants(op.operands[0]) {
			a.add(op.operands[0], Select(wins(x, y), ct, half))
		}
		if a.wants(op.operands[1]) {
			a.add(op.operands[1], Select(wins(y, x), ct, half))
		}
	}
}

func powVJP(a *adjoint, op *Op, ct *Value) {
	x, y := a.val(op.operands[0]), a.val(op.operands[1])
	one, zero := ct.b().Full(ct.typ, 1), ZerosLike(ct)
	if a.wants(op.operands[0]) {
		// y·x^(y-1), with exponent 1 instead of -1 where y = 0, so that 0·∞ does not appear.
		e := Select(Equal(y, zero), one, Sub(y, one))
		a.add(op.operands[0], Mul(ct, Mul(y, Pow(x, e))))
	}
	if a.wants(op.operands[1]) {
		safe := Select(Equal(x, zero), one, x)
		a.add(op.operands[1], Mul(ct, Mul(Log(safe), a.val(op.results[0]))))
	}
}

func remVJP(a *adjoint, op *Op, ct *Value) {
	a.add(op.operands[0], ct)
	if a.wants(op.operands[1]) {
		q := Div(a.val(op.operands[0]), a.val(op.operands[1]))
		trunc := Mul(Sign(q), Floor(Abs(q)))
		a.add(op.operands[1], Neg(Mul(ct, trunc)))
	}
}

func atan2VJP(a *adjoint, op *Op, ct *Value) {
	y, x := a.val(op.operands[0]), a.val(op.operands[1])
	g := Div(ct, Add(Mul(x, x), Mul(y, y)))
	a.add(op.operands[0], Mul(g, x))
	a.add(op.operands[1], Neg(Mul(g, y)))
}

// Neg is -x.
func Neg(x *Value) *Value { return x.b().emit1(opNeg, nil, x) }

// Abs is |x|; its derivative at 0 is 0.
func Abs(x *Value) *Value { return x.b().emit1(opAbs, nil, x) }

// Sign is -1, 0 or 1.
func Sign(x *Value) *Value { return x.b().emit1(opSign, nil, x) }

// Exp is e^x.
func Exp(x *Value) *Value { return x.b().emit1(opExp, nil, x) }

// Expm1 is e^x - 1, accurate near 0.
func Expm1(x *Value) *Value { return x.b().emit1(opExpm1, nil, x) }

// Log is the natural logarithm.
func Log(x *Value) *Value { return x.b().emit1(opLog, nil, x) }

// Log1p is log(1+x), accurate near 0.
func Log1p(x *Value) *Value { return x.b().emit1(opLog1p, nil, x) }

// Sqrt is the square root.
func Sqrt(x *Value) *Value { return x.b().emit1(opSqrt, nil, x) }

// Rsqrt is 1/√x.
func Rsqrt(x *Value) *Value { return x.b().emit1(opRsqrt, nil, x) }

// Cbrt is the cube root.
func Cbrt(x *Value) *Value { return x.b().emit1(opCbrt, nil, x) }

// Tanh is the hyperbolic tangent.
func Tanh(x *Value) *Value { return x.b().emit1(opTanh, nil, x) }

// Sin is the sine of x in radians.
func Sin(x *Value) *Value { return x.b().emit1(opSin, nil, x) }

// Cos is the cosine of x in radians.
func Cos(x *Value) *Value { return x.b().emit1(opCos, nil, x) }

// Tan is the tangent of x in radians.
func Tan(x *Value) *Value { return x.b().emit1(opTan, nil, x) }

// Logistic is the sigmoid 1/(1+e^-x).
func Logistic(x *Value) *Value { return x.b().emit1(opLogistic, nil, x) }

// Erf is the error function.
func Erf(x *Value) *Value { return x.b().emit1(opErf, nil, x) }

// Floor rounds towards -∞. Its derivative is 0.
func Floor(x *Value) *Value { return x.b().emit1(opFloor, nil, x) }

// Ceil rounds towards +∞. Its derivative is 0.
func Ceil(x *Value) *Value { return x.b().emit1(opCeil, nil, x) }

// Round rounds to the nearest integer, ties to even. Its derivative is 0.
func Round(x *Value) *Value { return x.b().emit1(opRound, nil, x) }

// Not inverts booleans, or the bits of integers.
func Not(x *Value) *Value { return x.b().emit1(opNot, nil, x) }

// PopCount counts the set bits of integers.
func PopCount(x *Value) *Value { return x.b().emit1(opPopcnt, nil, x) }

// zip broadcasts x and y against each other and records a two-operand op.
func zip(k opKind, x, y *Value) *Value {
	x, y = broadcast2(defs[k].name, x, y)
	return x.b().emit1(k, nil, x, y)
}

// Add is x+y. Like every two-operand function here it aligns shapes at the
// last dimension and repeats dimensions of size 1, as NumPy does; element types
// must be equal.
func Add(x, y *Value) *Value { return zip(opAdd, x, y) }

// Sub is x-y.
func Sub(x, y *Value) *Value { return zip(opSub, x, y) }

// Mul is x·y, element by element.
func Mul(x, y *Value) *Value { return zip(opMul, x, y) }

// Div is x/y. Integer division truncates towards zero.
func Div(x, y *Value) *Value { return zip(opDiv, x, y) }

// Max is the larger of x and y; on a tie each gets half the cotangent.
func Max(x, y *Value) *Value { return zip(opMax, x, y) }

// Min is the smaller of x and y; on a tie each gets half the cotangent.
func Min(x, y *Value) *Value { return zip(opMin, x, y) }

// Pow is x^y.
func Pow(x, y *Value) *Value { return zip(opPow, x, y) }

// Rem is the remainder of x/y with the sign of x.
func Rem(x, y *Value) *Value { return zip(opRem, x, y) }

// Atan2 is the angle of the point (x, y), in (-π, π].
func Atan2(y, x *Value) *Value { return zip(opAtan2, y, x) }

// And is the conjunction of booleans, or of the bits of integers.
func And(x, y *Value) *Value { return zip(opAnd, x, y) }

// Or is the disjunction of booleans, or of the bits of integers.
func Or(x, y *Value) *Value { return zip(opOr, x, y) }

// Xor is the exclusive or of booleans, or of the bits of integers.
func Xor(x, y *Value) *Value { return zip(opXor, x, y) }

// ShiftLeft shifts the bits of x left by y.
func ShiftLeft(x, y *Value) *Value { return zip(opShiftLeft, x, y) }

// ShiftRightLogical shifts the bits of x right by y, filling with zeros.
func ShiftRightLogical(x, y *Value) *Value { return zip(opShiftRightLogical, x, y) }

// ShiftRightArithmetic shifts the bits of x right by y, filling with the sign.
func ShiftRightArithmetic(x, y *Value) *Value { return zip(opShiftRightArithmetic, x, y) }

// AddScalar is x+c, with c rounded to x's element type.
func AddScalar(x *Value, c float64) *Value { return Add(x, x.b().Scalar(x.typ.DType, c)) }

// MulScalar is x·c, with c rounded to x's element type.
func MulScalar(x *Value, c float64) *Value { return Mul(x, x.b().Scalar(x.typ.DType, c)) }
