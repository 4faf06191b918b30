package graph

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/sharding"
)

// Tests of this package verify programs between passes too. Benchmarks measure
// what users run.
func init() {
	verifyPasses = !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.bench=") })
}

// everything is a valid program with every kind of region and their gradients.
func everything(t *testing.T) *Module {
	ms, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, nil)
	require.NoError(t, err)
	m, err := Trace("everything", ms, func(b *Builder) error {
		w := b.Input("w", T(F32, 4, 4), Donated(), Sharded(sharding.P("dp")))
		x := b.Input("x", T(F32, 8, 4), Sharded(sharding.P("dp")))
		spare := b.Input("spare", T(F32, 3))
		flag := b.Input("flag", T(Bool))
		h := Constrain(Einsum("bi,io->bo", x, w), sharding.P("dp", "tp"))
		h = Add(h, b.ConstF32([]int{4}, []float32{1, 2, 3, 4}))
		h = CustomVJP([]*Value{h}, func(args []*Value) (outs, residuals []*Value) {
			return []*Value{Tanh(args[0])}, args
		}, func(res, cts []*Value) []*Value { return []*Value{Mul(cts[0], Cos(res[0]))} })[0]
		h = b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{Sin(MatMul(h, w))} })[0]
		h = ToDevice(ToHost(h))
		h = Take(Sort(Cumsum(IndexAdd(h, b.ConstS32([]int{2}, []int32{1, 2}), b.Zeros(T(F32, 2, 4)), 0), 1), 1), ArgMax(h, 1), 0)
		ends, rows := b.Scan([]*Value{b.Zeros(T(F32, 4))}, []*Value{h}, func(c, r []*Value) (next, ys []*Value) {
			return []*Value{Add(c[0], Sin(r[0]))}, []*Value{Mul(c[0], Exp(r[0]))}
		})
		picked := b.Cond(flag, func() []*Value { return []*Value{Sin(ends[0])} }, func() []*Value { return []*Value{Exp(ends[0])} })[0]
		both := Barrier(picked, rows[0])
		manual := b.ShardMap([]*Value{both[1], w}, []sharding.Spec{sharding.P("dp", "tp"), sharding.P("dp", "tp")}, []sharding.Spec{sharding.P("dp", "tp"), sharding.P("tp")}, func(l []*Value) []*Value {
			rows, w := l[0], l[1] // [4,2] and [2,2] of devices that differ over dp and tp
			whole := AllGather(w, 0, "dp")
			y := Permute(MatMul(rows, ReduceScatter(whole, 0, "dp")), [][2]int{{0, 1}, {1, 0}}, "tp")
			y = Mul(y, Convert(Add(b.AxisIndex("dp"), b.Int(S32, 1)), F32))
			part := b.CustomCall(CustomCallSpec{Target: "local", Results: []Type{T(F32, 2)}, OnDevice: true, SideEffect: true}, StopGradient(y))[0]
			total, _ := b.Scan([]*Value{part}, []*Value{y}, func(c, r []*Value) (next, ys []*Value) {
				return []*Value{Add(c[0], r[0])}, nil
			})
			return []*Value{y, AllReduce(AllToAll(AllReduceMax(total[0], "dp"), 0, 0, "tp"), "dp")}
		})
		steps := b.While([]*Value{b.Int(S32, 0)}, func(c []*Value) *Value { return Less(c[0], b.Int(S32, 3)) },
			func(c []*Value) []*Value { return []*Value{Add(c[0], b.Int(S32, 1))} })[0]
		loss := Add(Add(Sum(both[0]), Sum(manual[0])), Sum(manual[1]))
		g := Grad(loss, w, x)
		b.Output("w", Sub(w, g[0]), Into(w))
		b.Output("gx", Add(g[1], Sum(spare)))
		b.Output("loss", Add(loss, Convert(steps, F32)))
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, m.Verify())
	return m
}

// find returns the n-th op of kind k in program order.
func find(m *Module, k opKind, n int) *Op {
	var found *Op
	m.main.walk(func(op *Op) {
		if op.kind == k {
			if n == 0 {
				found = op
			}
			n--
		}
	})
	if found == nil {
		panic("the program has no such op: " + defs[k].name)
	}
	return found
}

func remove(op *Op) {
	op.block.ops = slices.DeleteFunc(op.block.ops, func(o *Op) bool { return o == op })
}

