package graph_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

type body = func(carry, x []*Value) (next, ys []*Value)

// loop is a way to run a scan: Scan itself or unrolled.
type loop func(b *Builder, n int, reverse bool, init, xs []*Value, f body) (carry, ys []*Value)

func scanned(b *Builder, n int, reverse bool, init, xs []*Value, f body) (carry, ys []*Value) {
	opts := []ScanOption{Iterations(n)}
	if reverse {
		opts = append(opts, InReverse())
	}
	return b.Scan(init, xs, f, opts...)
}

func unrolled(_ *Builder, n int, reverse bool, init, xs []*Value, f body) (carry, ys []*Value) {
	carry = init
	rows := make([][]*Value, n)
	for k := range n {
		i := k
		if reverse {
			i = n - 1 - k
		}
		var x []*Value
		for _, v := range xs {
			x = append(x, Squeeze(SliceDim(v, 0, i, i+1), 0))
		}
		carry, rows[i] = f(carry, x)
	}
	for y := range rows[0] {
		var column []*Value
		for i := range n {
			column = append(column, rows[i][y])
		}
		ys = append(ys, Stack(0, column...))
	}
	return carry, ys
}

// scanCase checks a function that loops against the same with loops unrolled.
func scanCase(name string, f func(b *Builder, l loop, x []*Value) []*Value, in ...array) checked {
	return checked{
		name: name, in: in,
		f:    func(b *Builder, x []*Value) []*Value { return f(b, scanned, x) },
		same: []form{func(b *Builder, x []*Value) []*Value { return f(b, unrolled, x) }},
	}
}

