package graph_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

func unary(f func(x *Value) *Value) func(x []*Value) *Value {
	return func(x []*Value) *Value { return f(x[0]) }
}

func binary(f func(x, y *Value) *Value) func(x []*Value) *Value {
	return func(x []*Value) *Value { return f(x[0], x[1]) }
}

func one(f func(x float64) float64) func(x ...float64) float64 {
	return func(x ...float64) float64 { return f(x[0]) }
}

func two(f func(x, y float64) float64) func(x ...float64) float64 {
	return func(x ...float64) float64 { return f(x[0], x[1]) }
}

func sign(x float64) float64 {
	if x == 0 {
		return 0
	}
	return math.Copysign(1, x)
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func TestElementwise(t *testing.T) {
	x, y := normal(1, 3, 4), normal(2, 3, 4)
	pos := uniform(3, 0.3, 3, 3, 4)
	cases := []checked{
		fn("neg", unary(Neg), x).is(one(func(x float64) float64 { return -x })),
		fn("abs", unary(Abs), x).is(one(math.Abs)),
		fn("exp", unary(Exp), x).is(one(math.Exp)),
		fn("expm1", unary(Expm1), x).is(one(math.Expm1)),
		fn("log", unary(Log), pos).is(one(math.Log)),
		fn("log1p", unary(Log1p), pos).is(one(math.Log1p)),
		fn("sqrt", unary(Sqrt), pos).is(one(math.Sqrt)),
		fn("rsqrt", unary(Rsqrt), pos).is(one(func(x float64) float64 { return 1 / math.Sqrt(x) })),
		fn("cbrt", unary(Cbrt), x).is(one(math.Cbrt)),
		fn("tanh", unary(Tanh), x).is(one(math.Tanh)),
		fn("sin", unary(Sin), x).is(one(math.Sin)),
		fn("cos", unary(Cos), x).is(one(math.Cos)),
		fn("tan", unary(Tan), uniform(4, -1, 1, 3, 4)).is(one(math.Tan)),
		fn("logistic", unary(Logistic), x).is(one(sigmoid)),
		fn("erf", unary(Erf), x).is(one(math.Erf)),
		fn("add", binary(Add), x, y).is(two(func(x, y float64) float64 { return x + y })),
		fn("sub", binary(Sub), x, y).is(two(func(x, y float64) float64 { return x - y })),
		fn("mul", binary(Mul), x, y).is(two(func(x, y float64) float64 { return x * y })),
		fn("div", binary(Div), x, pos).is(two(func(x, y float64) float64 { return x / y })),
		fn("max", binary(Max), x, y).is(two(math.Max)),
		fn("min", binary(Min), x, y).is(two(math.Min)),
		fn("pow", binary(Pow), pos, y).is(two(math.Pow)),
		fn("rem", binary(Rem), x, pos).is(two(math.Mod)),
		fn("atan2", binary(Atan2), x, y).is(two(math.Atan2)),
		fn("add_scalar", unary(func(x *Value) *Value { return AddScalar(x, 0.3) }), x).is(one(func(x float64) float64 { return x + 0.3 })),
		fn("mul_scalar", unary(func(x *Value) *Value { return MulScalar(x, 0.3) }), x).is(one(func(x float64) float64 { return x * 0.3 })),
		fn("square", unary(Square), x).is(one(func(x float64) float64 { return x * x })),
		fn("mul of one value", unary(func(x *Value) *Value { return Mul(x, Mul(x, x)) }), x).is(one(func(x float64) float64 { return x * x * x })),
	}
	steps := []checked{
		fn("sign", unary(Sign), x).is(one(sign)),
		fn("floor", unary(Floor), x).is(one(math.Floor)),
		fn("ceil", unary(Ceil), x).is(one(math.Ceil)),
		fn("round", unary(Round), arr(T(F64, 6), -1.5, -0.5, 0.5, 1.5, 2.5, 0.7)).is(one(math.RoundToEven)),
		fn("stop_gradient", unary(StopGradient), x).is(one(func(x float64) float64 { return x })),
	}
	for i := range steps {
		steps[i].zero = true
	}
	checkAll(t, nil, append(cases, steps...))
}

// Shapes that broadcast, zero-size arrays and scalars.
func TestBroadcasting(t *testing.T) {
	mul := func(name string, x, y array) checked { return fn(name, binary(Mul), x, y) }
	checkAll(t, nil, []checked{
		mul("scalars", normal(1), normal(2)),
		mul("scalar with matrix", normal(1), normal(2, 2, 3)),
		mul("row with matrix", normal(1, 3), normal(2, 2, 3)),
		mul("column with row", normal(1, 2, 1), normal(2, 1, 3)),
		mul("ones on both sides", normal(1, 4, 1, 2), normal(2, 1, 3, 1)),
		mul("rank 1 with rank 4", normal(1, 1), normal(2, 2, 1, 2, 1)),
		mul("empty", normal(1, 0, 3), normal(2, 3)),
		mul("empty with one", normal(1, 0, 3), normal(2, 1, 3)),
		fn("max with a row", binary(Max), normal(1, 3), normal(2, 2, 3)),
		fn("div by a column", binary(Div), normal(1, 2, 3), uniform(2, 1, 2, 2, 1)),
		fn("broadcast_to", unary(func(x *Value) *Value { return BroadcastTo(x, 2, 3, 4) }), normal(1, 3, 1)),
		fn("broadcast scalar", unary(func(x *Value) *Value { return BroadcastTo(x, 2, 3) }), normal(1)),
		fn("broadcast_in_dim", unary(func(x *Value) *Value { return BroadcastInDim(x, []int{4, 3, 2}, []int{2, 0}) }), normal(1, 2, 1)),
		fn("broadcast one to one", unary(func(x *Value) *Value { return BroadcastTo(x, 1, 1) }), normal(1, 1)),
		fn("broadcast to empty", unary(func(x *Value) *Value { return BroadcastTo(x, 0, 2) }), normal(1, 1, 2)),
		fn("select with scalars", func(x []*Value) *Value {
			return Select(Greater(x[0], x[1]), x[0], MulScalar(x[1], 3))
		}, normal(1, 3), normal(2, 2, 3)),
	})
}

// On a tie the cotangent is shared equally, as in JAX.
func TestTies(t *testing.T) {
	m := trace(t, nil, func(b *Builder) {
		x, y := b.Input("x", T(F64, 4)), b.Input("y", T(F64, 4))
		for _, f := range []func(x, y *Value) *Value{Max, Min} {
			for _, g := range VJP([]*Value{f(x, y)}, []*Value{b.Full(T(F64, 4), 1)}, []*Value{x, y}) {
				b.Output("g", g)
			}
		}
		z := Reshape(x, 2, 2)
		for _, f := range []func(x *Value, dims ...int) *Value{ReduceMax, ReduceMin} {
			b.Output("g", VJP([]*Value{f(z, 1)}, []*Value{b.Full(T(F64, 2), 1)}, []*Value{x})[0])
		}
		for _, f := range []func(x *Value) *Value{Abs, Relu} {
			b.Output("g", VJP([]*Value{f(Sub(x, y))}, []*Value{b.Full(T(F64, 4), 1)}, []*Value{x})[0])
		}
	})
	got := run(t, m, arr(T(F64, 4), 1, 2, 5, 5), arr(T(F64, 4), 1, 3, 5, 4))
	for i, want := range [][]float64{
		{.5, 0, .5, 1}, {.5, 1, .5, 0}, {.5, 1, .5, 0}, {.5, 0, .5, 1}, // max, min
		{0, 1, .5, .5}, {1, 0, .5, .5}, // reductions
		{0, -1, 0, 1}, {0, 0, 0, 1}, // abs and relu of 0, -1, 0, 1
	} {
		require.Equal(t, want, got[i].data, "result %d", i)
	}
}

func TestShapeOps(t *testing.T) {
	x := normal(1, 2, 3, 4)
	pad := func(low, high, interior []int) func(x []*Value) *Value {
		return func(x []*Value) *Value { return Pad(x[0], x[1], low, high, interior) }
	}
	idx := func(name string, i ...float64) array { return arr(T(S32, len(i)), i...) }
	starts := func(v *Value) []*Value {
		var out []*Value
		for i := range v.Dim(0) {
			out = append(out, Reshape(SliceDim(v, 0, i, i+1)))
		}
		return out
	}
	checkAll(t, nil, []checked{
		fn("reshape", unary(func(x *Value) *Value { return Reshape(x, 4, -1) }), x).equals(array{T(F64, 4, 6), x.data}),
		fn("reshape to scalar", unary(func(x *Value) *Value { return Reshape(x) }), normal(1, 1, 1)),
		fn("transpose", unary(func(x *Value) *Value { return Transpose(x, 2, 0, 1) }), x),
		fn("transpose matrix", unary(func(x *Value) *Value { return Transpose(x, 1, 0) }), arr(T(F64, 2, 3), 1, 2, 3, 4, 5, 6)).
			equals(arr(T(F64, 3, 2), 1, 4, 2, 5, 3, 6)),
		fn("reverse", unary(func(x *Value) *Value { return Reverse(x, 0, -1) }), arr(T(F64, 2, 3), 1, 2, 3, 4, 5, 6)).
			equals(arr(T(F64, 2, 3), 6, 5, 4, 3, 2, 1)),
		fn("expand_dims", unary(func(x *Value) *Value { return ExpandDims(ExpandDims(x, -1), 1) }), x),
		fn("squeeze", unary(func(x *Value) *Value { return Squeeze(x, 0, -1) }), normal(1, 1, 3, 1)),
		fn("slice", unary(func(x *Value) *Value { return Slice(x, []int{0, 1, 1}, []int{2, 3, 4}, nil) }), x),
		fn("strided slice", unary(func(x *Value) *Value { return Slice(x, []int{1, 0}, []int{7, 4}, []int{2, 3}) }), normal(1, 8, 5)),
		fn("strided slice values", unary(func(x *Value) *Value { return Slice(x, []int{1}, []int{6}, []int{2}) }), arr(T(F64, 7), 0, 1, 2, 3, 4, 5, 6)).
			equals(arr(T(F64, 3), 1, 3, 5)),
		fn("empty slice", unary(func(x *Value) *Value { return Slice(x, []int{2}, []int{2}, nil) }), normal(1, 4)),
		fn("slice_dim", unary(func(x *Value) *Value { return SliceDim(x, -1, 1, 3) }), x),
		fn("split", unary(func(x *Value) *Value { p := Split(x, 2, 2); return Mul(p[0], p[1]) }), x),
		fn("concat", binary(func(x, y *Value) *Value { return Concat(1, x, y, x) }), normal(1, 2, 2), normal(2, 2, 3)),
		fn("concat with empty", binary(func(x, y *Value) *Value { return Concat(0, x, y) }), normal(1, 0, 2), normal(2, 2, 2)),
		fn("stack", binary(func(x, y *Value) *Value { return Stack(-1, x, y) }), arr(T(F64, 2), 1, 2), arr(T(F64, 2), 3, 4)).
			equals(arr(T(F64, 2, 2), 1, 3, 2, 4)),
		fn("stack scalars", binary(func(x, y *Value) *Value { return Stack(0, x, y) }), normal(1), normal(2)),
		fn("pad", pad([]int{1, 0}, []int{2, 1}, nil), normal(1, 2, 3), normal(2)),
		fn("interior pad", pad([]int{1}, []int{0}, []int{2}), arr(T(F64, 3), 1, 2, 3), arr(T(F64), 9)).
			equals(arr(T(F64, 8), 9, 1, 9, 9, 2, 9, 9, 3)),
		fn("pad of empty", pad([]int{1}, []int{2}, []int{1}), normal(1, 0), normal(2)),
		fn("dynamic_slice", func(x []*Value) *Value { return DynamicSlice(x[0], []int{1, 2}, starts(x[1])...) }, normal(1, 3, 4), idx("i", 1, 2)),
		fn("dynamic_slice clamped", func(x []*Value) *Value { return DynamicSlice(x[0], []int{2}, starts(x[1])...) }, arr(T(F64, 3), 1, 2, 3), idx("i", 9)).
			equals(arr(T(F64, 2), 2, 3)),
		fn("dynamic_slice_dim", func(x []*Value) *Value { return DynamicSliceDim(x[0], -1, Reshape(x[1]), 2) }, normal(1, 3, 4), idx("i", 1)),
		fn("dynamic_update_slice", func(x []*Value) *Value { return DynamicUpdateSlice(x[0], x[1], starts(x[2])...) }, normal(1, 3, 4), normal(2, 2, 2), idx("i", 1, 1)),
		fn("dynamic_update_slice clamped", func(x []*Value) *Value { return DynamicUpdateSlice(x[0], x[1], starts(x[2])...) }, arr(T(F64, 3), 1, 2, 3), arr(T(F64, 2), 8, 9), idx("i", 7)).
			equals(arr(T(F64, 3), 1, 8, 9)),
		fn("dynamic_update_slice_dim", func(x []*Value) *Value { return DynamicUpdateSliceDim(x[0], x[1], 0, Reshape(x[2])) }, normal(1, 3, 2), normal(2, 1, 2), idx("i", 2)),
	})
}

func TestReductions(t *testing.T) {
	x := normal(1, 2, 3, 4)
	small := arr(T(F64, 2, 3), 1, -2, 3, 0.5, 5, -6)
	dims := func(f func(*Value, ...int) *Value, d ...int) func(x []*Value) *Value {
		return func(x []*Value) *Value { return f(x[0], d...) }
	}
	zero := arr(T(F64, 2, 3), 0, 2, 3, 0, 0, 5)
	checkAll(t, nil, []checked{
		fn("sum", dims(Sum, 1), x),
		fn("sum all", dims(Sum), small).equals(arr(T(F64), 1.5)),
		fn("sum rows", dims(Sum, -1), small).equals(arr(T(F64, 2), 2, -0.5)),
		fn("sum empty", dims(Sum, 0), normal(1, 0, 2)).equals(arr(T(F64, 2), 0, 0)),
		fn("sum of nothing", dims(Sum), normal(1)),
		fn("mean", dims(Mean, 0, 2), x),
		fn("mean all", dims(Mean), small).equals(arr(T(F64), 0.25)),
		fn("max", dims(ReduceMax, 1, -1), x),
		fn("max values", dims(ReduceMax, 1), small).equals(arr(T(F64, 2), 3, 5)),
		fn("min", dims(ReduceMin), x),
		fn("min values", dims(ReduceMin, 0), small).equals(arr(T(F64, 3), 0.5, -2, -6)),
		fn("prod", dims(Prod, 1), x),
		fn("prod of two dimensions", dims(Prod, 0, 2), x),
		fn("prod values", dims(Prod, 1), small).equals(arr(T(F64, 2), -6, -15)),
		fn("prod with zeros", dims(Prod, 1), zero).equals(arr(T(F64, 2), 0, 0)),
		fn("prod empty", dims(Prod, 0), normal(1, 0, 2)).equals(arr(T(F64, 2), 1, 1)),
		fn("keep_dims", func(x []*Value) *Value { return Mul(x[0], KeepDims(Sum(x[0], 0, 2), x[0].Shape(), 0, -1)) }, x),
	})
	b := arr(T(Bool, 2, 2), 1, 0, 1, 1)
	i := arr(T(S32, 2, 2), 3, -7, 2, 5)
	m := trace(t, nil, func(bl *Builder) {
		x, y := bl.Input("b", b.Type), bl.Input("i", i.Type)
		for _, v := range []*Value{All(x, 1), Any(x, 0), Sum(y, 0), ReduceMax(y), ReduceMin(y), Prod(y, 1)} {
			bl.Output("v", v)
		}
	})
	got := run(t, m, b, i)
	for k, want := range [][]float64{{0, 1}, {1, 1}, {5, -2}, {5}, {-7}, {-21, 10}} {
		require.Equal(t, want, got[k].data, "result %d", k)
	}
}

// Sums and means of narrow floats are taken in f32: bf16 would stop at 256.
func TestNarrowSums(t *testing.T) {
	m := trace(t, nil, func(b *Builder) {
		x := b.Full(T(BF16, 4096), 1)
		b.Output("sum", Sum(x))
		b.Output("mean", Mean(x))
		y := b.Input("y", T(BF16))
		b.Output("grad", VJP([]*Value{BroadcastTo(y, 4096)}, []*Value{x}, []*Value{y})[0])
	})
	got := run(t, m, arr(T(BF16), 1))
	require.Equal(t, []float64{4096}, got[0].data)
	require.Equal(t, []float64{1}, got[1].data)
	require.Equal(t, []float64{4096}, got[2].data)
}

func TestContractions(t *testing.T) {
	ein := func(spec string, x, y array) checked {
		return fn(spec, binary(func(x, y *Value) *Value { return Einsum(spec, x, y) }), x, y).withEinsum(spec)
	}
	cases := []checked{
		ein("ab,bc->ac", normal(1, 2, 3), normal(2, 3, 4)),
		ein("ab,cb->ca", normal(1, 2, 3), normal(2, 4, 3)),
		ein("ba,bc->ac", normal(1, 3, 2), normal(2, 3, 4)),
		ein("a,a->", normal(1, 3), normal(2, 3)),
		ein("a,b->ab", normal(1, 2), normal(2, 3)),
		ein("a,b->ba", normal(1, 2), normal(2, 3)),
		ein("ab,ab->ab", normal(1, 2, 3), normal(2, 2, 3)),
		ein("ab,ab->ba", normal(1, 2, 3), normal(2, 2, 3)),
		ein("abc,b->ac", normal(1, 2, 3, 4), normal(2, 3)),
		ein("abc,dc->abd", normal(1, 2, 2, 3), normal(2, 4, 3)),
		ein("bsd,dhk->bshk", normal(1, 2, 3, 4), normal(2, 4, 2, 3)),
		ein("bshk,hkd->bsd", normal(1, 2, 3, 2, 2), normal(2, 2, 2, 4)),
		ein("bqhgd,bkhd->bhgqk", normal(1, 2, 2, 2, 2, 3), normal(2, 2, 3, 2, 3)),
		ein("bhgqk,bkhd->bqhgd", normal(1, 2, 2, 2, 2, 3), normal(2, 2, 3, 2, 2)),
		ein("abcd,dcba->ac", normal(1, 2, 3, 2, 3), normal(2, 3, 2, 3, 2)),
		ein("abcd,cb->da", normal(1, 2, 3, 2, 2), normal(2, 2, 3)),
		ein("ab,cd->bd", normal(1, 2, 3), normal(2, 2, 2)), // a and c are summed first
		ein("abx,bcy->ac", normal(1, 2, 3, 2), normal(2, 3, 2, 2)),
		ein("ab,bc->ac", normal(1, 0, 3), normal(2, 3, 2)),
		ein("ab,bc->ac", normal(1, 2, 0), normal(2, 0, 2)),
		ein(",ab->ba", normal(1), normal(2, 2, 3)),
		fn("matmul", binary(func(x, y *Value) *Value { return MatMul(x, y) }), normal(1, 2, 3, 4), normal(2, 4, 2)),
		fn("batched matmul", binary(func(x, y *Value) *Value { return MatMul(x, y) }), normal(1, 2, 3, 4), normal(2, 2, 4, 2)),
		fn("dot_general", binary(func(x, y *Value) *Value {
			return DotGeneral(x, y, DotDims{Batch: [][2]int{{2, 0}, {0, 3}}, Contract: [][2]int{{3, 1}}}, 0, Highest)
		}), normal(1, 2, 3, 2, 4), normal(2, 2, 4, 3, 2)),
		fn("dot_general, two contractions", binary(func(x, y *Value) *Value {
			return DotGeneral(x, y, DotDims{Contract: [][2]int{{2, 0}, {0, 2}}}, 0, High)
		}), normal(1, 2, 3, 4), normal(2, 4, 2, 2)),
		fn("square", unary(func(x *Value) *Value { return Einsum("ab,ac->bc", x, x) }), normal(1, 3, 2)),
	}
	for i := range cases {
		cases[i].name = strings.NewReplacer(",", "_", "->", "=").Replace(cases[i].name)
	}
	checkAll(t, nil, cases)
}

// withEinsum adds the expected result, by summing over all letters.
func (c checked) withEinsum(spec string) checked {
	in, out, _ := strings.Cut(spec, "->")
	xs, ys, _ := strings.Cut(in, ",")
	c.want = func(a []array) []array {
		var letters []byte
		var sizes []int
		for i, s := range []string{xs, ys} {
			for k := range len(s) {
				if !strings.Contains(string(letters), s[k:k+1]) {
					letters, sizes = append(letters, s[k]), append(sizes, a[i].Shape[k])
				}
			}
		}
		var shape []int
		for k := range len(out) {
			shape = append(shape, sizes[strings.IndexByte(string(letters), out[k])])
		}
		res := array{T(F64, shape...), nil}
		res.data = make([]float64, res.Elements())
		each(sizes, func(ix []int) {
			at := func(s string, shape []int) int {
				n := 0
				for k := range len(s) {
					n = n*shape[k] + ix[strings.IndexByte(string(letters), s[k])]
				}
				return n
			}
			res.data[at(out, shape)] += a[0].data[at(xs, a[0].Shape)] * a[1].data[at(ys, a[1].Shape)]
		})
		return []array{res}
	}
	return c
}

func TestNN(t *testing.T) {
	x := normal(1, 3, 4)
	gauss := func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }
	tanhGelu := func(x float64) float64 {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	// Large inputs must not overflow.
	big := arr(T(F64, 2, 3), 1000, 1001, -1000, -1e6, -1e6-1, -1e6)
	inf := math.Inf(-1)
	masked := arr(T(F64, 2, 3), 1, inf, 2, inf, inf, inf)
	checkAll(t, nil, []checked{
		fn("relu", unary(Relu), x).is(one(func(x float64) float64 { return max(x, 0) })),
		fn("silu", unary(Silu), x).is(one(func(x float64) float64 { return x * sigmoid(x) })),
		fn("gelu", unary(Gelu), x).is(one(gauss)),
		fn("gelu_tanh", unary(GeluTanh), x).is(one(tanhGelu)),
		fn("softplus", unary(Softplus), x).is(one(func(x float64) float64 { return math.Log1p(math.Exp(x)) })),
		fn("softplus of large", unary(Softplus), arr(T(F64, 2), 1000, -1000)).equals(arr(T(F64, 2), 1000, 0)),
		fn("softmax", unary(func(x *Value) *Value { return Softmax(x, 0) }), x),
		fn("softmax of large", unary(func(x *Value) *Value { return Softmax(x, -1) }), big).equals(softmaxRows(big)),
		fn("log_sum_exp", unary(func(x *Value) *Value { return LogSumExp(x, 1) }), x),
		fn("log_sum_exp of large", unary(func(x *Value) *Value { return LogSumExp(x, -1) }), big).within(1e-4).
			equals(arr(T(F64, 2), 1001+math.Log1p(math.Exp(-1)), -1e6+math.Log(2+math.Exp(-1)))),
		fn("log_softmax", unary(func(x *Value) *Value { return LogSoftmax(x, 1) }), x),
		fn("log_softmax of large", unary(func(x *Value) *Value { return Exp(LogSoftmax(x, -1)) }), big).within(1e-4).equals(softmaxRows(big)),
		fn("cross entropy", func(x []*Value) *Value {
			return Sub(LogSumExp(x[0], -1), Sum(Mul(x[0], OneHot(x[1], 4, F64)), -1))
		}, x, arr(T(S32, 3), 0, 3, 9)),
	})
	m := trace(t, nil, func(b *Builder) {
		x := b.Input("x", masked.Type)
		b.Output("softmax", Softmax(x, -1))
		b.Output("lse", LogSumExp(x, -1))
		b.Output("one_hot", OneHot(b.ConstS32([]int{2, 2}, []int32{2, 0, -1, 3}), 3, F32))
	})
	got := run(t, m, masked)
	require.InDeltaSlice(t, []float64{1 / (1 + math.E), 0, math.E / (1 + math.E)}, got[0].data[:3], 1e-12)
	require.InDelta(t, 2+math.Log1p(math.Exp(-1)), got[1].data[0], 1e-12)
	require.Equal(t, inf, got[1].data[1], "nothing to sum over")
	require.Equal(t, []float64{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, got[2].data)
}

func softmaxRows(a array) array {
	out := array{a.Type, append([]float64(nil), a.data...)}
	n := a.Shape[1]
	for r := range a.Shape[0] {
		row, top, sum := out.data[r*n:(r+1)*n], math.Inf(-1), 0.0
		for _, x := range row {
			top = max(top, x)
		}
		for i := range row {
			row[i] = math.Exp(row[i] - top)
			sum += row[i]
		}
		for i := range row {
			row[i] /= sum
		}
	}
	return out
}
