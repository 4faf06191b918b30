package graph_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// Rules of VJP itself: what flows where, and what is refused.

func TestVJPArguments(t *testing.T) {
	x := arr(T(F64, 3), 1, 2, 3)
	m := trace(t, nil, func(b *Builder) {
		x, unused := b.Input("x", x.Type), b.Input("unused", T(F64, 2))
		mid := Mul(x, x)
		y, z := Sum(Mul(mid, x)), Sum(mid)
		one := b.Scalar(F64, 1)
		out := func(vs ...*Value) {
			for _, v := range vs {
				b.Output("v", v)
			}
		}
		out(VJP([]*Value{y, z}, []*Value{one, nil}, []*Value{x})...)                              // 3x²
		out(VJP([]*Value{y, z}, []*Value{nil, one}, []*Value{x})...)                              // 2x
		out(VJP([]*Value{y}, []*Value{nil}, []*Value{x})...)                                      // 0
		out(VJP([]*Value{y, y}, []*Value{one, one}, []*Value{x})...)                              // the same output twice: 6x²
		out(Grad(y, x, x)...)                                                                     // asked for twice
		out(Grad(y, mid)...)                                                                      // with respect to an intermediate value: x
		out(Grad(y, mid, x)...)                                                                   // the flow through mid counts for x too
		out(Grad(y, unused)...)                                                                   // 0
		out(VJP([]*Value{mid}, []*Value{b.Const(T(F64, 3), f64s(1, 10, 100))}, []*Value{mid})...) // an output itself
		out(VJP([]*Value{mid}, []*Value{b.Full(T(F32, 3), 2)}, []*Value{x})...)                   // narrower cotangent
		out(VJP([]*Value{x}, []*Value{b.Full(T(F64, 3), 2)}, []*Value{x})...)                     // nothing in between
	})
	got := run(t, m, x, arr(T(F64, 2), 5, 6))
	for i, want := range [][]float64{
		{3, 12, 27}, {2, 4, 6}, {0, 0, 0}, {6, 24, 54}, {3, 12, 27}, {3, 12, 27},
		{1, 2, 3}, {1, 2, 3}, {3, 12, 27}, {0, 0}, {1, 10, 100}, {4, 8, 12}, {2, 2, 2},
	} {
		require.Equal(t, want, got[i].data, "result %d", i)
	}
}

func f64s(xs ...float64) []byte { return arr(T(F64, len(xs)), xs...).encode(F64) }

func TestGradMistakes(t *testing.T) {
	for _, c := range []struct {
		want string
		f    func(b *Builder, x, i *Value)
	}{
		{"scalar float", func(_ *Builder, x, _ *Value) { Grad(x, x) }},
		{"scalar float", func(_ *Builder, x, i *Value) { Grad(Sum(i), x) }},
		{"loss is nil", func(_ *Builder, x, _ *Value) { Grad(nil, x) }},
		{"s32", func(_ *Builder, x, i *Value) { Grad(Sum(x), i) }},
		{"no outputs", func(_ *Builder, x, _ *Value) { VJP(nil, nil, []*Value{x}) }},
		{"2 cotangents for 1 outputs", func(_ *Builder, x, _ *Value) { VJP([]*Value{x}, []*Value{x, x}, []*Value{x}) }},
		{"shape", func(b *Builder, x, _ *Value) { VJP([]*Value{x}, []*Value{b.Scalar(F64, 1)}, []*Value{x}) }},
	} {
		msg := traceError(t, nil, func(b *Builder) {
			x, i := b.Input("x", T(F64, 3)), b.Input("i", T(S32, 3))
			c.f(b, x, i)
			b.Output("x", x)
		})
		require.Contains(t, msg, c.want)
		require.Contains(t, msg, "gradrules_test.go:")
	}
}

