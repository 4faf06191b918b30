package graph_test

import (
	. "titan/graph"
	"titan/sharding"
)

// wrongRegions are mistakes in regions, derivatives, shardings, inputs and
// outputs.
var wrongRegions = []wrong{
	// Regions.
	{"scan lengths", "scan", []string{"must all have 4 rows", "f32[3]"}, func(b *Builder) {
		b.Scan(nil, []*Value{x48(b), b.Zeros(T(F32, 3))}, func(_, r []*Value) (next, ys []*Value) { return nil, r }) // !
	}},
	{"scan without length", "scan", []string{"Iterations"}, func(b *Builder) {
		b.Scan([]*Value{x48(b)}, nil, func(c, _ []*Value) (next, ys []*Value) { return c, nil }) // !
	}},
	{"scan of a scalar", "scan", []string{"leading dimension", "scan(f32[])"}, func(b *Builder) {
		b.Scan(nil, []*Value{b.Scalar(F32, 1)}, func(_, r []*Value) (next, ys []*Value) { return nil, r }) // !
	}},
	{"carry type", "scan", []string{"carry 0 enters with type f32[8] and leaves the body with f64[8]"}, func(b *Builder) {
		b.Scan([]*Value{b.Zeros(T(F32, 8))}, []*Value{x48(b)}, func(c, r []*Value) (next, ys []*Value) { // !
			return []*Value{Convert(Add(c[0], r[0]), F64)}, nil
		})
	}},
	{"carries", "scan", []string{"the body returns 2 carries, the loop has 1"}, func(b *Builder) {
		b.Scan([]*Value{b.Zeros(T(F32, 8))}, []*Value{x48(b)}, func(c, r []*Value) (next, ys []*Value) { // !
			return []*Value{c[0], c[0]}, nil
		})
	}},
	{"in a loop's body", "add", []string{"add(f32[8], f32[4,7])"}, func(b *Builder) {
		b.Scan([]*Value{b.Zeros(T(F32, 8))}, []*Value{x48(b)}, func(c, r []*Value) (next, ys []*Value) {
			b.Checkpoint(SaveNothing(), func() []*Value {
				return b.Cond(Greater(Sum(c[0]), Sum(r[0])), func() []*Value {
					return []*Value{Add(c[0], b.Zeros(T(F32, 4, 7)))} // !
				}, func() []*Value { return c })
			})
			return c, nil
		})
	}},
	{"value of an ended region", "neg", []string{"operand f32[8] was computed inside a region", "has ended", "return it"}, func(b *Builder) {
		var leaked *Value
		b.Scan([]*Value{b.Zeros(T(F32, 8))}, []*Value{x48(b)}, func(c, r []*Value) (next, ys []*Value) {
			leaked = Exp(r[0])
			return c, nil
		})
		Neg(leaked) // !
	}},
	{"value of another branch", "exp", []string{"has ended"}, func(b *Builder) {
		var leaked *Value
		x := x48(b)
		b.Cond(b.Input("p", T(Bool)), func() []*Value {
			return []*Value{Exp(leaked)} // !
		}, func() []*Value {
			leaked = Neg(x)
			return []*Value{leaked}
		})
	}},
	{"value of another region as output", "output", []string{"has ended"}, func(b *Builder) {
		var leaked *Value
		b.Checkpoint(SaveNothing(), func() []*Value { leaked = Exp(x48b(b)); return nil })
		b.Output("y", leaked) // !
	}},
	{"predicate", "cond", []string{"cond(f32[4,8])", "must be a bool scalar"}, func(b *Builder) {
		b.Cond(x48(b), nil, nil) // !
	}},
	{"predicate nil", "cond", []string{"cond(nil)", "must be a bool scalar"}, func(b *Builder) {
		b.Cond(nil, nil, nil) // !
	}},
	{"branches differ", "cond", []string{"branch 0 returns", "f64[4,8]"}, func(b *Builder) {
		x := x48(b)
		b.Cond(b.Input("p", T(Bool)), func() []*Value { return []*Value{x} }, func() []*Value { return []*Value{Convert(x, F64)} }) // !
	}},
	{"branches return different numbers", "cond", []string{"branch 0 returns 0 values, branch 1 returns 1"}, func(b *Builder) {
		x := x48(b)
		b.Cond(b.Input("p", T(Bool)), func() []*Value { return []*Value{x} }, func() []*Value { return nil }) // !
	}},
	{"switch without branches", "switch", []string{"no branches"}, func(b *Builder) {
		b.Switch(b.Int(S32, 1)) // !
	}},
	{"while's condition", "while", []string{"the condition must be one bool scalar"}, func(b *Builder) {
		b.While([]*Value{b.Int(S32, 0)}, func(c []*Value) *Value { return c[0] }, func(c []*Value) []*Value { return c }) // !
	}},
	{"while's carry", "while", []string{"carry 0 enters with type s32[] and leaves the body with f32[]"}, func(b *Builder) {
		b.While([]*Value{b.Int(S32, 0)}, func(c []*Value) *Value { return Less(c[0], c[0]) }, func(c []*Value) []*Value { // !
			return []*Value{Convert(c[0], F32)}
		})
	}},
	{"while of nothing", "while", []string{"nothing is carried"}, func(b *Builder) {
		b.While(nil, nil, nil) // !
	}},
	{"checkpoint every 0", "checkpoint", []string{"n must be at least 1"}, func(b *Builder) {
		b.CheckpointEvery(0, 1, SaveNothing(), func() []*Value { return nil }) // !
	}},
	{"layers of different depth", "layers", []string{"same leading layer dimension"}, func(b *Builder) {
		b.Layers(nil, []*Value{x48(b), b.Zeros(T(F32, 3))}, nil, LayersOptions{}) // !
	}},
	{"name", "name", []string{"empty"}, func(b *Builder) {
		Name(x48(b), "") // !
	}},

	// Differentiation.
	{"loss not a scalar", "grad", []string{"grad(f32[4,8])", "scalar float"}, func(b *Builder) {
		x := x48(b)
		Grad(x, x) // !
	}},
	{"loss of integers", "grad", []string{"grad(s32[])"}, func(b *Builder) {
		Grad(Sum(b.Iota(T(S32, 8), 0)), x48(b)) // !
	}},
	{"loss nil", "grad", []string{"the loss is nil"}, func(b *Builder) {
		Grad(nil, x48(b)) // !
	}},
	{"with respect to integers", "vjp", []string{"vjp(s32[8])", "cannot differentiate with respect to s32"}, func(b *Builder) {
		i := b.Input("i", T(S32, 8))
		Grad(Sum(Convert(i, F32)), i) // !
	}},
	{"with respect to a leaked value", "vjp", []string{"has ended"}, func(b *Builder) {
		var leaked *Value
		x := x48(b)
		y := b.Checkpoint(SaveNothing(), func() []*Value { leaked = Exp(x); return []*Value{Sum(leaked)} })[0]
		Grad(y, leaked) // !
	}},
	{"through while", "while", []string{"no derivative in reverse mode", "CustomVJP"}, func(b *Builder) {
		x := x48(b)
		y := b.While([]*Value{x}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F32, 9)) }, func(c []*Value) []*Value { // !
			return []*Value{Exp(c[0])}
		})
		Grad(Sum(y[0]), x)
	}},
	{"through while in regions", "while", []string{"no derivative in reverse mode"}, func(b *Builder) {
		x := x48(b)
		loop := func(v *Value) *Value {
			return b.While([]*Value{v}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F32, 9)) }, func(c []*Value) []*Value { return c })[0] // !
		}
		ys, _ := b.Scan([]*Value{b.Zeros(T(F32, 8))}, []*Value{x}, func(c, r []*Value) (next, ys []*Value) {
			return b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{Mul(loop(r[0]), c[0])} }), nil
		})
		Grad(Sum(ys[0]), x)
	}},
	{"through a custom call", "custom_call", []string{"no derivative", "custom_call(f32[4,8])"}, func(b *Builder) {
		x := x48(b)
		y := b.CustomCall(CustomCallSpec{Target: "t", Results: []Type{T(F32)}}, x) // !
		Grad(y[0], x)
	}},
	{"cotangent's shape", "vjp", []string{"vjp(f32[4,8], f32[8])", "shape differs"}, func(b *Builder) {
		x := x48(b)
		VJP([]*Value{Exp(x)}, []*Value{b.Zeros(T(F32, 8))}, []*Value{x}) // !
	}},
	{"cotangents missing", "vjp", []string{"0 cotangents for 1 outputs"}, func(b *Builder) {
		x := x48(b)
		VJP([]*Value{x}, nil, []*Value{x}) // !
	}},
	{"no outputs", "vjp", []string{"no outputs"}, func(b *Builder) {
		VJP(nil, nil, nil) // !
	}},
	{"custom_vjp captures", "custom_vjp", []string{"uses", "from outside", "pass it as an argument"}, func(b *Builder) {
		x := x48(b)
		y := Exp(x)
		CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) {
			return []*Value{Mul(a[0], y)}, nil // !
		}, nil)
	}},
	{"custom_vjp returns too little", "custom_vjp", []string{"returns 0 cotangents for 1 arguments"}, func(b *Builder) {
		x := x48(b)
		y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sum(a[0])}, nil }, // !
			func(res, cts []*Value) []*Value { return nil })
		Grad(y[0], x)
	}},
	{"custom_vjp returns the wrong shape", "custom_vjp", []string{"cotangent 0 has type f32[8], the argument f32[4,8]"}, func(b *Builder) {
		x := x48(b)
		y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sum(a[0])}, nil }, // !
			func(res, cts []*Value) []*Value { return []*Value{b.Zeros(T(F32, 8))} })
		Grad(y[0], x)
	}},
	{"in a backward function", "add", []string{"add(f32[4,8], f32[3])"}, func(b *Builder) {
		x := x48(b)
		y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sum(a[0])}, a },
			func(res, cts []*Value) []*Value {
				return []*Value{Add(res[0], b.Zeros(T(F32, 3)))} // !
			})
		Grad(y[0], x)
	}},

	// Shardings and manual regions.
	{"unknown axis", "constrain", []string{`unknown mesh axis "dq"`, `did you mean "dp"?`, "dp=2 × tp=4"}, func(b *Builder) {
		Constrain(x48(b), sharding.P("dq")) // !
	}},
	{"uneven", "constrain", []string{`P("tp")`, "dimension 0 of size 6 does not divide over tp=4"}, func(b *Builder) {
		Constrain(b.Zeros(T(F32, 6)), sharding.P("tp")) // !
	}},
	{"axis twice", "constrain", []string{"used once"}, func(b *Builder) {
		Constrain(x48(b), sharding.P("dp", "dp")) // !
	}},
	{"spec rank", "constrain", []string{"names 3 dimensions"}, func(b *Builder) {
		Constrain(x48(b), sharding.P("dp", nil, "tp")) // !
	}},
	{"operands name their shardings", "add", []string{`add(f32[4,8] P("dp"), f32[8,4] P(nil, "tp"))`}, func(b *Builder) {
		y := Constrain(b.Zeros(T(F32, 8, 4)), sharding.P(nil, "tp"))
		Add(b.Input("x", T(F32, 4, 8), Sharded(sharding.P("dp"))), y) // !
	}},
	{"input's sharding", `input "x"`, []string{"does not divide"}, func(b *Builder) {
		b.Input("x", T(F32, 3), Sharded(sharding.P("dp"))) // !
	}},
	{"output's sharding", `output "y"`, []string{`unknown mesh axis "t"`}, func(b *Builder) {
		b.Output("y", x48(b), Sharded(sharding.P("t"))) // !
	}},
	{"spec of a number", "constrain", []string{"dimension 0 of a spec is a int"}, func(b *Builder) {
		Constrain(x48(b), sharding.P(3)) // !
	}},
	{"GradIn of integers", "constrain", []string{"GradIn(s32)"}, func(b *Builder) {
		Constrain(x48(b), sharding.P("dp"), GradIn(S32)) // !
	}},
	{"collective outside", "all_reduce", []string{"all_reduce(f32[4,8])", `"dp"`, "inside a ShardMap"}, func(b *Builder) {
		AllReduce(x48(b), "dp") // !
	}},
	{"collective over an axis left to the compiler", "all_gather", []string{`"tp"`, "inside a ShardMap"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("dp")}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value {
			return []*Value{AllGather(l[0], 1, "tp")} // !
		}, ManualOver("dp"))
	}},
	{"collective over no axis", "all_to_all", []string{`unknown mesh axis "pd"; did you mean "dp"?`}, func(b *Builder) {
		AllToAll(x48(b), 0, 1, "pd") // !
	}},
	{"reduce_scatter", "reduce_scatter", []string{"dimension 0 of size 2 does not divide over 4 devices", "varying over {dp,tp}"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("dp", "tp")}, []sharding.Spec{sharding.P("dp", "tp")}, func(l []*Value) []*Value {
			return []*Value{ReduceScatter(l[0], 0, "tp")} // !
		})
	}},
	{"permutation", "collective_permute", []string{"pair [0 7]"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("dp", "tp")}, []sharding.Spec{sharding.P("dp", "tp")}, func(l []*Value) []*Value {
			return []*Value{Permute(l[0], [][2]int{{0, 7}}, "tp")} // !
		})
	}},
	{"axis_index outside", "axis_index", []string{"inside a ShardMap"}, func(b *Builder) {
		b.AxisIndex("dp") // !
	}},
	{"result differs", "shard_map", []string{"result 0 differs from device to device", `"tp"`, "AllReduce", `P("dp")`}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("dp", "tp")}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value { return l }) // !
	}},
	{"specs and arguments", "shard_map", []string{"0 specs for 1 arguments"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, nil, nil, nil) // !
	}},
	{"specs and results", "shard_map", []string{"returns 1 results, there are 0 specs"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P()}, nil, func(l []*Value) []*Value { return l }) // !
	}},
	{"argument uneven", "shard_map", []string{"argument 0", "shard_map(f32[6])", "does not divide over tp=4"}, func(b *Builder) {
		b.ShardMap([]*Value{b.Zeros(T(F32, 6))}, []sharding.Spec{sharding.P("tp")}, nil, nil) // !
	}},
	{"spec over an axis that is not manual", "shard_map", []string{`P("tp")`, "does not make manual"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("tp")}, nil, nil, ManualOver("dp")) // !
	}},
	{"constraint on a manual axis", "constrain", []string{`"dp" are manual here`}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("dp")}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value {
			return []*Value{Constrain(l[0], sharding.P("dp"))} // !
		})
	}},
	{"manual twice", "shard_map", []string{"manual already"}, func(b *Builder) {
		b.ShardMap([]*Value{x48(b)}, []sharding.Spec{sharding.P("dp")}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value {
			return b.ShardMap(l, []sharding.Spec{sharding.P("dp")}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value { return l }) // !
		})
	}},
	{"device code outside", "custom_call", []string{"custom_call(f32[4,8])", `axis "dp" is not manual here`, "ShardMap"}, func(b *Builder) {
		b.CustomCall(CustomCallSpec{Target: "kernel", Results: []Type{T(F32)}, OnDevice: true}, x48(b)) // !
	}},
	{"custom_call of nothing", "custom_call", []string{"target is empty"}, func(b *Builder) {
		b.CustomCall(CustomCallSpec{}, x48(b)) // !
	}},

	// Inputs and outputs.
	{"input in a region", "input", []string{`"late"`, "inside a region"}, func(b *Builder) {
		b.Checkpoint(SaveNothing(), func() []*Value {
			return []*Value{b.Input("late", T(F32))} // !
		})
	}},
	{"output in a region", "output", []string{"inside a region"}, func(b *Builder) {
		x := x48(b)
		b.Checkpoint(SaveNothing(), func() []*Value {
			b.Output("y", x) // !
			return nil
		})
	}},
	{"input type", "input", []string{`"x" of type f32[-1]`}, func(b *Builder) {
		b.Input("x", T(F32, -1)) // !
	}},
	{"donated and not taken", "input", []string{`input 0 "x" is donated but no output takes its memory`, "f32[3]"}, func(b *Builder) {
		x := b.Input("x", T(F32, 3), Donated()) // !
		b.Output("y", Neg(x))
	}},
	{"taken and not donated", "output", []string{`input "x" is not declared Donated`}, func(b *Builder) {
		x := x48(b)
		b.Output("y", x, Into(x)) // !
	}},
	{"taken twice", "output", []string{`already goes to output "y"`}, func(b *Builder) {
		x := b.Input("x", T(F32, 3), Donated())
		b.Output("y", x, Into(x))
		b.Output("z", x, Into(x)) // !
	}},
	{"taken by another type", "output", []string{`"y" of type f32[] cannot take the memory of input "x" of type f32[3]`}, func(b *Builder) {
		x := b.Input("x", T(F32, 3), Donated())
		b.Output("y", Sum(x), Into(x)) // !
	}},
	{"taken by another sharding", "output", []string{`P("dp")`, `input "x"`}, func(b *Builder) {
		x := b.Input("x", T(F32, 8), Donated(), Sharded(sharding.P("tp")))
		b.Output("y", x, Into(x), Sharded(sharding.P("dp"))) // !
	}},
	{"into what is no input", "output", []string{"Into needs an input"}, func(b *Builder) {
		x := x48(b)
		b.Output("y", x, Into(Neg(x))) // !
	}},
	{"output nil", "output", []string{"nil"}, func(b *Builder) {
		b.Output("y", nil) // !
	}},
	{"model code's own", "", []string{"heads 3 do not divide"}, func(b *Builder) {
		b.Fail("heads %d do not divide", 3) // !
	}},
}