func TestScan(t *testing.T) {
	cell := func(c, x, w *Value) *Value { return Tanh(Add(Einsum("i,io->o", c, w), x)) }
	rnn := func(n int, reverse bool) func(b *Builder, l loop, x []*Value) []*Value {
		return func(b *Builder, l loop, x []*Value) []*Value {
			w := x[2]
			c, ys := l(b, n, reverse, []*Value{x[0]}, []*Value{x[1]}, func(c, x []*Value) (next, ys []*Value) {
				h := cell(c[0], x[0], w)
				return []*Value{h}, []*Value{h, Mul(x[0], c[0])}
			})
			return append(c, ys...)
		}
	}
	c, xs, w := normal(1, 3), normal(2, 4, 3), normal(3, 3, 3)
	checkAll(t, nil, []checked{
		scanCase("rnn", rnn(4, false), c, xs, w),
		scanCase("rnn in reverse", rnn(4, true), c, xs, w),
		scanCase("one iteration", rnn(1, false), c, normal(2, 1, 3), w),
		scanCase("no carry", func(b *Builder, l loop, x []*Value) []*Value {
			_, ys := l(b, 3, false, nil, []*Value{x[0], x[1]}, func(_, r []*Value) (next, ys []*Value) {
				return nil, []*Value{Mul(Sin(r[0]), r[1]), r[0]}
			})
			return ys
		}, normal(1, 3, 2), normal(2, 3, 2)),
		scanCase("nothing scanned over", func(b *Builder, l loop, x []*Value) []*Value {
			c, _ := l(b, 5, false, x[:1], nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{Sin(Mul(c[0], x[1]))}, nil })
			return c
		}, normal(1, 2), normal(2, 2)),
		scanCase("carries handed on, exchanged and dropped", func(b *Builder, l loop, x []*Value) []*Value {
			c, ys := l(b, 3, false, x[:4], x[4:], func(c, r []*Value) (next, ys []*Value) {
				return []*Value{c[0], c[2], Mul(c[1], r[0]), r[0]}, []*Value{c[3], c[1]}
			})
			return append(c, ys...)
		}, normal(1, 2), normal(2, 2), normal(3, 2), normal(4, 2), normal(5, 3, 2)),
		scanCase("an initial carry that is not differentiated", func(b *Builder, l loop, x []*Value) []*Value {
			c, _ := l(b, 3, false, []*Value{b.Zeros(T(F64, 2)), b.Zeros(T(F64, 2))}, x, func(c, r []*Value) (next, ys []*Value) {
				return []*Value{Add(c[1], r[0]), Mul(c[0], r[0])}, nil // active only in the second iteration
			})
			return c
		}, normal(1, 3, 2)),
		scanCase("carries that depend on the parameter only through the loop", func(b *Builder, l loop, x []*Value) []*Value {
			z := b.Zeros(T(F64, 2))
			c, _ := l(b, 4, false, []*Value{z, z}, x[1:], func(c, r []*Value) (next, ys []*Value) {
				return []*Value{c[1], Add(Mul(x[0], c[1]), r[0])}, nil
			})
			return c[:1]
		}, normal(1, 2), normal(2, 4, 2)),
		scanCase("dependence that takes several iterations", func(b *Builder, l loop, x []*Value) []*Value {
			z := b.Zeros(T(F64, 2))
			c, _ := l(b, 5, false, []*Value{z, z, z, x[0]}, nil, func(c, _ []*Value) (next, ys []*Value) {
				return []*Value{Sin(c[1]), AddScalar(c[2], 1), Tanh(c[3]), Mul(c[3], c[3])}, nil
			})
			return c[:1]
		}, normal(1, 2)),
		scanCase("integers carried", func(b *Builder, l loop, x []*Value) []*Value {
			c, ys := l(b, 4, false, []*Value{b.Int(S32, 0), x[0]}, nil, func(c, _ []*Value) (next, ys []*Value) {
				r := Squeeze(DynamicSliceDim(x[1], 0, c[0], 1), 0)
				return []*Value{Add(c[0], b.Int(S32, 1)), Mul(Sin(c[1]), r)}, []*Value{c[0], Mul(Convert(c[0], F64), c[1])}
			})
			return append(c, ys...)
		}, normal(1, 2), normal(2, 4, 2)),
		scanCase("integers scanned over", func(b *Builder, l loop, x []*Value) []*Value {
			_, ys := l(b, 3, true, nil, x[1:], func(_, r []*Value) (next, ys []*Value) {
				return nil, []*Value{Square(DynamicSliceDim(x[0], 0, r[0], 2)), r[0]}
			})
			return ys
		}, normal(1, 5, 2), arr(T(S32, 3), 3, 0, 3)),
		scanCase("one value in several roles", func(b *Builder, l loop, x []*Value) []*Value {
			c, ys := l(b, 2, false, []*Value{x[0], x[0]}, []*Value{x[0], x[0]}, func(c, r []*Value) (next, ys []*Value) {
				return []*Value{Mul(c[0], Sin(r[0])), Add(c[1], Einsum("ij,j->i", x[0], r[1]))}, []*Value{Mul(c[0], x[0])}
			})
			return append(c, ys...)
		}, normal(1, 2, 2)),
		scanCase("computed from constants inside", func(b *Builder, l loop, x []*Value) []*Value {
			c, _ := l(b, 3, false, x[:1], nil, func(c, _ []*Value) (next, ys []*Value) {
				m := Einsum("ij,jk->ik", Exp(x[1]), Tanh(x[1]))
				return []*Value{Einsum("i,ij->j", Sin(c[0]), Mul(m, Softmax(x[1], 0)))}, nil
			})
			return c
		}, normal(1, 2), normal(2, 2, 2)),
		scanCase("constant rows, rows handed on", func(b *Builder, l loop, x []*Value) []*Value {
			_, ys := l(b, 3, false, nil, x[:1], func(_, r []*Value) (next, ys []*Value) {
				return nil, []*Value{b.Full(T(F64, 2), 2), r[0], x[1], b.Iota(T(S32, 2), 0)}
			})
			return ys
		}, normal(1, 3, 2), normal(2, 4)),
		scanCase("nested", func(b *Builder, l loop, x []*Value) []*Value {
			c, ys := l(b, 2, false, x[:1], x[1:2], func(c, outer []*Value) (next, ys []*Value) {
				in, yin := l(b, 3, true, []*Value{c[0], b.Zeros(T(F64, 2))}, outer[:1], func(c, r []*Value) (next, ys []*Value) {
					h := Tanh(Add(Mul(c[0], x[2]), Mul(r[0], Exp(Sum(outer[0], 0)))))
					return []*Value{h, Add(c[1], Sin(h))}, []*Value{Mul(h, c[1])}
				})
				return in[:1], []*Value{in[1], yin[0]}
			})
			return append(c, ys...)
		}, normal(1, 2), normal(2, 2, 3, 2), normal(3, 2)),
		scanCase("a loop of the loop's gradient", func(b *Builder, l loop, x []*Value) []*Value {
			c, _ := l(b, 3, false, x[:1], nil, func(c, _ []*Value) (next, ys []*Value) {
				in, _ := l(b, 2, false, c, nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{Sin(Mul(c[0], x[1]))}, nil })
				g := Grad(Sum(in[0]), c[0])[0] // gradient descent, differentiated
				return []*Value{Sub(c[0], MulScalar(g, 0.1))}, nil
			})
			return c
		}, normal(1, 2), normal(2, 2)).within(1e-5),
		scanCase("gradient of gradient", func(b *Builder, l loop, x []*Value) []*Value {
			c, ys := l(b, 3, false, x[:1], x[1:2], func(c, r []*Value) (next, ys []*Value) {
				h := cell(c[0], r[0], x[2])
				return []*Value{h}, []*Value{Mul(h, r[0])}
			})
			return Grad(Add(Sum(Square(c[0])), Sum(ys[0])), x...)
		}, normal(1, 2), normal(2, 3, 2), normal(3, 2, 2)).within(1e-5),
		scanCase("gradient taken twice of one loop", func(b *Builder, l loop, x []*Value) []*Value {
			c, ys := l(b, 3, false, x[:1], x[1:2], func(c, r []*Value) (next, ys []*Value) {
				h := Sin(Mul(c[0], r[0]))
				return []*Value{h}, []*Value{Exp(h)}
			})
			return []*Value{Mul(Grad(Sum(c[0]), x[0])[0], Grad(Sum(ys[0]), x[0])[0])}
		}, normal(1, 2), normal(2, 3, 2)).within(1e-5),
	})
}

