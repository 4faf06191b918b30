package graph_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/sharding"
)

type specs = []sharding.Spec

var (
	rep = sharding.P()
	onA = sharding.P("a")
	onB = sharding.P("b")
)

// manual makes a function of one result that runs in a manual region.
func manual(in specs, out sharding.Spec, f func(b *Builder, x []*Value) *Value, opts ...ShardMapOption) form {
	return func(b *Builder, x []*Value) []*Value {
		return b.ShardMap(x, in, specs{out}, func(l []*Value) []*Value { return []*Value{f(b, l)} }, opts...)
	}
}

// global makes a function of one result that runs on whole arrays.
func global(f func(b *Builder, x []*Value) *Value) form {
	return func(b *Builder, x []*Value) []*Value { return []*Value{f(b, x)} }
}

func matmul(_ *Builder, x []*Value) *Value { return MatMul(x[0], x[1]) }

// roll moves blocks of rows by one device of n.
func roll(x *Value, n, by int) *Value {
	parts := Split(x, 0, n)
	out := make([]*Value, n)
	for i, p := range parts {
		out[((i+by)%n+n)%n] = p
	}
	return Concat(0, out...)
}

// Every collective, alone and in the ways it is used for, against the same on
// whole arrays, with gradients against differences, on 1 to 8 devices.
func TestShardMap(t *testing.T) {
	for _, sizes := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {2, 4}} {
		na, nb := sizes[0], sizes[1]
		x, w := normal(1, 8, 8), normal(2, 8, 8)
		cases := append(collectiveCases(na, nb, x, w), layerCases(x, w)...)
		if na*nb == 4 {
			cases = append(cases, regionCases(na, x, w)...)
		}
		t.Run(fmt.Sprintf("%d devices", na*nb), func(t *testing.T) {
			checkAll(t, newMesh(t, axis("a", na), axis("b", nb)), cases)
		})
	}
}