// user returns an op of the same block that uses a result of op, nil if none does.
func user(op *Op) *Op {
	for _, o := range op.block.ops {
		for _, r := range op.results {
			if slices.Contains(o.operands, r) {
				return o
			}
		}
	}
	return nil
}

func TestVerifyRefuses(t *testing.T) {
	type corruption struct {
		name string
		// break corrupts m and returns the op that the error must name, nil for
		// the entry function.
		corrupt func(m *Module) *Op
		want    string
	}
	on := func(k opKind, n int, f func(m *Module, op *Op)) func(*Module) *Op {
		return func(m *Module) *Op {
			op := find(m, k, n)
			f(m, op)
			return op
		}
	}
	entry := func(f func(m *Module)) func(*Module) *Op {
		return func(m *Module) *Op { f(m); return nil }
	}
	foreign := func() *Value { return (&Module{}).newValue(T(F32, 8, 4), &Block{module: &Module{}}) }
	cases := []corruption{
		// Uses and definitions.
		{"op dropped", func(m *Module) *Op {
			op := find(m, opDot, 0)
			next := user(op)
			remove(op)
			return next
		}, "is not defined before its use"},
		{"ops out of order", func(m *Module) *Op {
			op := find(m, opDot, 0)
			next := user(op)
			remove(next)
			next.block.ops = append([]*Op{next}, next.block.ops...)
			return next
		}, "operand 0 of type f32[8,4] is not defined before its use"},
		{"value from a region", on(opAdd, 0, func(m *Module, op *Op) {
			op.operands[0] = find(m, opCheckpoint, 0).blocks[0].yields[0]
		}), "belongs to another block"},
		{"value from around a region", func(m *Module) *Op {
			op := find(m, opCheckpoint, 0).blocks[0].ops[0]
			op.operands[1] = m.main.args[0]
			return op
		}, "a region sees only its own arguments"},
		{"value from another program", on(opAdd, 0, func(m *Module, op *Op) { op.operands[1] = foreign() }), "belongs to another program"},
		{"operand nil", on(opAdd, 0, func(m *Module, op *Op) { op.operands[1] = nil }), "operand 1 is nil"},
		{"op is nil", entry(func(m *Module) { m.main.ops[3] = nil }), "an op is nil"},
		{"op twice", on(opAdd, 0, func(m *Module, op *Op) { op.block.ops = append(op.block.ops, op) }), "taken"},
		{"op in the wrong block", on(opSin, 0, func(m *Module, op *Op) { op.block = m.main }), "not at home in its block"},
		{"ids equal", on(opDot, 0, func(m *Module, op *Op) { op.results[0].id = m.main.args[0].id }), "taken"},
		{"id out of range", on(opDot, 0, func(m *Module, op *Op) { op.results[0].id = m.nextID + 7 }), "out of range"},
		{"result index", on(opBarrier, 0, func(m *Module, op *Op) {
			op.results[0], op.results[1] = op.results[1], op.results[0]
		}), "result 0 is not at home"},
		{"result of another op", on(opDot, 0, func(m *Module, op *Op) { op.results[0].op = find(m, opSin, 0) }), "result 0 is not at home"},
		{"result in another block", on(opDot, 0, func(m *Module, op *Op) { op.results[0].block = find(m, opScan, 0).blocks[0] }), "result 0 is not at home"},
		{"result nil", on(opDot, 0, func(m *Module, op *Op) { op.results[0] = nil }), "result 0 is not at home"},
		{"yield dangling", func(m *Module) *Op {
			op := find(m, opCheckpoint, 0)
			op.blocks[0].ops = op.blocks[0].ops[:1]
			return op
		}, "yield 0 of type f32[8,4] is not defined"},
		{"yield from outside", on(opCheckpoint, 0, func(m *Module, op *Op) { op.blocks[0].yields[0] = m.main.args[1] }), "yield 0 of type f32[8,4] belongs to another block"},
		{"yield nil", on(opScan, 0, func(m *Module, op *Op) { op.blocks[0].yields[0] = nil }), "yield 0 is nil"},
		{"output dangling", entry(func(m *Module) {
			m.main.ops = slices.DeleteFunc(m.main.ops, func(op *Op) bool { return op == m.main.yields[2].op })
		}), "yield 2 of type f32[] is not defined"},
		{"argument not at home", on(opScan, 0, func(m *Module, op *Op) {
			a := op.blocks[0].args
			a[0], a[1] = a[1], a[0]
		}), "argument 0 is not at home"},
		{"block of two ops", func(m *Module) *Op {
			op := find(m, opCond, 0)
			op.blocks[1] = op.blocks[0]
			return op
		}, "a block belongs to two ops"},
		{"block of another program", on(opCheckpoint, 0, func(m *Module, op *Op) { op.blocks[0].module = &Module{} }), "does not belong to the program"},

		// Types.
		{"operands swapped", on(opDot, 0, func(m *Module, op *Op) { op.operands[0], op.operands[1] = op.operands[1], op.operands[0] }), "left dimension 1 has size 4, right dimension 0 has 8"},
		{"operand missing", on(opDot, 0, func(m *Module, op *Op) { op.operands = op.operands[:1] }), "wrong number of operands or kind of attribute"},
		{"operand too many", on(opAdd, 0, func(m *Module, op *Op) { op.operands = append(op.operands, op.operands[0]) }), "3 operands, want 2"},
		{"attribute of another kind", on(opDot, 0, func(m *Module, op *Op) { op.attr = "no" }), "kind of attribute"},
		{"attribute missing", on(opScan, 0, func(m *Module, op *Op) { op.attr = nil }), "attribute of kind <nil>"},
		{"attribute of another region", on(opScan, 0, func(m *Module, op *Op) { op.attr = SaveNothing() }), "argument 1 of region 0 has type f32[4], the operand f32[8,4]"},
		{"unknown kind", func(m *Module) *Op {
			op := find(m, opAdd, 0)
			op.kind = numKinds + 3
			return op
		}, "there is no such op"},
		{"result type", on(opDot, 0, func(m *Module, op *Op) { op.results[0].typ = T(F32, 4, 8) }), "result 0 has type f32[4,8], the operands give f32[8,4]"},
		{"result element type", on(opDot, 0, func(m *Module, op *Op) { op.results[0].typ.DType = BF16 }), "the operands give f32[8,4]"},
		{"result missing", on(opBarrier, 0, func(m *Module, op *Op) { op.results = op.results[:1] }), "1 results, 2 expected"},
		{"argument type", on(opScan, 0, func(m *Module, op *Op) { op.blocks[0].args[0].typ = T(F32, 5) }), "argument 0 of region 0 has type f32[5], the operand f32[4]"},
		{"input size negative", entry(func(m *Module) { m.inputs[2].Type, m.main.args[2].typ = T(F32, -1), T(F32, -1) }), "negative size"},
		{"cotangent type", on(opDot, 0, func(m *Module, op *Op) { op.results[0].gradType = S32 }), "has cotangents of type s32"},
		{"constant data", on(opConst, 0, func(m *Module, op *Op) {
			at := op.attr.(constAttr)
			at.data = at.data[1:]
			op.attr = at
		}), "bytes of data"},
		{"memory", on(opToMemory, 0, func(m *Module, op *Op) { op.attr = "attic" }), `unknown memory "attic"`},

		// Regions.
		{"region missing", on(opWhile, 0, func(m *Module, op *Op) { op.blocks = op.blocks[:1] }), "the op has 1 regions"},
		{"region too many", on(opAdd, 0, func(m *Module, op *Op) { op.blocks = []*Block{{module: m}} }), "the op has 1 regions"},
		{"no branch", on(opCond, 0, func(m *Module, op *Op) { op.blocks = nil }), "the op has 0 regions"},
		{"region nil", on(opCond, 0, func(m *Module, op *Op) { op.blocks[1] = nil }), "region 1"},
		{"argument missing", on(opCheckpoint, 0, func(m *Module, op *Op) { op.blocks[0].args = op.blocks[0].args[:1] }), "does not have an argument for each operand"},
		{"branch argument missing", on(opCond, 0, func(m *Module, op *Op) { op.operands = op.operands[:1] }), "does not have an argument for each operand"},
		{"branch argument type", on(opCond, 0, func(m *Module, op *Op) { op.blocks[1].args[0].typ = T(F32, 9) }), "argument 0 of region 1 has type f32[9], the operand f32[4]"},
		{"yield missing", on(opScan, 0, func(m *Module, op *Op) { op.blocks[0].yields = op.blocks[0].yields[:1] }), "region 0 yields 1 values"},
		{"condition yields nothing", on(opWhile, 0, func(m *Module, op *Op) { op.blocks[0].yields = nil }), "region 0 yields 0 values"},
		{"condition type", on(opWhile, 0, func(m *Module, op *Op) { op.blocks[0].yields[0] = op.blocks[0].args[0] }), "the condition must be one bool scalar"},
		{"carry type", on(opScan, 0, func(m *Module, op *Op) {
			body := op.blocks[0]
			body.yields[0] = body.appendReshape(body.yields[0], []int{4, 1})
		}), "carry 0 enters with type f32[4] and leaves the body with f32[4,1]"},
		{"carries", on(opScan, 0, func(m *Module, op *Op) { op.attr.(*scanAttr).carries = 100 }), "100 carries"},
		{"iterations", on(opScan, 0, func(m *Module, op *Op) { op.attr.(*scanAttr).n = -1 }), "-1 iterations"},
		{"rows", on(opScan, 0, func(m *Module, op *Op) { op.attr.(*scanAttr).n = 3 }), "does not have 3 rows"},
		{"while carries", on(opWhile, 0, func(m *Module, op *Op) { op.attr = whileAttr{} }), "0 carries"},
		{"cond residuals", on(opCond, 0, func(m *Module, op *Op) { op.attr.(*condAttr).declared++ }), "declared"},
		{"branch results", on(opCond, 0, func(m *Module, op *Op) { op.blocks[1].yields = op.blocks[1].yields[:0] }), "region 1 yields 0 values"},

		// Manual regions.
		{"vary outside", on(opDot, 0, func(m *Module, op *Op) { op.results[0].vary = 1 }), `varies over "dp", not manual here`},
		{"vary lost", on(opPermute, 0, func(m *Module, op *Op) { op.results[0].vary = 1 }), `recorded as varying over "dp", it varies over "dp", "tp"`},
		{"vary of a loop argument", on(opScan, 1, func(m *Module, op *Op) { op.blocks[0].args[0].vary = 0 }), `varies over no axis, its operand gives "dp", "tp"`},
		{"vary of a map argument", on(opShardMap, 0, func(m *Module, op *Op) { op.blocks[0].args[0].vary = 0 }), `varies over no axis, its operand gives "dp", "tp"`},
		{"operands not level", func(m *Module) *Op {
			op := find(m, opPvary, 0)
			u := user(op)
			u.operands[slices.Index(u.operands, op.results[0])] = op.operands[0]
			return u
		}, `operand 1 varies over no axis, the ones before over "dp"`},
		{"pvary over nothing", on(opPvary, 0, func(m *Module, op *Op) { op.attr = axisSet(0) }), "spreads over"},
		{"pvary over no axis", on(opPvary, 0, func(m *Module, op *Op) { op.attr = axisSet(8); op.results[0].vary = 8 }), `"axis 3"`},
		{"out spec names too little", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).out[0] = sharding.P("dp") }), "f32[8,2]"},
		{"out spec names an equal axis", on(opShardMap, 0, func(m *Module, op *Op) {
			op.attr.(*shardMapAttr).out[1] = sharding.P([]string{"dp", "tp"})
			op.results[1].typ = T(F32, 8)
		}), `yield 1 varies over "tp" of the manual axes`},
		{"in spec", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).in[0] = sharding.P("dp", nil) }), `its operand gives "dp"`},
		{"in spec in the wrong order", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).in[0] = sharding.P([]string{"dp", "tp"}) }), "local type f32[2,4]"},
		{"spec of no axis", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).in[0] = sharding.P("pp") }), `no axis "pp"`},
		{"spec missing", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).in = nil }), "0 specs for"},
		{"spec over an axis left to the compiler", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).manual = 1 }), "which the region does not make manual"},
		{"nothing manual", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).manual = 0 }), "makes"},
		{"manual around", on(opShardMap, 0, func(m *Module, op *Op) { op.attr.(*shardMapAttr).around = 2 }), "recorded as manual around it"},
		{"another mesh", on(opShardMap, 0, func(m *Module, op *Op) {
			op.attr.(*shardMapAttr).mesh, _ = mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, nil)
		}), "mesh is not the program's"},
		{"collective outside", func(m *Module) *Op {
			inner := find(m, opAllReduce, 0)
			op := *inner
			op.block, op.operands = m.main, []*Value{m.main.args[1]}
			op.results = []*Value{m.newValue(T(F32, 8, 4), m.main)}
			op.results[0].op = &op
			m.main.ops = append(m.main.ops, &op)
			return &op
		}, "not manual here"},
		{"collective's set", on(opAllGather, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.axes = []string{"tp"} }) }), "are not those of the set"},
		{"collective's axis unknown", on(opAllGather, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.axes = []string{"pp"} }) }), "are not those of the set"},
		{"collective's axis twice", on(opAllGather, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.axes = []string{"dp", "dp"} }) }), "given twice"},
		{"collective's size", on(opAllGather, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.n = 4 }) }), "result 0 has type f32[4,2], the operands give f32[8,2]"},
		{"collective's dimension", on(opReduceScatter, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.dim = 3 }) }), "dimension 3"},
		{"collective's reduction", on(opAllReduce, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.kind = reduceOr }) }), "cannot reduce by any"},
		{"permutation out of range", on(opPermute, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.pair = [][2]int{{0, 2}} }) }), "pair [0 2]"},
		{"permutation twice to one", on(opPermute, 0, func(m *Module, op *Op) {
			setCollective(op, func(a *collectiveAttr) { a.pair = [][2]int{{0, 1}, {1, 1}} })
		}), "pair [1 1]"},
		{"all_to_all dimension", on(opAllToAll, 0, func(m *Module, op *Op) { setCollective(op, func(a *collectiveAttr) { a.dim2 = -1 }) }), "dimensions 0 and -1"},
		{"device code outside", func(m *Module) *Op {
			op := *find(m, opCustomCall, 0)
			op.block, op.operands = m.main, nil
			op.results = []*Value{m.newValue(T(F32, 2), m.main)}
			op.results[0].op = &op
			m.main.ops = append(m.main.ops, &op)
			return &op
		}, `axis "dp" is not manual here`},

		// Shardings.
		{"constraint of no axis", on(opConstrain, 0, func(m *Module, op *Op) { setSpec(op, sharding.P("pp")) }), `"pp"`},
		{"cotangent's constraint", on(opConstrain, 0, func(m *Module, op *Op) {
			at := op.attr.(constrainAttr)
			at.ct = sharding.P("dp", "dp")
			op.attr = at
		}), "used once"},
		{"uneven", entry(func(m *Module) { s := sharding.P("dp"); m.inputs[2].Spec = &s }), `input "spare" of type f32[3] is sharded P("dp"): sharding: dimension 0 of size 3 does not divide`},
		{"constraint on too many dimensions", on(opConstrain, 0, func(m *Module, op *Op) { setSpec(op, sharding.P("dp", nil, "tp")) }), "names 3 dimensions"},
		{"value's sharding", on(opDot, 0, func(m *Module, op *Op) { s := sharding.P("dp", "dp"); op.results[0].spec = &s }), "used once"},
		{"input's sharding", entry(func(m *Module) { s := sharding.P("pp"); m.inputs[1].Spec = &s }), `input "x" of type f32[8,4] is sharded`},
		{"output's sharding", entry(func(m *Module) { s := sharding.P(nil, nil, "dp"); m.outputs[1].Spec = &s }), `output "gx" of type f32[8,4] is sharded`},
		{"sharding without a mesh", entry(func(m *Module) { m.mesh = nil }), "no mesh"},

		// Inputs and outputs.
		{"input missing", entry(func(m *Module) { m.inputs = m.inputs[1:] }), "declared 3 inputs"},
		{"output missing", entry(func(m *Module) { m.main.yields = m.main.yields[1:] }), "3 outputs"},
		{"input type", entry(func(m *Module) { m.inputs[1].Type = T(F32, 4, 8) }), `input "x" is declared f32[4,8]`},
		{"output type", entry(func(m *Module) { m.outputs[1].Type = T(F32, 4, 8) }), `output "gx" is declared f32[4,8]`},
		{"donation not taken", entry(func(m *Module) { m.outputs[0].Alias = -1 }), `input "w" gives its memory to output 0`},
		{"donation pending", entry(func(m *Module) { m.inputs[0].Alias = aliasPending }), `input "w" gives its memory`},
		{"donation out of range", entry(func(m *Module) { m.inputs[0].Alias = 9 }), `input "w" gives its memory to output 9`},
		{"memory taken twice", entry(func(m *Module) { m.inputs[2].Alias = 0 }), `input "spare" gives its memory to output 0, which does not take it`},
		{"memory of an input that keeps it", entry(func(m *Module) { m.outputs[1].Alias = 1 }), `output "gx" takes the memory of input 1`},
		{"memory of another type", entry(func(m *Module) { m.inputs[0].Alias, m.outputs[0].Alias = 1, -1; m.outputs[1].Alias = 0 }), `output "gx" of type f32[8,4] takes the memory of input "w" of type f32[4,4]`},
		{"memory of another sharding", entry(func(m *Module) { s := sharding.P("tp"); m.outputs[0].Spec = &s }), "sharded differently"},
		{"memory on the host", entry(func(m *Module) { m.inputs[0].Host = true }), "only one is on the host"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := everything(t)
			named := c.corrupt(m)
			err := m.Verify()
			require.Error(t, err)
			var e *Error
			require.True(t, errors.As(err, &e))
			require.ErrorContains(t, err, c.want)
			if named == nil {
				require.Equal(t, "verify", e.Op)
				return
			}
			require.Equal(t, named.name(), e.Op, "%v", err)
			require.Equal(t, named.pos.String(), e.Pos, "%v", err)
			require.Contains(t, e.Pos, "verify_test.go:")
		})
	}
}

