package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// around says how the pieces of a function are checkpointed.
type around func(b *Builder, f func() []*Value) []*Value

func plain(_ *Builder, f func() []*Value) []*Value { return f() }

func with(p Policy) around {
	return func(b *Builder, f func() []*Value) []*Value { return b.Checkpoint(p, f) }
}

var policies = []Policy{
	SaveNames("h").And(OffloadNames("inner")).And(SaveDots()),
	SaveNothing(),
	SaveNames("h", "inner", "absent"),
	OffloadNames("h", "inner"),
	SaveDots(),
}

// piece is a piece of program with contractions, named values, a branch and a loop.
func piece(b *Builder, x, w *Value) []*Value {
	h := Name(Tanh(Einsum("i,ij->j", x, w)), "h")
	in, ys := b.Scan([]*Value{h}, []*Value{w}, func(c, r []*Value) (next, ys []*Value) {
		k := Name(Sin(Mul(c[0], Add(r[0], Einsum("i,ij->j", x, w)))), "inner")
		return []*Value{Mul(k, Exp(r[0]))}, []*Value{Name(Mul(k, c[0]), "h")}
	})
	c := b.Cond(Greater(Sum(h), b.Scalar(F64, 0)), func() []*Value { return []*Value{Name(Mul(Sin(in[0]), x), "h")} },
		func() []*Value { return []*Value{Cos(in[0])} })
	return []*Value{c[0], Sum(ys[0], 0), w}
}

func TestCheckpoint(t *testing.T) {
	x, w := normal(1, 3), normal(2, 3, 3)
	forms := map[string]func(b *Builder, a around, x []*Value) []*Value{
		"once": func(b *Builder, a around, x []*Value) []*Value {
			return a(b, func() []*Value { return piece(b, x[0], x[1]) })
		},
		"several": func(b *Builder, a around, x []*Value) []*Value {
			c := x[0]
			for range 2 {
				c = a(b, func() []*Value { return piece(b, c, x[1]) })[0]
			}
			return []*Value{c}
		},
		"in a loop": func(b *Builder, a around, x []*Value) []*Value {
			c, ys := b.Scan(x[:1], []*Value{x[1]}, func(c, r []*Value) (next, ys []*Value) {
				out := a(b, func() []*Value { return piece(b, Mul(c[0], r[0]), x[1]) })
				return out[:1], out[1:]
			})
			return append(c, ys...)
		},
		"nested": func(b *Builder, a around, x []*Value) []*Value {
			return a(b, func() []*Value {
				out := a(b, func() []*Value { return piece(b, x[0], x[1]) })
				return []*Value{Name(Sin(out[0]), "h"), Mul(out[1], out[0])}
			})
		},
		"around a loop of checkpoints": func(b *Builder, a around, x []*Value) []*Value {
			return a(b, func() []*Value {
				c, _ := b.Scan(x[:1], []*Value{x[1]}, func(c, r []*Value) (next, ys []*Value) {
					return a(b, func() []*Value { return piece(b, Mul(c[0], r[0]), x[1]) })[:1], nil
				})
				return c
			})
		},
		"in a branch": func(b *Builder, a around, x []*Value) []*Value {
			return b.Cond(Less(Sum(x[0]), b.Scalar(F64, 100)), func() []*Value {
				return a(b, func() []*Value { return piece(b, x[0], x[1]) })[:1]
			}, func() []*Value { return x[:1] })
		},
		"hands on its arguments": func(b *Builder, a around, x []*Value) []*Value {
			return a(b, func() []*Value { return []*Value{x[0], Name(x[0], "h"), Sin(x[0]), b.Iota(T(S32, 2), 0)} })
		},
		"of integers": func(b *Builder, a around, x []*Value) []*Value {
			i := Convert(Greater(x[0], ZerosLike(x[0])), S32)
			return a(b, func() []*Value {
				return []*Value{Mul(Convert(Name(Add(i, i), "h"), F64), Sin(x[0])), Add(i, i)}
			})
		},
		"with a derivative of its own": func(b *Builder, a around, x []*Value) []*Value {
			return a(b, func() []*Value { return []*Value{ownSine(Einsum("i,ij->j", x[0], x[1]))} })
		},
	}
	for name, f := range forms {
		plainly := func(b *Builder, x []*Value) []*Value { return f(b, plain, x) }
		first := checked{name: name, in: []array{x, w}, f: plainly}
		second := checked{name: name + ", gradient of gradient", in: []array{x, w}, tol: 1e-5,
			f: func(b *Builder, x []*Value) []*Value { return Grad(sumOf(plainly(b, x)), x...) }}
		some := policies[:2]
		if name == "once" || name == "in a loop" || name == "around a loop of checkpoints" {
			some = policies
		}
		for _, p := range some {
			kept := func(b *Builder, x []*Value) []*Value { return f(b, with(p), x) }
			first.same = append(first.same, kept)
			second.same = append(second.same, func(b *Builder, x []*Value) []*Value { return Grad(sumOf(kept(b, x)), x...) })
		}
		second.same = second.same[:1]
		checkAll(t, nil, []checked{first, second})
	}
}