func TestScanOfNothing(t *testing.T) {
	m := trace(t, nil, func(b *Builder) {
		x, xs, w := b.Input("x", T(F64, 2)), b.Input("xs", T(F64, 0, 2)), b.Input("w", T(F64, 2))
		c, ys := b.Scan([]*Value{x}, []*Value{xs}, func(c, r []*Value) (next, ys []*Value) {
			h := Sin(Mul(c[0], Mul(r[0], w)))
			return []*Value{h}, []*Value{Exp(h)}
		})
		b.Output("c", c[0])
		b.Output("ys", ys[0])
		for _, g := range Grad(Add(Sum(c[0]), Sum(ys[0])), x, xs, w) {
			b.Output("g", g)
		}
	})
	got := run(t, m, arr(T(F64, 2), 1, 2), arr(T(F64, 0, 2)), arr(T(F64, 2), 3, 4))
	require.Equal(t, []float64{1, 2}, got[0].data)
	require.Equal(t, []int{0, 2}, got[1].Shape)
	require.Equal(t, []float64{1, 1}, got[2].data)
	require.Equal(t, []int{0, 2}, got[3].Shape)
	require.Equal(t, []float64{0, 0}, got[4].data)
}

// Of a body that computes more than is used, only what is needed is kept: an
// unused carry, result and their residuals leave no trace in the program.
func TestScanPruned(t *testing.T) {
	text := func(extra bool) string {
		return trace(t, nil, func(b *Builder) {
			x, xs := b.Input("x", T(F64, 2)), b.Input("xs", T(F64, 3, 2))
			init := []*Value{x}
			if extra {
				init = append(init, b.Zeros(x.Type()))
			}
			c, _ := b.Scan(init, []*Value{xs}, func(c, r []*Value) (next, ys []*Value) {
				next = []*Value{Sin(Mul(c[0], r[0]))}
				if extra {
					next = append(next, Cos(Mul(c[1], r[0])))
					ys = append(ys, Exp(Exp(c[1])))
				}
				return next, ys
			})
			b.Output("g", Grad(Sum(c[0]), x)[0])
		}).StableHLO()
	}
	require.Equal(t, len(text(false)), len(text(true)))
}

// What costs much is not computed again in the backward loop, even if it depends
// on constants alone; what costs little is, instead of being kept for each row.
func TestScanRecomputes(t *testing.T) {
	count := func(op string, f func(b *Builder, w *Value) *Value) int {
		return strings.Count(trace(t, nil, func(b *Builder) {
			x, w := b.Input("x", T(F64, 2)), b.Input("w", T(F64, 2, 2))
			c, _ := b.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) {
				return []*Value{Sin(Mul(c[0], Sum(f(b, w), 0)))}, nil
			}, Iterations(3))
			for _, g := range append(Grad(Sum(c[0]), x), c[0]) {
				b.Output("g", g)
			}
		}).StableHLO(), op)
	}
	require.Equal(t, 2, count("tanh", func(_ *Builder, w *Value) *Value { return Tanh(w) }))
	require.Equal(t, 1, count("dot_general", func(_ *Builder, w *Value) *Value { return MatMul(w, w) }))
	require.Equal(t, 1, count("sort", func(_ *Builder, w *Value) *Value { return Sort(w, 0) }))
	require.Equal(t, 1, count("custom_call", func(b *Builder, w *Value) *Value {
		return b.CustomCall(CustomCallSpec{Target: "costly", Results: []Type{w.Type()}}, w)[0]
	}))
}

