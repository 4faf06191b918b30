package kernels

import (
	"slices"

	"titan/dtype"
	"titan/graph"
)

// Binary operations take two operands of one element type: two tiles of one
// shape, or one that is spread to the other's: a scalar, one row [1, n] or one
// column [m, 1].

// Add returns x + y, of f32 or s32.
func Add(x, y *Value) *Value { return binary(opAdd, x, y) }

// Sub returns x − y, of f32 or s32.
func Sub(x, y *Value) *Value { return binary(opSub, x, y) }

// Mul returns x·y, of f32 or s32.
func Mul(x, y *Value) *Value { return binary(opMul, x, y) }

// Div returns x/y, of f32 or s32 (rounded towards zero).
func Div(x, y *Value) *Value { return binary(opDiv, x, y) }

// Rem returns the remainder of [Div] for s32.
func Rem(x, y *Value) *Value {
	if x.typ.DType != dtype.S32 {
		x.k.fail("rem", "of %v; only s32", x.typ)
	}
	return binary(opRem, x, y)
}

// Min returns the smaller of x and y, of f32 or s32.
func Min(x, y *Value) *Value { return binary(opMin, x, y) }

// Max returns the larger of x and y, of f32 or s32.
func Max(x, y *Value) *Value { return binary(opMax, x, y) }

// And returns whether both bools hold.
func And(x, y *Value) *Value { return binary(opAnd, x, y) }

// Or returns whether one of the bools holds.
func Or(x, y *Value) *Value { return binary(opOr, x, y) }

// Not returns whether the bool does not hold.
func Not(x *Value) *Value {
	if x.typ.DType != dtype.Bool {
		x.k.fail("not", "of %v; only bool", x.typ)
	}
	return x.k.add(&Value{op: opNot, typ: x.typ, args: []*Value{x}})
}

// Equal returns x = y.
func Equal(x, y *Value) *Value { return comparison(equal, x, y) }

// NotEqual returns x ≠ y.
func NotEqual(x, y *Value) *Value { return comparison(notEqual, x, y) }

// Less returns x < y.
func Less(x, y *Value) *Value { return comparison(less, x, y) }

// LessEqual returns x ≤ y.
func LessEqual(x, y *Value) *Value { return comparison(lessEqual, x, y) }

// Greater returns x > y.
func Greater(x, y *Value) *Value { return comparison(greater, x, y) }

// GreaterEqual returns x ≥ y.
func GreaterEqual(x, y *Value) *Value { return comparison(greaterEqual, x, y) }

// Exp returns e to the power of x, f32.
func Exp(x *Value) *Value { return unary(opExp, x) }

// Log returns the natural logarithm of x, f32.
func Log(x *Value) *Value { return unary(opLog, x) }

// Rsqrt returns 1/√x, f32.
func Rsqrt(x *Value) *Value { return unary(opRsqrt, x) }

// Tanh returns the hyperbolic tangent of x, f32.
func Tanh(x *Value) *Value { return unary(opTanh, x) }

// Logistic returns 1/(1+e^−x), f32.
func Logistic(x *Value) *Value {
	one := x.k.F32(1)
	return Div(one, Add(one, Exp(Sub(x.k.F32(0), x))))
}

func unary(op opcode, x *Value) *Value {
	if x.typ.DType != dtype.F32 {
		x.k.fail(op.String(), "of %v; arithmetic is in f32, Convert the operand", x.typ)
	}
	return x.k.add(&Value{op: op, typ: x.typ, args: []*Value{x}})
}

func binary(op opcode, x, y *Value) *Value {
	x, y = spread(op, x, y)
	logic := op == opAnd || op == opOr
	switch d := x.typ.DType; {
	case logic && d != dtype.Bool:
		x.k.fail(op.String(), "of %v; only bool", x.typ)
	case !logic && d != dtype.F32 && d != dtype.S32:
		x.k.fail(op.String(), "of %v; arithmetic is in f32 or s32, Convert the operands", x.typ)
	}
	return x.k.add(&Value{op: op, typ: x.typ, args: []*Value{x, y}})
}

func comparison(c compare, x, y *Value) *Value {
	x, y = spread(opCompare, x, y)
	if d := x.typ.DType; d != dtype.F32 && d != dtype.S32 {
		x.k.fail("compare", "of %v; only f32 and s32", x.typ)
	}
	return x.k.add(&Value{op: opCompare, cmp: c, typ: graph.T(dtype.Bool, x.typ.Shape...), args: []*Value{x, y}})
}