// A missing rule is reported with the op and the line that wrote it, and only
// where a cotangent really arrives.
func TestMissingRule(t *testing.T) {
	call := func(b *Builder, x *Value) *Value {
		return b.CustomCall(CustomCallSpec{Target: "foreign", Results: []Type{x.Type()}}, x)[0] // the line
	}
	loop := func(b *Builder, x *Value) *Value {
		return b.While([]*Value{x}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F64, 9)) },
			func(c []*Value) []*Value { return []*Value{MulScalar(c[0], 2)} })[0]
	}
	for name, f := range map[string]func(b *Builder, x *Value) *Value{"custom_call": call, "while": loop} {
		msg := traceError(t, nil, func(b *Builder) {
			x := b.Input("x", T(F64, 3))
			y := f(b, x)
			b.Output("g", Grad(Sum(y), x)[0])
		})
		require.Contains(t, msg, name)
		require.Contains(t, msg, "no derivative")
		require.Regexp(t, `^graph/gradrules_test\.go:\d+: `+name+`\(f64\[3\]\)`, msg)
		// Inside a region the message is the same.
		msg = traceError(t, nil, func(b *Builder) {
			x := b.Input("x", T(F64, 3))
			y, _ := b.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{f(b, c[0])}, nil }, Iterations(2))
			b.Output("g", Grad(Sum(y[0]), x)[0])
		})
		require.Regexp(t, `^graph/gradrules_test\.go:\d+: `+name, msg)
		// Nothing is wrong where no cotangent arrives, or none is asked for.
		trace(t, nil, func(b *Builder) {
			x, y := b.Input("x", T(F64, 3)), b.Input("y", T(F64, 3))
			b.Output("g", Grad(Sum(Add(StopGradient(f(b, x)), x)), x)[0])
			b.Output("h", Grad(Sum(Mul(f(b, x), y)), y)[0])
			f(b, x)
			b.Output("i", Grad(Sum(x), x)[0])
		})
	}
}

// Integers and booleans carry no cotangent, and stop the flow without an error.
func TestIntegerPaths(t *testing.T) {
	checkAll(t, nil, []checked{
		fn("through int", unary(func(x *Value) *Value { return Mul(x, Convert(Convert(MulScalar(x, 3), S32), F64)) }),
			arr(T(F64, 3), 1.25, 2.25, -1.25)).equals(arr(T(F64, 3), 1.25*3, 2.25*6, -1.25*-3)),
		fn("select by comparison", binary(func(x, y *Value) *Value { return Select(Less(x, y), Square(x), y) }), normal(1, 4), normal(2, 4)),
		fn("bool to float", unary(func(x *Value) *Value { return Mul(x, Convert(Greater(x, ZerosLike(x)), F64)) }), normal(1, 4)),
		fn("only int", unary(func(x *Value) *Value { return Convert(Convert(x, S32), F64) }), arr(T(F64, 2), 1.5, -2.5)).
			equals(arr(T(F64, 2), 1, -2)),
	})

	m := trace(t, nil, func(b *Builder) {
		x := b.Input("x", T(F64, 3))
		i := b.Input("i", T(S32, 3))
		// x·bits(x) has the derivative bits(x), not 2x.
		b.Output("bits", Grad(Sum(Mul(x, Bitcast(Bitcast(x, S64), F64))), x)[0])
		// An integer output's cotangent is ignored.
		b.Output("int", VJP([]*Value{Add(i, Convert(x, S32))}, []*Value{nil}, []*Value{x})[0])
		b.Output("ops", Convert(Concat(0, PopCount(i), Not(i), ShiftLeft(i, b.Full(i.Type(), 2)),
			ShiftRightLogical(i, b.Full(i.Type(), 1)), ShiftRightArithmetic(i, b.Full(i.Type(), 1)), Xor(i, b.Full(i.Type(), 6)),
			And(i, b.Full(i.Type(), 6)), Or(i, b.Full(i.Type(), 6)), Div(i, b.Full(i.Type(), 3)), Rem(i, b.Full(i.Type(), 3)),
			Sign(i), Abs(i), Max(i, Neg(i)), Min(i, Neg(i))), F64))
		b.Output("compare", Convert(Stack(0, Equal(i, Abs(i)), NotEqual(i, Abs(i)), Less(i, Abs(i)), LessEqual(i, Abs(i)),
			Greater(i, Neg(i)), GreaterEqual(i, Neg(i)), Not(Equal(i, i))), F64))
		u := Convert(i, U32)
		b.Output("unsigned", Convert(Stack(0, Greater(u, b.Full(u.Type(), 100)), Less(u, b.Full(u.Type(), 100))), F64))
	})
	got := run(t, m, arr(T(F64, 3), 1.5, -2, 3), arr(T(S32, 3), 5, -7, 0))
	require.Equal(t, []float64{1.5, -2, 3}, got[0].data)
	require.Equal(t, []float64{0, 0, 0}, got[1].data)
	var want []float64
	for _, f := range []func(i int32) int32{
		func(i int32) int32 { return int32(strings.Count(fmt.Sprintf("%b", uint32(i)), "1")) },
		func(i int32) int32 { return ^i }, func(i int32) int32 { return i << 2 }, func(i int32) int32 { return int32(uint32(i) >> 1) },
		func(i int32) int32 { return i >> 1 }, func(i int32) int32 { return i ^ 6 }, func(i int32) int32 { return i & 6 },
		func(i int32) int32 { return i | 6 }, func(i int32) int32 { return i / 3 }, func(i int32) int32 { return i % 3 },
		func(i int32) int32 { return int32(sign(float64(i))) }, func(i int32) int32 { return max(i, -i) },
		func(i int32) int32 { return max(i, -i) }, func(i int32) int32 { return min(i, -i) },
	} {
		for _, i := range []int32{5, -7, 0} {
			want = append(want, float64(f(i)))
		}
	}
	require.Equal(t, want, got[2].data)
	require.Equal(t, []float64{1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0}, got[3].data)
	require.Equal(t, []float64{0, 1, 0, 1, 0, 1}, got[4].data)
}