func TestCond(t *testing.T) {
	// Cond is checked against both branches computed and one selected.
	both := func(b *Builder, p *Value, yes, no func() []*Value) []*Value {
		y, n := yes(), no()
		out := make([]*Value, len(y))
		for i := range y {
			out[i] = Select(BroadcastTo(p, y[i].Shape()...), y[i], n[i])
		}
		return out
	}
	type cond func(b *Builder, p *Value, yes, no func() []*Value) []*Value
	condCase := func(name string, f func(b *Builder, c cond, x []*Value) []*Value, in ...array) checked {
		return checked{
			name: name, in: in,
			f: func(b *Builder, x []*Value) []*Value {
				return f(b, func(b *Builder, p *Value, yes, no func() []*Value) []*Value { return b.Cond(p, yes, no) }, x)
			},
			same: []form{func(b *Builder, x []*Value) []*Value { return f(b, both, x) }},
		}
	}
	var cases []checked
	for _, flag := range []float64{0, 1} {
		p := arr(T(Bool), flag)
		name := map[float64]string{0: "no: ", 1: "yes: "}[flag]
		cases = append(cases,
			condCase(name+"values from outside", func(b *Builder, c cond, x []*Value) []*Value {
				return c(b, x[0], func() []*Value { return []*Value{Mul(Sin(x[1]), x[2]), x[1]} },
					func() []*Value { return []*Value{Exp(Mul(x[2], Cos(x[3]))), b.Full(T(F64, 2), 3)} })
			}, p, normal(1, 2), normal(2, 2), normal(3, 2)),
			condCase(name+"residuals of several types", func(b *Builder, c cond, x []*Value) []*Value {
				return c(b, x[0], func() []*Value {
					m := Tanh(Einsum("a,b->ab", x[1], x[2]))
					return []*Value{Einsum("ab,b->a", Sin(m), Exp(x[1]))}
				}, func() []*Value { return []*Value{Mul(Sin(Exp(x[1])), Tanh(Sin(x[2])))} })
			}, p, normal(1, 2), normal(2, 2)),
			condCase(name+"in a loop, with a loop inside", func(b *Builder, c cond, x []*Value) []*Value {
				out, ys := b.Scan([]*Value{x[1]}, []*Value{x[2]}, func(cs, r []*Value) (next, ys []*Value) {
					p := Xor(x[0], Greater(Sum(r[0]), b.Scalar(F64, 0)))
					h := c(b, p, func() []*Value {
						in, _ := b.Scan([]*Value{cs[0]}, nil, func(cs, _ []*Value) (next, ys []*Value) { return []*Value{Sin(Mul(cs[0], r[0]))}, nil }, Iterations(2))
						return in
					}, func() []*Value { return []*Value{Mul(cs[0], Exp(r[0]))} })
					return h, []*Value{Mul(h[0], r[0])}
				})
				return append(out, ys...)
			}, p, normal(1, 2), arr(T(F64, 4, 2), 1, 2, -1, -2, .5, .25, -.5, .125)),
			condCase(name+"in a cond", func(b *Builder, c cond, x []*Value) []*Value {
				q := Greater(Sum(x[1]), b.Scalar(F64, 100))
				return c(b, x[0], func() []*Value {
					h := Exp(x[1])
					return c(b, q, func() []*Value { return []*Value{Mul(h, h)} }, func() []*Value { return []*Value{Mul(Sin(h), x[2])} })
				}, func() []*Value { return []*Value{Mul(x[1], x[2])} })
			}, p, normal(1, 2), normal(2, 2)),
			condCase(name+"gradient of gradient", func(b *Builder, c cond, x []*Value) []*Value {
				h := c(b, x[0], func() []*Value { return []*Value{Mul(Sin(x[1]), Exp(x[2]))} }, func() []*Value { return []*Value{Tanh(Mul(x[1], x[2]))} })
				return Grad(Sum(Square(h[0])), x[1], x[2])
			}, p, normal(1, 2), normal(2, 2)).within(1e-5),
			condCase(name+"gradient of a branch's gradient", func(b *Builder, c cond, x []*Value) []*Value {
				return c(b, x[0], func() []*Value { return Grad(Sum(Exp(Sin(x[1]))), x[1]) }, func() []*Value { return Grad(Sum(Sin(Square(x[1]))), x[1]) })
			}, p, normal(1, 2)).within(1e-5),
		)
	}
	for i := range 4 { // the last branch also runs for an index out of range
		cases = append(cases, checked{
			name: "switch", in: []array{arr(T(S32), float64(i)), normal(1, 2), normal(2, 2)},
			f: func(b *Builder, x []*Value) []*Value {
				return b.Switch(x[0], func() []*Value { return []*Value{Sin(x[1])} },
					func() []*Value { return []*Value{Mul(x[1], Exp(x[2]))} },
					func() []*Value { return []*Value{x[2]} })
			},
			same: []form{func(_ *Builder, x []*Value) []*Value {
				return []*Value{[]*Value{Sin(x[1]), Mul(x[1], Exp(x[2])), x[2], x[2]}[i]}
			}},
		})
	}
	checkAll(t, nil, cases)

	require.Contains(t, traceError(t, nil, func(b *Builder) {
		b.Cond(b.Input("p", T(S32)), func() []*Value { return nil }, func() []*Value { return nil })
	}), "bool scalar")
	require.Contains(t, traceError(t, nil, func(b *Builder) {
		x := b.Input("x", T(F64, 2))
		b.Cond(b.Input("p", T(Bool)), func() []*Value { return []*Value{x} }, func() []*Value { return []*Value{Sum(x)} })
	}), "branch")
}