func collectiveCases(na, nb int, x, w array) []checked {
	both := []string{"b", "a"} // b slowest, against the order of the mesh
	bothAxes := sharding.P(both)
	index := func(b *Builder, n, each int) *Value { // 0…n-1, each repeated
		return Reshape(BroadcastInDim(Convert(b.Iota(T(S32, n), 0), F64), []int{n, each}, []int{0}), n*each, 1)
	}
	block := func(x *Value, n int) *Value { return Reshape(x, n, x.Dim(0)/n, x.Dim(1)) }
	return []checked{
		{name: "all_reduce", in: []array{x, w}, f: manual(specs{sharding.P(nil, "a"), onA}, rep, func(b *Builder, x []*Value) *Value {
			return AllReduce(MatMul(x[0], x[1]), "a")
		}), same: []form{global(matmul)}},
		{name: "all_reduce over two axes", in: []array{x, w}, f: manual(specs{sharding.P(nil, both), bothAxes}, rep, func(b *Builder, x []*Value) *Value {
			return AllReduce(MatMul(x[0], x[1]), "b", "a")
		}), same: []form{global(matmul)}},
		{name: "all_reduce of copies", in: []array{x}, f: manual(specs{rep}, rep, func(b *Builder, x []*Value) *Value { return AllReduce(Sin(x[0]), "b") }),
			same: []form{global(func(_ *Builder, x []*Value) *Value { return MulScalar(Sin(x[0]), float64(nb)) })}},
		{name: "all_reduce, then more", in: []array{x}, f: manual(specs{onA}, onA, func(b *Builder, x []*Value) *Value {
			return Mul(x[0], Exp(AllReduceMean(Sum(x[0], 0), "a")))
		}), same: []form{global(func(_ *Builder, x []*Value) *Value {
			return Mul(x[0], Exp(MulScalar(Sum(x[0], 0), 1/float64(na))))
		})}},
		{name: "all_reduce_max and min", in: []array{x}, f: manual(specs{onB}, onB, func(b *Builder, x []*Value) *Value {
			return Mul(x[0], Sub(AllReduceMax(ReduceMax(x[0], 0), "b"), AllReduceMin(ReduceMin(x[0], 0), "b")))
		}), same: []form{global(func(_ *Builder, x []*Value) *Value {
			return Mul(x[0], Sub(ReduceMax(x[0], 0), ReduceMin(x[0], 0)))
		})}},
		{name: "all_gather", in: []array{x, w}, f: manual(specs{onA, onA}, onA, func(b *Builder, x []*Value) *Value {
			return MatMul(x[0], AllGather(x[1], 0, "a"))
		}), same: []form{global(matmul)}},
		{name: "all_gather over two axes", in: []array{x, w}, f: manual(specs{bothAxes, sharding.P(nil, both)}, bothAxes, func(b *Builder, x []*Value) *Value {
			return MatMul(x[0], AllGather(x[1], 1, "b", "a"))
		}), same: []form{global(matmul)}},
		{name: "all_gather_same", in: []array{x, w}, f: manual(specs{onA, onB}, rep, func(b *Builder, x []*Value) *Value {
			return MatMul(AllGatherSame(x[0], 0, "a"), Sin(AllGatherSame(x[1], 0, "b")))
		}), same: []form{global(func(_ *Builder, x []*Value) *Value { return MatMul(x[0], Sin(x[1])) })}},
		{name: "reduce_scatter", in: []array{x, w}, f: manual(specs{sharding.P(nil, "b"), onB}, sharding.P(nil, "b"), func(b *Builder, x []*Value) *Value {
			return Exp(MulScalar(ReduceScatter(MatMul(x[0], x[1]), 1, "b"), 0.1))
		}), same: []form{global(func(_ *Builder, x []*Value) *Value { return Exp(MulScalar(MatMul(x[0], x[1]), 0.1)) })}},
		{name: "all_to_all", in: []array{x}, f: manual(specs{onA}, sharding.P(nil, "a"), func(b *Builder, x []*Value) *Value {
			return Mul(AllToAll(Sin(x[0]), 1, 0, "a"), AllToAll(x[0], 1, 0, "a"))
		}), same: []form{global(func(_ *Builder, x []*Value) *Value { return Mul(Sin(x[0]), x[0]) })}},
		{name: "all_to_all over two axes", in: []array{x}, f: manual(specs{bothAxes}, sharding.P(nil, both), func(b *Builder, x []*Value) *Value {
			return AllToAll(Sin(x[0]), 1, 0, "b", "a")
		}), same: []form{global(func(_ *Builder, x []*Value) *Value { return Sin(x[0]) })}},
		{name: "all_to_all along one dimension", in: []array{x}, f: manual(specs{sharding.P("b", nil)}, sharding.P("b", nil), func(b *Builder, x []*Value) *Value {
			return AllToAll(Square(x[0]), 1, 1, "b")
		}), same: []form{global(func(_ *Builder, x []*Value) *Value {
			// device i holds, side by side, part i of every device's columns
			v := Reshape(Square(x[0]), nb, 8/nb, nb, 8/nb)
			return Reshape(Transpose(v, 2, 1, 0, 3), 8, 8)
		})}},
		{name: "shift", in: []array{x}, f: manual(specs{onB}, onB, func(b *Builder, x []*Value) *Value {
			return Mul(x[0], Add(Shift(Sin(x[0]), 1, "b"), Shift(x[0], -1, "b")))
		}), same: []form{global(func(_ *Builder, x []*Value) *Value {
			return Mul(x[0], Add(roll(Sin(x[0]), nb, 1), roll(x[0], nb, -1)))
		})}},
		{name: "permute to some", in: []array{x}, f: manual(specs{onB}, onB, func(b *Builder, x []*Value) *Value {
			return Permute(Sin(x[0]), [][2]int{{nb - 1, 0}}, "b")
		}), same: []form{global(func(b *Builder, x []*Value) *Value {
			return Concat(0, SliceDim(Sin(x[0]), 0, 8-8/nb, 8), b.Zeros(T(F64, 8-8/nb, 8)))
		})}},
		{name: "axis_index", in: []array{x}, f: manual(specs{bothAxes}, bothAxes, func(b *Builder, x []*Value) *Value {
			a := Convert(Add(b.AxisIndex("a"), Mul(b.AxisIndex("b"), b.Int(S32, 10))), F64)
			return Mul(Sin(x[0]), Add(a, Convert(b.AxisIndex("b", "a"), F64)))
		}), same: []form{global(func(b *Builder, x []*Value) *Value {
			ia := Reshape(BroadcastInDim(index(b, na, 1), []int{nb, na, 8 / na / nb}, []int{1, 2}), 8, 1)
			return Mul(Sin(x[0]), Add(Add(ia, MulScalar(index(b, nb, 8/nb), 10)), index(b, na*nb, 8/na/nb)))
		})}},
		{name: "sum of every device's own", in: []array{x, w}, f: manual(specs{rep, onB}, onB, func(b *Builder, x []*Value) *Value {
			// copies used differently: their cotangents are summed
			return Mul(MatMul(x[1], x[0]), AddScalar(Convert(b.AxisIndex("b"), F64), 1))
		}), same: []form{global(func(b *Builder, x []*Value) *Value {
			return Reshape(Mul(block(MatMul(x[1], x[0]), nb), Reshape(AddScalar(index(b, nb, 1), 1), nb, 1, 1)), 8, 8)
		})}},
	}
}