func setCollective(op *Op, f func(*collectiveAttr)) {
	at := op.attr.(collectiveAttr)
	f(&at)
	op.attr = at
}

func setSpec(op *Op, s sharding.Spec) {
	at := op.attr.(constrainAttr)
	at.spec = s
	op.attr = at
}

// TestVerifyAfterTrace: a program that ops were recorded for too late is not
// the program that the caller believes in.
func TestVerifyAfterTrace(t *testing.T) {
	var kept *Value
	m, err := Trace("kept", nil, func(b *Builder) error {
		kept = b.Input("x", T(F32, 2))
		b.Output("y", Neg(kept))
		return nil
	})
	require.NoError(t, err)
	text := m.StableHLO()
	require.Equal(t, T(F32, 2), Add(kept, Exp(kept)).Type())
	require.Equal(t, text, m.StableHLO())
	require.ErrorContains(t, m.Verify(), `exp: recorded after Trace("kept") had returned`)
	require.ErrorContains(t, m.Verify(), "graph/verify_test.go:")
}

// TestVerifyNoticesEveryChange changes each op of the program in turn.
func TestVerifyNoticesEveryChange(t *testing.T) {
	nth := func(m *Module, n int) (op *Op) {
		m.main.walk(func(o *Op) {
			if n == 0 {
				op = o
			}
			n--
		})
		return op
	}
	changes := map[string]func(m *Module, op *Op){
		"dropped":              func(m *Module, op *Op) { remove(op) },
		"twice":                func(m *Module, op *Op) { op.block.ops = append(op.block.ops, op) },
		"moved to the end":     func(m *Module, op *Op) { remove(op); op.block.ops = append(op.block.ops, op) },
		"element type":         func(m *Module, op *Op) { op.results[0].typ.DType = U16 },
		"rank":                 func(m *Module, op *Op) { op.results[0].typ.Shape = append([]int{1}, op.results[0].typ.Shape...) },
		"varies differently":   func(m *Module, op *Op) { op.results[0].vary ^= 1 },
		"another result id":    func(m *Module, op *Op) { op.results[0].id = m.main.args[0].id },
		"one result more":      func(m *Module, op *Op) { op.insertResult(len(op.results), T(F32)) },
		"no result":            func(m *Module, op *Op) { op.results = nil },
		"no attribute, no ops": func(m *Module, op *Op) { op.attr, op.operands = nil, nil },
		"copied":               func(m *Module, op *Op) { c := *op; op.block.ops = append(op.block.ops, &c) },
	}
	ops := 0
	everything(t).main.walk(func(*Op) { ops++ })
	require.Greater(t, ops, 100)
	for what, change := range changes {
		for n := range ops {
			m := everything(t)
			op := nth(m, n)
			last := what == "moved to the end" && user(op) == nil
			bare := op.attr == nil && len(op.operands) == 0
			if last || bare || defs[op.kind].effect {
				continue
			}
			before := op.pos.String()
			change(m, op)
			if what == "no attribute, no ops" && op.kind == opBarrier {
				continue // a barrier of nothing is one
			}
			require.Error(t, m.Verify(), "%s from %s, %s", op.name(), before, what)
		}
	}
}