func TestGradOfGrad(t *testing.T) {
	x := arr(T(F64, 3), 0.5, -1, 2)
	second := func(name string, f func(x *Value) *Value) checked {
		return fn("second of "+name, func(x []*Value) *Value { return Grad(Sum(f(x[0])), x[0])[0] }, x)
	}
	pos := func(x *Value) *Value { return AddScalar(Square(x), 0.5) }
	cases := []checked{
		second("cube", func(x *Value) *Value { return Mul(x, Square(x)) }),
		second("exp", Exp), second("tanh", Tanh), second("logistic", Logistic), second("erf", Erf), second("gelu", Gelu),
		second("log", func(x *Value) *Value { return Log(pos(x)) }),
		second("rsqrt", func(x *Value) *Value { return Rsqrt(pos(x)) }),
		second("pow", func(x *Value) *Value { return Pow(pos(x), x) }),
		second("div", func(x *Value) *Value { return Div(x, pos(x)) }),
		second("atan2", func(x *Value) *Value { return Atan2(x, pos(x)) }),
		second("prod", func(x *Value) *Value { return Prod(x) }),
		second("max", func(x *Value) *Value { return Square(ReduceMax(x)) }),
		second("softmax", func(x *Value) *Value { return Square(Softmax(x, 0)) }),
		second("einsum", func(x *Value) *Value { return Square(Einsum("a,b->ab", x, Square(x))) }),
		second("slices", func(x *Value) *Value {
			return Square(Pad(Slice(x, []int{0}, []int{3}, []int{2}), ReduceMax(x), []int{1}, []int{1}, []int{1}))
		}),
		second("convert", func(x *Value) *Value { return Mul(x, Square(x)) }),
		fn("third", func(x []*Value) *Value {
			g := Grad(Sum(Mul(Square(x[0]), Square(x[0]))), x[0])[0]
			return Grad(Sum(Sin(g)), x[0])[0]
		}, arr(T(F64, 2), 0.3, -0.4)),
		fn("hessian vector product", func(x []*Value) *Value {
			g := Grad(Sum(Exp(Einsum("a,a->", x[0], Square(x[0])))), x[0])[0]
			return Grad(Sum(Mul(g, x[1])), x[0])[0]
		}, arr(T(F64, 2), 0.3, -0.4), arr(T(F64, 2), 1, 2)),
		fn("with respect to the cotangent", func(x []*Value) *Value {
			return VJP([]*Value{Sin(x[0])}, []*Value{x[1]}, []*Value{x[0]})[0]
		}, normal(1, 3), normal(2, 3)),
	}
	for i := range cases {
		cases[i].tol = 1e-5
	}
	checkAll(t, nil, cases)
}