// sumOf adds up the squares of all floats.
func sumOf(vs []*Value) *Value {
	total := vs[0].Builder().Scalar(F64, 0)
	for _, v := range vs {
		if v.DType().IsFloat() {
			total = Add(total, Sum(Square(v)))
		}
	}
	return total
}

// ownSine is the sine, with its derivative given by hand and something named in
// it, computed for the backward pass.
func ownSine(x *Value) *Value {
	return CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) {
		return []*Value{Sin(Name(a[0], "inner"))}, []*Value{Name(Cos(a[0]), "h")}
	}, func(res, ct []*Value) []*Value {
		if len(res) != 1 {
			res[0].Builder().Fail("%d residuals", len(res))
		}
		return []*Value{Mul(res[0], ct[0])}
	})[0]
}

// What a policy keeps is not computed again: the backward pass of a checkpointed
// chain holds each op a second time exactly if it is not kept.
func TestCheckpointRecomputes(t *testing.T) {
	count := func(p *Policy, op string) int {
		return strings.Count(trace(t, nil, func(b *Builder) {
			x, w := b.Input("x", T(F64, 4)), b.Input("w", T(F64, 4, 4))
			f := func() []*Value {
				h := Name(Tanh(Einsum("i,ij->j", x, w)), "h")
				_, ys := b.Scan(nil, []*Value{w}, func(_, r []*Value) (next, ys []*Value) {
					return nil, []*Value{Exp(Name(Sin(Mul(r[0], h)), "inner"))}
				})
				return []*Value{Sum(Log(AddScalar(ys[0], 1)))}
			}
			var y []*Value
			if p == nil {
				y = f()
			} else {
				y = b.Checkpoint(*p, f)
			}
			for _, g := range append(Grad(y[0], x, w), y[0]) {
				b.Output("g", g)
			}
		}).StableHLO(), "stablehlo."+op+" ")
	}
	for _, c := range []struct {
		policy                 string
		tanh, sine, exp, dots2 int // dots beyond the two of the gradient
	}{
		{"none", 1, 1, 1, 1},
		{"everything", 1, 1, 1, 1},
		{"nothing", 2, 2, 2, 2},
		{"h", 1, 2, 2, 1},
		{"inner", 2, 1, 2, 2},
		{"h, inner", 1, 1, 2, 1},
		{"dots", 2, 2, 2, 1},
	} {
		p := map[string]*Policy{"none": nil}
		for name, x := range map[string]Policy{"everything": SaveEverything(), "nothing": SaveNothing(), "h": SaveNames("h"),
			"inner": SaveNames("inner"), "h, inner": SaveNames("h", "inner"), "dots": SaveDots()} {
			p[name] = &x
		}
		q := p[c.policy]
		got := fmt.Sprint(count(q, "tanh"), count(q, "sine"), count(q, "exponential"), count(q, "dot_general")-count(nil, "dot_general")+1)
		require.Equal(t, fmt.Sprint(c.tanh, c.sine, c.exp, c.dots2), got, c.policy)
	}
}