func TestWhile(t *testing.T) {
	m := trace(t, nil, func(b *Builder) {
		x, step := b.Input("x", T(F64, 2)), b.Input("step", T(F64, 2))
		limit := b.Input("limit", T(F64))
		init := []*Value{x, b.Int(S32, 0)}
		c := b.While(init, func(c []*Value) *Value { return Less(Sum(c[0]), limit) },
			func(c []*Value) []*Value { return []*Value{Add(c[0], step), Add(c[1], b.Int(S32, 1))} })
		require.Same(t, x, init[0], "the caller's slice is left alone")
		b.Output("x", c[0])
		b.Output("n", c[1])
		// A loop in a differentiated function, off the differentiated path.
		b.Output("g", Grad(Sum(Mul(x, StopGradient(c[0]))), x)[0])
		d, _ := b.Scan([]*Value{b.Int(S32, 0)}, nil, func(cs, _ []*Value) (next, ys []*Value) {
			return b.While(cs, func(c []*Value) *Value { return NotEqual(Rem(c[0], b.Int(S32, 7)), b.Int(S32, 6)) },
				func(c []*Value) []*Value { return []*Value{Add(c[0], b.Int(S32, 2))} }), nil
		}, Iterations(1))
		b.Output("nested", d[0])
	})
	got := run(t, m, arr(T(F64, 2), 0, 1), arr(T(F64, 2), 1, 2), arr(T(F64), 9))
	require.Equal(t, []float64{3, 7}, got[0].data)
	require.Equal(t, []float64{3}, got[1].data)
	require.Equal(t, []float64{3, 7}, got[2].data)
	require.Equal(t, []float64{6}, got[3].data)
}

func TestScanMistakes(t *testing.T) {
	for want, f := range map[string]func(b *Builder, x *Value){
		"leading dimension": func(b *Builder, x *Value) {
			b.Scan(nil, []*Value{Sum(x)}, func(_, _ []*Value) (_, _ []*Value) { return nil, nil })
		},
		"Iterations": func(b *Builder, x *Value) {
			b.Scan([]*Value{x}, nil, func(c, _ []*Value) (_, _ []*Value) { return c, nil })
		},
		"3 rows": func(b *Builder, x *Value) {
			b.Scan(nil, []*Value{x, Transpose(x, 1, 0)}, func(_, _ []*Value) (_, _ []*Value) { return nil, nil })
		},
		"returns 0 carries": func(b *Builder, x *Value) {
			b.Scan([]*Value{x}, []*Value{x}, func(_, _ []*Value) (_, _ []*Value) { return nil, nil })
		},
		"leaves the body with f64[2]": func(b *Builder, x *Value) {
			b.Scan([]*Value{x}, []*Value{x}, func(_, r []*Value) (_, _ []*Value) { return r, nil })
		},
		"region (scan, cond, checkpoint or shard-map body) that has ended": func(b *Builder, x *Value) {
			var leaked *Value
			b.Scan(nil, []*Value{x}, func(_, r []*Value) (_, _ []*Value) { leaked = Sin(r[0]); return nil, nil })
			Exp(leaked)
		},
	} {
		msg := traceError(t, nil, func(b *Builder) {
			x := b.Input("x", T(F64, 3, 2))
			f(b, x)
			b.Output("x", x)
		})
		require.Contains(t, msg, want)
		require.Contains(t, msg, "region_test.go:")
	}
}