// layerCases are the uses that parallel layers make of collectives.
func layerCases(x, w array) []checked {
	mlp := global(func(_ *Builder, x []*Value) *Value { return MatMul(Tanh(MatMul(x[0], x[1])), x[2]) })
	w2 := normal(3, 8, 8)
	return []checked{
		{name: "tensor parallel", in: []array{x, w, w2}, f: manual(specs{rep, sharding.P(nil, "b"), onB}, rep, func(b *Builder, x []*Value) *Value {
			return AllReduce(MatMul(Tanh(MatMul(x[0], x[1])), x[2]), "b")
		}), same: []form{mlp}},
		{name: "sequence parallel", in: []array{x, w, w2}, f: manual(specs{onB, sharding.P(nil, "b"), onB}, onB, func(b *Builder, x []*Value) *Value {
			return ReduceScatter(MatMul(Tanh(MatMul(AllGather(x[0], 0, "b"), x[1])), x[2]), 0, "b")
		}), same: []form{mlp}},
		{name: "fully sharded, tensor parallel", in: []array{x, w, w2},
			f: manual(specs{onA, sharding.P("a", "b"), sharding.P("b", "a")}, onA, func(b *Builder, x []*Value) *Value {
				return AllReduce(MatMul(Tanh(MatMul(x[0], AllGather(x[1], 0, "a"))), AllGather(x[2], 1, "a")), "b")
			}), same: []form{mlp}},
		{name: "loss over tokens", in: []array{x, w}, f: manual(specs{onA, rep}, rep, func(b *Builder, x []*Value) *Value {
			return AllReduce(Sum(Tanh(MatMul(x[0], x[1]))), "a")
		}), same: []form{global(func(b *Builder, x []*Value) *Value { return Sum(Tanh(MatMul(x[0], x[1]))) })}},
		{name: "ring of products", in: []array{x, w}, f: func(b *Builder, x []*Value) []*Value {
			return b.ShardMap(x, specs{onB, sharding.P(nil, "b")}, specs{sharding.P(nil, "b")}, func(l []*Value) []*Value {
				n := b.Mesh().AxisSize("b")
				rows, width := l[0].Dim(0), l[1].Dim(1)
				c, _ := b.Scan([]*Value{l[0], b.Zeros(T(F64, 8, width)), b.AxisIndex("b")}, nil, func(c, _ []*Value) (next, ys []*Value) {
					at := Mul(c[2], b.Int(S32, int64(rows)))
					out := DynamicUpdateSliceDim(c[1], MatMul(c[0], l[1]), 0, at)
					src := Rem(Add(c[2], b.Int(S32, int64(n-1))), b.Int(S32, int64(n)))
					return []*Value{Shift(c[0], 1, "b"), out, src}, nil
				}, Iterations(n))
				return []*Value{c[1]}
			})
		}, same: []form{global(matmul)}},
	}
}