func TestCheckpointEvery(t *testing.T) {
	regions := func(n, layers int) int {
		m := trace(t, nil, func(b *Builder) {
			x := b.Input("x", T(F64, 4))
			y := x
			for i := range layers {
				y = b.CheckpointEvery(n, i, SaveNothing(), func() []*Value { return []*Value{Sin(Sin(y))} })[0]
			}
			b.Output("g", Grad(Sum(y), x)[0])
		})
		return strings.Count(m.StableHLO(), "optimization_barrier")
	}
	require.Equal(t, 6, regions(1, 6))
	require.Equal(t, 3, regions(2, 6))
	require.Equal(t, 2, regions(3, 6))
	require.Equal(t, 1, regions(9, 6))
	require.Contains(t, traceError(t, nil, func(b *Builder) { b.CheckpointEvery(0, 0, SaveNothing(), nil) }), "at least 1")
}

func TestLayers(t *testing.T) {
	remat := SaveNames("h")
	step := func(b *Builder, o LayersOptions, x []*Value) []*Value {
		c, ys := b.Layers(x[:1], x[1:], func(c, r []*Value) (next, ys []*Value) {
			h := Name(Tanh(Einsum("i,ij->j", c[0], r[0])), "h")
			return []*Value{Mul(Sin(h), r[1])}, []*Value{Mul(h, c[0])}
		}, o)
		return append(c, ys...)
	}
	var cases []checked
	for _, n := range []int{1, 4, 5} {
		for _, o := range []LayersOptions{{}, {Remat: &remat}, {Remat: &remat, Every: 2}, {Remat: &remat, Every: 3}, {Remat: &remat, Every: 9}, {Remat: &remat, Unroll: true, Every: 2}} {
			cases = append(cases, checked{
				name: fmt.Sprintf("%d layers, every %d, remat %v, unroll %v", n, o.Every, o.Remat != nil, o.Unroll),
				in:   []array{normal(1, 2), normal(2, n, 2, 2), normal(3, n, 2)},
				f:    func(b *Builder, x []*Value) []*Value { return step(b, o, x) },
				same: []form{func(b *Builder, x []*Value) []*Value { return step(b, LayersOptions{Unroll: true}, x) }},
			})
		}
	}
	checkAll(t, nil, cases)
}