// spread gives x and y one shape.
func spread(op opcode, x, y *Value) (*Value, *Value) {
	if x.typ.DType != y.typ.DType {
		x.k.fail(op.String(), "of %v and %v", x.typ, y.typ)
	}
	shape := x.typ.Shape
	if len(shape) == 0 {
		shape = y.typ.Shape
	}
	if len(shape) == 2 && len(y.typ.Shape) == 2 {
		shape = []int{max(shape[0], y.typ.Shape[0]), max(shape[1], y.typ.Shape[1])}
	}
	return Broadcast(x, shape...), Broadcast(y, shape...)
}

// Broadcast spreads a scalar, a row [1, n] or a column [m, 1] over a tile.
func Broadcast(x *Value, shape ...int) *Value {
	if slices.Equal(x.typ.Shape, shape) {
		return x
	}
	for i, n := range x.typ.Shape {
		if len(shape) != 2 || n != 1 && n != shape[i] {
			x.k.fail("broadcast", "%v does not spread to %v", x.typ, shape)
			break
		}
	}
	return x.k.add(&Value{op: opBroadcast, typ: graph.T(x.typ.DType, shape...), args: []*Value{x}})
}

// Select takes elements of x where cond holds, else of y. x and y are f32 or
// s32, of one type or spread to it; cond is a bool of their shape, or a scalar.
func Select(cond, x, y *Value) *Value {
	x, y = spread(opSelect, x, y)
	if d := x.typ.DType; d != dtype.F32 && d != dtype.S32 {
		x.k.fail("select", "of %v; only f32 and s32, the width of masks", x.typ)
	}
	if cond.typ.DType != dtype.Bool || !cond.scalar() && !slices.Equal(cond.typ.Shape, x.typ.Shape) {
		x.k.fail("select", "by %v of %v", cond.typ, x.typ)
	}
	return x.k.add(&Value{op: opSelect, typ: x.typ, args: []*Value{cond, x, y}})
}

// Convert returns x as another type: between f32 and bf16, or s32 as f32.
func Convert(x *Value, d dtype.DType) *Value {
	from := x.typ.DType
	if from == d {
		return x
	}
	if !(from.IsFloat() && d.IsFloat()) && !(from == dtype.S32 && d == dtype.F32) {
		x.k.fail("convert", "of %v to %v", x.typ, d)
	}
	return x.k.add(&Value{op: opConvert, typ: graph.T(d, x.typ.Shape...), args: []*Value{x}})
}

// Transpose returns a tile with rows and columns exchanged.
func Transpose(x *Value) *Value {
	t := x.typ
	if x.scalar() {
		x.k.fail("transpose", "of the scalar %v", t)
		return x
	}
	return x.k.add(&Value{op: opTranspose, typ: graph.T(t.DType, t.Shape[1], t.Shape[0]), args: []*Value{x}})
}

// Sum adds up an f32 tile along dim, which stays with size 1.
func Sum(x *Value, dim int) *Value { return reduce(opReduceSum, x, dim) }

// ReduceMax is the largest element of an f32 tile along dim, which stays with
// size 1.
func ReduceMax(x *Value, dim int) *Value { return reduce(opReduceMax, x, dim) }

func reduce(op opcode, x *Value, dim int) *Value {
	if x.typ.DType != dtype.F32 || x.scalar() || dim < 0 || dim > 1 {
		x.k.fail(op.String(), "of %v along %d; only f32 tiles, along 0 or 1", x.typ, dim)
		return x
	}
	shape := slices.Clone(x.typ.Shape)
	shape[dim] = 1
	return x.k.add(&Value{op: op, typ: graph.T(dtype.F32, shape...), dim: dim, args: []*Value{x}})
}

// Dot contracts dimension i of tile x with dimension j of tile y, of one float
// type, and accumulates in f32: Dot(x, 1, y, 0) is the matrix product, Dot(x, 1,
// y, 1) that with y transposed. The result has x's remaining dimension first.
func Dot(x *Value, i int, y *Value, j int) *Value {
	k := x.k
	switch {
	case x.scalar() || y.scalar() || i < 0 || i > 1 || j < 0 || j > 1:
		k.fail("dot", "of %v along %d with %v along %d; both must be tiles", x.typ, i, y.typ, j)
		return x
	case x.typ.Shape[i] != y.typ.Shape[j]:
		k.fail("dot", "contracts %d elements of %v with %d of %v", x.typ.Shape[i], x.typ, y.typ.Shape[j], y.typ)
	case x.typ.DType != y.typ.DType || !x.typ.DType.IsFloat():
		k.fail("dot", "of %v and %v; operands have one float type", x.typ, y.typ)
	}
	t := graph.T(dtype.F32, x.typ.Shape[1-i], y.typ.Shape[1-j])
	return k.add(&Value{op: opDot, typ: t, dot: [2]int{i, j}, args: []*Value{x, y}})
}