// regionCases are manual regions in and around other regions.
func regionCases(na int, x, w array) []checked {
	layer := func(b *Builder, x, w *Value) *Value { // on a's part of rows and of w
		h := Name(MatMul(x, Name(AllGather(w, 0, "a"), "gathered")), "h")
		n := Name(AllReduce(Sum(Square(h)), "a"), "scalar")
		return Div(Tanh(h), AddScalar(Name(MulScalar(n, 0.1), "inner"), 1))
	}
	layerMap := func(b *Builder, x, w *Value) *Value {
		return b.ShardMap([]*Value{x, w}, specs{onA, onA}, specs{onA}, func(l []*Value) []*Value { return []*Value{layer(b, l[0], l[1])} }, ManualOver("a"))[0]
	}
	layerGlobal := func(_ *Builder, x, w *Value) *Value {
		h := MatMul(x, w)
		return Div(Tanh(h), AddScalar(MulScalar(Sum(Square(h)), 0.1), 1))
	}
	type stack func(b *Builder, x, w *Value) *Value
	loops := func(f stack) form {
		return global(func(b *Builder, x []*Value) *Value {
			c, _ := b.Scan(x[:1], nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{f(b, c[0], x[1])}, nil }, Iterations(2))
			return c[0]
		})
	}
	once := func(f stack) form { return global(func(b *Builder, x []*Value) *Value { return f(b, x[0], x[1]) }) }
	kept := func(p Policy) stack {
		return func(b *Builder, x, w *Value) *Value {
			return b.Checkpoint(p, func() []*Value { return []*Value{layerMap(b, x, w)} })[0]
		}
	}
	inside := func(b *Builder, x []*Value) *Value { // a loop of checkpoints in the region; the carry starts as equal copies
		c, ys := b.Scan([]*Value{b.Zeros(T(F64, 8))}, []*Value{x[1]}, func(c, r []*Value) (next, ys []*Value) {
			h := b.Checkpoint(SaveNames("h"), func() []*Value {
				h := Name(Einsum("ij,j->j", x[0], Add(c[0], r[0])), "h")
				return []*Value{Tanh(h), AllReduce(h, "a")}
			})
			return h[:1], h[1:]
		})
		return Add(AllReduce(c[0], "a"), Sum(ys[0], 0))
	}
	insideGlobal := func(b *Builder, x []*Value) *Value {
		total := b.Zeros(T(F64, 8))
		for _, p := range Split(x[0], 0, na) { // what each device does
			c, ys := b.Scan([]*Value{b.Zeros(T(F64, 8))}, []*Value{x[1]}, func(c, r []*Value) (next, ys []*Value) {
				h := Einsum("ij,j->j", p, Add(c[0], r[0]))
				return []*Value{Tanh(h)}, []*Value{h}
			})
			total = Add(total, Add(c[0], Sum(ys[0], 0)))
		}
		return total
	}
	secondOf := func(f form) form {
		return func(b *Builder, x []*Value) []*Value { return Grad(sumOf(f(b, x)), x...) }
	}
	branch := func(b *Builder, x []*Value) *Value { // devices go different ways
		return b.Cond(Equal(b.AxisIndex("a"), b.Int(S32, 0)), func() []*Value { return []*Value{MatMul(Sin(x[0]), x[1])} },
			func() []*Value { return []*Value{MatMul(x[0], Exp(Tanh(x[1])))} })[0]
	}
	branchGlobal := func(_ *Builder, x []*Value) *Value {
		parts := Split(x[0], 0, na)
		out := []*Value{MatMul(Sin(parts[0]), x[1])}
		for _, p := range parts[1:] {
			out = append(out, MatMul(p, Exp(Tanh(x[1]))))
		}
		return Concat(0, out...)
	}
	common := func(b *Builder, x []*Value) *Value { // all go one way, and meet in it
		s := AllReduce(Sum(x[0]), "a")
		return b.Cond(Greater(s, b.Scalar(F64, 0)), func() []*Value { return []*Value{AllReduce(MatMul(Transpose(x[0], 1, 0), x[0]), "a")} },
			func() []*Value { return []*Value{AllReduce(Einsum("ab,ac->bc", Sin(x[0]), x[0]), "a")} })[0]
	}
	commonGlobal := func(b *Builder, x []*Value) *Value {
		return Select(BroadcastTo(Greater(Sum(x[0]), b.Scalar(F64, 0)), 8, 8), Einsum("ab,ac->bc", x[0], x[0]), Einsum("ab,ac->bc", Sin(x[0]), x[0]))
	}
	return []checked{
		{name: "one axis of two", in: []array{x, w}, f: once(layerMap), same: []form{once(layerGlobal)}},
		{name: "in a loop", in: []array{x, w}, f: loops(layerMap), same: []form{loops(layerGlobal)}},
		{name: "in a checkpoint", in: []array{x, w}, f: once(layerGlobal), same: []form{
			once(kept(SaveNothing())), once(kept(SaveNames("h", "scalar"))), once(kept(SaveNames("gathered", "inner").And(OffloadNames("h")))), once(kept(SaveDots())),
			func(b *Builder, x []*Value) []*Value { // the other way round
				return b.ShardMap(x, specs{onA, onA}, specs{onA}, func(l []*Value) []*Value {
					return b.Checkpoint(SaveNames("scalar", "gathered"), func() []*Value { return []*Value{layer(b, l[0], l[1])} })
				})
			}}},
		{name: "in a checkpoint in a loop", in: []array{x, w}, f: loops(layerGlobal), same: []form{loops(kept(SaveNothing())), loops(kept(SaveNames("h", "scalar")))}},
		{name: "around a loop", in: []array{x, normal(3, 3, 8)}, f: manual(specs{onA, rep}, rep, inside), same: []form{global(insideGlobal)}},
		{name: "nested", in: []array{x, w}, f: func(b *Builder, x []*Value) []*Value {
			return b.ShardMap(x, specs{onA, onA}, specs{onA}, func(l []*Value) []*Value {
				w := AllGather(l[1], 0, "a")
				y := b.ShardMap([]*Value{l[0], w}, specs{sharding.P(nil, "b"), onB}, specs{rep}, func(k []*Value) []*Value {
					return []*Value{AllReduce(Mul(MatMul(k[0], k[1]), Sum(l[0])), "b")} // l[0] from the region around
				}, ManualOver("b"))[0]
				return []*Value{Mul(y, AllReduce(Sum(y), "a"))}
			}, ManualOver("a"))
		}, same: []form{global(func(_ *Builder, x []*Value) *Value {
			parts := Split(x[0], 0, na)
			for i, p := range parts {
				parts[i] = Mul(MatMul(p, x[1]), Sum(p))
			}
			y := Concat(0, parts...)
			return Mul(y, Sum(y))
		})}},
		{name: "values from outside", in: []array{x, w}, f: func(b *Builder, x []*Value) []*Value {
			w := Sin(x[1])
			return b.ShardMap(x[:1], specs{onA}, specs{onA}, func(l []*Value) []*Value { return []*Value{MatMul(l[0], w)} })
		}, same: []form{global(func(_ *Builder, x []*Value) *Value { return MatMul(x[0], Sin(x[1])) })}},
		{name: "results of several kinds", in: []array{x}, f: func(b *Builder, x []*Value) []*Value {
			return b.ShardMap(x, specs{onA}, specs{onA, rep, sharding.P(nil, "a"), rep}, func(l []*Value) []*Value {
				e := Exp(l[0])
				return []*Value{l[0], AllReduce(Sum(e), "a"), Transpose(e, 1, 0), b.Int(S32, 3)}
			})
		}, same: []form{func(b *Builder, x []*Value) []*Value {
			e := Exp(x[0])
			return []*Value{x[0], Sum(e), Transpose(e, 1, 0), b.Int(S32, 3)}
		}}},
		{name: "different branches", in: []array{x, w}, f: manual(specs{onA, rep}, onA, branch), same: []form{global(branchGlobal)}},
		{name: "collectives in a branch", in: []array{x}, f: manual(specs{onA}, rep, common), same: []form{global(commonGlobal)}},
		{name: "a derivative of its own", in: []array{x, w}, f: manual(specs{onA, rep}, onA, func(_ *Builder, x []*Value) *Value {
			return CustomVJP([]*Value{x[0], x[1]}, func(a []*Value) (outs, res []*Value) { return []*Value{MatMul(a[0], a[1])}, a },
				func(r, ct []*Value) []*Value { // w is the same everywhere, ct is not: the sum is taken for it
					return []*Value{Einsum("ac,bc->ab", ct[0], r[1]), Einsum("ab,ac->bc", r[0], ct[0])}
				})[0]
		}), same: []form{global(matmul)}},
		{name: "a derivative of its own in different branches", in: []array{x, w}, f: manual(specs{onA, rep}, onA, func(b *Builder, x []*Value) *Value {
			return b.Cond(Equal(b.AxisIndex("a"), b.Int(S32, 0)), func() []*Value { return []*Value{MatMul(x[0], ownSine(x[1]))} }, func() []*Value { return x[:1] })[0]
		}), same: []form{global(func(_ *Builder, x []*Value) *Value {
			parts := Split(x[0], 0, na)
			parts[0] = MatMul(parts[0], Sin(x[1]))
			return Concat(0, parts...)
		})}},
		{name: "gradient inside", in: []array{x, w}, f: manual(specs{onA, rep}, rep, func(_ *Builder, x []*Value) *Value {
			return Grad(AllReduce(Sum(Tanh(MatMul(x[0], x[1]))), "a"), x[1])[0]
		}), same: []form{global(func(_ *Builder, x []*Value) *Value { return Grad(Sum(Tanh(MatMul(x[0], x[1]))), x[1])[0] })}, tol: 1e-5},
		{name: "gradient of gradient", in: []array{x, w}, f: secondOf(once(layerMap)), same: []form{secondOf(once(layerGlobal)), secondOf(once(kept(SaveNames("scalar"))))}, tol: 1e-5},
		{name: "gradient of gradient around a loop", in: []array{x, normal(3, 3, 8)}, f: secondOf(manual(specs{onA, rep}, rep, inside)), same: []form{secondOf(global(insideGlobal))}, tol: 1e-5},
		{name: "open loop", in: []array{x}, f: manual(specs{onA}, rep, func(b *Builder, x []*Value) *Value {
			n := b.While([]*Value{b.Int(S32, 0)}, func(c []*Value) *Value { return Less(c[0], b.AxisIndex("a")) },
				func(c []*Value) []*Value { return []*Value{Add(c[0], b.Int(S32, 1))} })[0]
			return AllReduce(Mul(Sum(x[0], 0), Convert(n, F64)), "a")
		}), same: []form{global(func(b *Builder, x []*Value) *Value {
			total := b.Zeros(T(F64, 8))
			for i, p := range Split(x[0], 0, na) {
				total = Add(total, MulScalar(Sum(p, 0), float64(i)))
			}
			return total
		})}},
	}
}