func TestCustomVJP(t *testing.T) {
	// A derivative other than the true one shows that it is used: clipping the
	// cotangent, straight-through rounding.
	round := func(x *Value) *Value {
		return CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Round(a[0])}, nil },
			func(_, ct []*Value) []*Value { return ct })[0]
	}
	product := func(x, y *Value) *Value { // residuals are the arguments
		return CustomVJP([]*Value{x, y}, func(a []*Value) (outs, res []*Value) { return []*Value{Mul(a[0], a[1])}, a },
			func(r, ct []*Value) []*Value { return []*Value{Mul(ct[0], r[1]), Mul(ct[0], r[0])} })[0]
	}
	two := func(x, y *Value) []*Value { // two outputs, one an argument, one cotangent nil
		return CustomVJP([]*Value{x, y}, func(a []*Value) (outs, res []*Value) {
			e := Exp(a[0])
			return []*Value{Mul(e, e), a[1], a[0]}, []*Value{e}
		}, func(r, ct []*Value) []*Value {
			return []*Value{Add(ct[2], MulScalar(Mul(ct[0], Mul(r[0], r[0])), 2)), nil}
		})
	}
	m := trace(t, nil, func(b *Builder) {
		x, y := b.Input("x", T(F64, 2)), b.Input("y", T(F64, 2))
		b.Output("v", round(x))
		b.Output("g", Grad(Sum(Square(round(x))), x)[0])
		for _, g := range Grad(Sum(two(x, y)[1]), x, y) {
			b.Output("g", g)
		}
	})
	got := run(t, m, arr(T(F64, 2), 1.2, 2.7), arr(T(F64, 2), 5, 6))
	for i, want := range [][]float64{{1, 3}, {2, 6}, {0, 0}, {0, 0}} {
		require.Equal(t, want, got[i].data, "result %d", i)
	}

	loopOf := func(f func(x, r *Value) *Value) func(b *Builder, x []*Value) []*Value {
		return func(b *Builder, x []*Value) []*Value {
			c, ys := b.Scan(x[:1], x[1:], func(c, r []*Value) (next, ys []*Value) {
				h := f(c[0], r[0])
				return []*Value{h}, []*Value{Mul(h, r[0])}
			})
			return append(c, ys...)
		}
	}
	ownMul := func(x, r *Value) *Value { return product(ownSine(x), r) }
	mul := func(x, r *Value) *Value { return Mul(Sin(x), r) }
	x, xs := normal(1, 2), normal(2, 3, 2)
	branch := func(f func(x, r *Value) *Value) func(b *Builder, x []*Value) []*Value {
		return func(b *Builder, x []*Value) []*Value {
			return b.Cond(Less(Sum(x[0]), b.Scalar(F64, 9)), func() []*Value { return []*Value{f(x[0], x[1])} }, func() []*Value { return x[:1] })
		}
	}
	grad2 := func(f func(b *Builder, x []*Value) []*Value) func(b *Builder, x []*Value) []*Value {
		return func(b *Builder, x []*Value) []*Value { return Grad(sumOf(f(b, x)), x...) }
	}
	flat := func(f func(x, r *Value) *Value) func(b *Builder, x []*Value) []*Value {
		return func(_ *Builder, x []*Value) []*Value { return []*Value{f(x[0], x[1])} }
	}
	y := normal(3, 2)
	checkAll(t, nil, []checked{
		{name: "values", in: []array{x, y}, f: flat(ownMul), same: []form{flat(mul)}},
		{name: "in a loop", in: []array{x, xs}, f: loopOf(ownMul), same: []form{loopOf(mul)}},
		{name: "in a branch", in: []array{x, y}, f: branch(ownMul), same: []form{branch(mul)}},
		{name: "some outputs unused", in: []array{x}, f: func(_ *Builder, x []*Value) []*Value { return two(x[0], x[0])[:1] },
			same: []form{func(_ *Builder, x []*Value) []*Value { return []*Value{Exp(MulScalar(x[0], 2))} }}},
		{name: "gradient of gradient", in: []array{x, y}, f: grad2(flat(ownMul)), same: []form{grad2(flat(mul))}, tol: 1e-5},
		{name: "gradient of gradient in a loop", in: []array{x, xs}, f: grad2(loopOf(ownMul)), same: []form{grad2(loopOf(mul))}, tol: 1e-5},
		{name: "gradient of gradient in a branch", in: []array{x, y}, f: grad2(branch(ownMul)), same: []form{grad2(branch(mul))}, tol: 1e-5},
	})

	for want, f := range map[string]func(x *Value){
		"from outside": func(x *Value) {
			CustomVJP([]*Value{Sum(x)}, func([]*Value) (outs, res []*Value) { return []*Value{Sin(x)}, nil }, nil)
		},
		"2 cotangents for 1": func(x *Value) {
			y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sin(a[0])}, nil },
				func(_, ct []*Value) []*Value { return []*Value{ct[0], ct[0]} })
			Grad(Sum(y[0]), x)
		},
		"cotangent 0 has type f64[]": func(x *Value) {
			y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sin(a[0])}, nil },
				func(_, ct []*Value) []*Value { return []*Value{Sum(ct[0])} })
			Grad(Sum(y[0]), x)
		},
		"no arguments": func(*Value) { CustomVJP(nil, nil, nil) },
	} {
		msg := traceError(t, nil, func(b *Builder) {
			x := b.Input("x", T(F64, 2))
			f(x)
			b.Output("x", x)
		})
		require.Contains(t, msg, want)
		require.Contains(t, msg, "checkpoint_test.go:")
	}
}