// Cotangents are converted to the type of the value they belong to, and sums
// that make them are not taken in fewer bits than the value has.
func TestMixedPrecision(t *testing.T) {
	checkAll(t, nil, []checked{
		fn("f32 between", unary(func(x *Value) *Value { return Convert(Square(Convert(x, F32)), F64) }), normal(1, 4)).within(1e-1),
		fn("mixed einsum", binary(func(x, y *Value) *Value { return Einsum("ab,bc->ac", x, Convert(y, F32)) }), normal(1, 2, 3), normal(2, 3, 2)).within(2e-2),
		fn("as", binary(func(x, y *Value) *Value { return Einsum("ab,bc->ac", x, y, As(F64)) }), normal(1, 2, 3), normal(2, 3, 2)),
	})
	m := trace(t, nil, func(b *Builder) {
		x := b.Input("x", T(BF16, 4))
		y := Square(Convert(x, F32))
		b.Output("g", Grad(Sum(y), x)[0])
		b.Output("r", ReducePrecision(Convert(x, F32), 5, 2))
		b.Output("rg", VJP([]*Value{ReducePrecision(Convert(x, F32), 8, 2)}, []*Value{b.Full(T(F32, 4), 1.1)}, []*Value{x})[0])
	})
	got := run(t, m, arr(T(BF16, 4), 1, 1.5, -2, 3.25))
	require.Equal(t, BF16, got[0].DType)
	require.Equal(t, []float64{2, 3, -4, 6.5}, got[0].data)
	require.Equal(t, []float64{1, 1.5, -2, 3}, got[1].data)
	require.Equal(t, BF16, got[2].DType)
}

// A weight used in bf16 whose gradient is asked for in f32: the contraction
// that makes the gradient must give f32 itself, so that what is added up over
// devices and layers was never rounded to bf16.
func TestWideCotangents(t *testing.T) {
	const n = 64
	build := func(mark func(w *Value) *Value, m *mesh.Mesh) *Module {
		return trace(t, m, func(b *Builder) {
			x, w := b.Input("x", T(F32, n, 8)), b.Input("w", T(F32, 3, 8, 4))
			// The cast copy of the weight is what Constrain and GradIn speak of;
			// its rows are used through views, in a loop.
			cast := Convert(w, BF16)
			if mark != nil {
				cast = mark(cast)
			}
			_, ys := b.Scan(nil, []*Value{Transpose(cast, 0, 2, 1)}, func(_, row []*Value) (next, ys []*Value) {
				return nil, []*Value{Sum(Einsum("nd,fd->nf", Convert(x, BF16), row[0]))}
			})
			b.Output("g", Grad(Sum(Convert(ys[0], F32)), w)[0])
		})
	}
	plain := build(nil, nil)
	wide := build(func(w *Value) *Value { return WithGradIn(w, F32) }, nil)
	constrained := build(func(w *Value) *Value { return Constrain(w, sharding.P(), GradIn(F32)) }, newMesh(t, axis("d", 2)))

	dots := func(m *Module) []string { return resultTypes(m, "stablehlo.dot_general") }
	require.NotContains(t, dots(plain), "f32")
	require.Contains(t, dots(wide), "f32")
	require.Contains(t, dots(constrained), "f32")

	// The exact gradient is the sum over rows of x rounded to bf16.
	x := normal(3, n, 8).as(F32)
	w := normal(4, 3, 8, 4).as(F32)
	xb := x.as(BF16)
	worst := func(m *Module) (e float64) {
		g := run(t, m, x, w)[0]
		for d := range 8 {
			sum := 0.0
			for i := range n {
				sum += xb.data[i*8+d]
			}
			for l := range 3 {
				for f := range 4 {
					e = max(e, math.Abs(g.data[(l*8+d)*4+f]-sum))
				}
			}
		}
		return e
	}
	require.Less(t, worst(wide), 1e-5)
	require.Less(t, worst(constrained), 1e-5)
	require.Greater(t, worst(plain), 1e-3, "bf16 sums must round, or this test shows nothing")
}

// resultTypes lists the element types of the results of all ops of one name.
func resultTypes(m *Module, op string) (types []string) {
	inside := false
	for _, line := range strings.Split(m.StableHLO(), "\n") {
		inside = inside || strings.Contains(line, op)
		if arrow := strings.LastIndex(line, "-> tensor<"); inside && arrow >= 0 {
			types = append(types, line[strings.LastIndexByte(line, 'x')+1:strings.LastIndexByte(line, '>')])
			inside = false
		}
	}
	return types
}

