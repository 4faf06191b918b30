package graph

import "math"

// Square is x².
func Square(x *Value) *Value { return Mul(x, x) }

// Relu is max(x, 0), with derivative 0 at 0.
func Relu(x *Value) *Value {
	zero := ZerosLike(x)
	return Select(Greater(x, zero), x, zero)
}

// Silu is x·sigmoid(x).
func Silu(x *Value) *Value { return Mul(x, Logistic(x)) }

// Gelu is the exact Gaussian error linear unit x·Φ(x).
func Gelu(x *Value) *Value {
	return Mul(MulScalar(x, 0.5), AddScalar(Erf(MulScalar(x, math.Sqrt2/2)), 1))
}

// GeluTanh is the tanh approximation of Gelu (Hendrycks and Gimpel, 2016).
func GeluTanh(x *Value) *Value {
	inner := MulScalar(Add(x, MulScalar(Mul(x, Mul(x, x)), 0.044715)), math.Sqrt(2/math.Pi))
	return Mul(MulScalar(x, 0.5), AddScalar(Tanh(inner), 1))
}

// Softplus is log(1+e^x), without overflow.
func Softplus(x *Value) *Value {
	return Add(Max(x, ZerosLike(x)), Log1p(Exp(Neg(Abs(x)))))
}

// Softmax normalises e^x along dim. The maximum is subtracted first and takes
// no part in the derivative, which it would leave unchanged.
func Softmax(x *Value, dim int) *Value {
	e := Exp(Sub(x, rowMax(x, dim)))
	return Div(e, KeepDims(Sum(e, dim), x.typ.Shape, dim))
}

// LogSumExp is log Σ e^x along dim, which disappears.
func LogSumExp(x *Value, dim int) *Value {
	m := rowMax(x, dim)
	s := Log(Sum(Exp(Sub(x, m)), dim))
	return Add(s, Squeeze(m, dim))
}

// LogSoftmax is log Softmax, without cancellation.
func LogSoftmax(x *Value, dim int) *Value {
	shifted := Sub(x, rowMax(x, dim))
	return Sub(shifted, KeepDims(Log(Sum(Exp(shifted), dim)), x.typ.Shape, dim))
}

// rowMax is the maximum along dim, kept with size 1 and without derivative. Rows
// of -∞ give 0, so that they do not become NaN.
func rowMax(x *Value, dim int) *Value {
	m := ReduceMax(StopGradient(x), dim)
	m = Select(IsFinite(m), m, ZerosLike(m))
	return KeepDims(m, x.typ.Shape, dim)
}

// OneHot gives 1 at the index along a new last dimension of size n and 0
// elsewhere; rows of indices outside 0…n-1 are all 0.
func OneHot(indices *Value, n int, d DType) *Value {
	if !indices.typ.DType.IsInt() {
		indices.b().failAt(indices.b().position(1), "one_hot", []*Value{indices}, "needs integer indices")
	}
	classes := indices.b().Iota(T(indices.typ.DType, n), 0)
	return Convert(Equal(ExpandDims(indices, -1), classes), d)
}