func TestShardMapMistakes(t *testing.T) {
	m := newMesh(t, axis("a", 2), axis("b", 2))
	region := func(in, out sharding.Spec, f func(b *Builder, x *Value) *Value, opts ...ShardMapOption) func(b *Builder, x *Value) {
		return func(b *Builder, x *Value) {
			b.ShardMap([]*Value{x}, specs{in}, specs{out}, func(l []*Value) []*Value { return []*Value{f(b, l[0])} }, opts...)
		}
	}
	same := func(_ *Builder, x *Value) *Value { return x }
	for want, f := range map[string]func(b *Builder, x *Value){
		`result 0 differs from device to device over "a"`: region(onA, rep, same),
		`over "b"`:                             region(sharding.P([]string{"a", "b"}), onA, same),
		"collectives belong inside a ShardMap": func(_ *Builder, x *Value) { AllReduce(x, "a") },
		"does not make manual":                 region(onB, rep, same, ManualOver("a")),
		"not all manual here":                  region(onA, onA, func(_ *Builder, x *Value) *Value { return AllReduce(x, "b") }, ManualOver("a")),
		`unknown mesh axis "z"`:                region(onA, onA, func(_ *Builder, x *Value) *Value { return AllReduce(x, "z") }),
		"does not divide over 2":               region(rep, rep, func(_ *Builder, x *Value) *Value { return ReduceScatter(x, 1, "a") }),
		"size 3 does not divide":               region(sharding.P(nil, "a"), rep, same),
		"may take different branches": region(onA, onA, func(b *Builder, x *Value) *Value {
			return b.Cond(Equal(b.AxisIndex("a"), b.Int(S32, 0)), func() []*Value { return []*Value{AllReduce(x, "b")} }, // fine: b's devices go together
				func() []*Value { return []*Value{AllReduce(x, "a")} })[0]
		}),
		"needs every device of the mesh": region(onA, onA, func(b *Builder, x *Value) *Value {
			return b.Cond(Equal(b.AxisIndex("a"), b.Int(S32, 0)), func() []*Value { return []*Value{Shift(x, 1, "b")} }, func() []*Value { return []*Value{x} })[0]
		}),
		"the cotangent differs from device to device": region(onA, onA, func(b *Builder, x *Value) *Value {
			return VJP([]*Value{AllReduce(x, "a")}, []*Value{x}, []*Value{x})[0]
		}),
		"different numbers of iterations": region(onA, onA, func(b *Builder, x *Value) *Value {
			return b.While([]*Value{x}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F64, 9)) },
				func(c []*Value) []*Value { return []*Value{Shift(c[0], 1, "a")} })[0]
		}),
		`axis "a" is given twice`: region(onA, onA, func(_ *Builder, x *Value) *Value { return AllReduce(x, "a", "a") }),
		"AxisIndex works inside":  func(b *Builder, _ *Value) { b.AxisIndex("a") },
		"are manual already": region(onA, onA, func(b *Builder, x *Value) *Value {
			return b.ShardMap([]*Value{x}, specs{rep}, specs{rep}, func(l []*Value) []*Value { return l }, ManualOver("a"))[0]
		}, ManualOver("a")),
		"returns 0 results": func(b *Builder, x *Value) {
			b.ShardMap([]*Value{x}, specs{onA}, specs{onA}, func([]*Value) []*Value { return nil })
		},
		"1 specs for 2 arguments": func(b *Builder, x *Value) {
			b.ShardMap([]*Value{x, x}, specs{onA}, specs{onA}, func(l []*Value) []*Value { return l })
		},
		"sources and targets must be different":       region(onA, onA, func(_ *Builder, x *Value) *Value { return Permute(x, [][2]int{{0, 1}, {1, 1}}, "a") }),
		"inside a shard-map arrays are already local": region(onA, onA, func(_ *Builder, x *Value) *Value { return Constrain(x, onA) }),
	} {
		msg := traceError(t, m, func(b *Builder) {
			x := b.Input("x", T(F64, 8, 3))
			f(b, x)
			b.Output("x", x)
		})
		require.Contains(t, msg, want)
		require.Contains(t, msg, "shardmap_test.go:", msg)
	}
	require.Contains(t, traceError(t, nil, func(b *Builder) { region(rep, rep, same)(b, b.Input("x", T(F64, 2))) }), "no mesh")
}