// The asked type follows the array through every form it takes, also into and
// out of a manual region, where the sum over devices must be taken in it.
func TestWideCotangentsFollow(t *testing.T) {
	m := newMesh(t, axis("d", 2), axis("e", 2))
	for name, f := range map[string]func(b *Builder, w *Value) *Value{
		"reshape":       func(_ *Builder, w *Value) *Value { return Reshape(w, 2, 16) },
		"transpose":     func(_ *Builder, w *Value) *Value { return Transpose(w, 1, 0) },
		"reverse":       func(_ *Builder, w *Value) *Value { return Reverse(w, 1) },
		"slice":         func(_ *Builder, w *Value) *Value { return SliceDim(w, 0, 1, 3) },
		"dynamic_slice": func(b *Builder, w *Value) *Value { return DynamicSliceDim(w, 0, b.Int(S32, 1), 2) },
		"broadcast":     func(_ *Builder, w *Value) *Value { return Reshape(BroadcastTo(ExpandDims(w, 0), 3, 4, 8), 12, 8) },
		"name":          func(_ *Builder, w *Value) *Value { return Name(w, "w") },
		"barrier":       func(_ *Builder, w *Value) *Value { return Barrier(w)[0] },
		"constrain":     func(_ *Builder, w *Value) *Value { return Constrain(w, sharding.P(nil, "d")) },
		"memory":        func(_ *Builder, w *Value) *Value { return ToDevice(ToHost(w)) },
		"checkpoint": func(b *Builder, w *Value) *Value {
			return b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{Transpose(w, 1, 0)} })[0]
		},
	} {
		mod := trace(t, m, func(b *Builder) {
			w := b.Input("w", T(F32, 4, 8))
			x := f(b, WithGradIn(Convert(w, BF16), F32))
			y := Einsum("ab,cb->ac", b.Input("x", T(BF16, 5, x.Dim(1))), x)
			b.Output("g", VJP([]*Value{y}, []*Value{b.Input("ct", y.Type())}, []*Value{w})[0])
		})
		require.Equal(t, []string{"f32"}, resultTypes(mod, "stablehlo.dot_general"), name)
		require.NotContains(t, resultTypes(mod, "stablehlo.convert"), "f32", name)
	}
	for name, c := range map[string]struct {
		in sharding.Spec
		f  func(w *Value) *Value
		op string
	}{
		"copies":         {sharding.P(), func(w *Value) *Value { return w }, "all_reduce"},
		"all_gather":     {sharding.P("d"), func(w *Value) *Value { return AllGather(w, 0, "d") }, "reduce_scatter"},
		"all_to_all":     {sharding.P("d"), func(w *Value) *Value { return AllToAll(w, 1, 0, "d") }, "all_to_all"},
		"permute":        {sharding.P("d"), func(w *Value) *Value { return Shift(w, 1, "d") }, "collective_permute"},
		"gather of part": {sharding.P("d"), func(w *Value) *Value { return AllGather(SliceDim(w, 0, 0, 1), 0, "d") }, "reduce_scatter"},
	} {
		mod := trace(t, m, func(b *Builder) {
			w := b.Input("w", T(F32, 4, 8))
			w16 := WithGradIn(Convert(w, BF16), F32)
			x := b.Input("x", T(BF16, 8, 16))
			y := b.ShardMap([]*Value{x, w16}, []sharding.Spec{sharding.P("d"), c.in}, []sharding.Spec{sharding.P("d")}, func(l []*Value) []*Value {
				w := c.f(l[1])
				return []*Value{Einsum("ab,cb->ac", SliceDim(l[0], 1, 0, w.Dim(1)), w)}
			}, ManualOver("d"))[0]
			b.Output("g", VJP([]*Value{y}, []*Value{b.Input("ct", y.Type())}, []*Value{w})[0])
		})
		require.Equal(t, []string{"f32"}, resultTypes(mod, "stablehlo.dot_general"), name)
		require.NotContains(t, resultTypes(mod, "stablehlo.convert"), "f32", name)
		require.Contains(t, resultTypes(mod, c.op), "f32", name)
		require.NotContains(t, resultTypes(mod, c.op)[len(resultTypes(mod, c.op))-1:], "bf16", name)
	}
}
