package graph_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// wrong is a program with a mistake on the line that ends in "// !".
type wrong struct {
	name string
	op   string   // Error.Op
	want []string // parts of the message
	f    func(b *Builder)
}

func x48(b *Builder) *Value { return b.Input("x", T(F32, 4, 8)) }

// twice is a helper of model code, so mistakes in it are on its own line.
func twice(x *Value) *Value {
	y := Add(x, x)
	return MatMul(y, y) // !twice
}

var wrongPrograms = []wrong{
	// Types and shapes, op by op.
	{"element types", "add", []string{"add(f32[4,8], s32[8])", "use Convert"}, func(b *Builder) {
		Add(x48(b), b.Iota(T(S32, 8), 0)) // !
	}},
	{"broadcast", "mul", []string{"mul(f32[4,8], f32[4])", "do not broadcast"}, func(b *Builder) {
		Mul(x48(b), b.Zeros(T(F32, 4))) // !
	}},
	{"comparison", "compare", []string{"(f32[4,8], bf16[8])"}, func(b *Builder) {
		Less(x48(b), b.Zeros(T(BF16, 8))) // !
	}},
	{"float op of integers", "exp", []string{"exp(s32[8])", "s32 is not a float"}, func(b *Builder) {
		Exp(b.Iota(T(S32, 8), 0)) // !
	}},
	{"bits of floats", "and", []string{"f32 is not an integer or bool"}, func(b *Builder) {
		And(x48(b), x48(b)) // !
	}},
	{"shift of booleans", "shift_left", []string{"bool is not an integer"}, func(b *Builder) {
		p := b.Input("p", T(Bool))
		ShiftLeft(p, p) // !
	}},
	{"abs of unsigned", "abs", []string{"u8 is not a signed number"}, func(b *Builder) {
		Abs(b.Input("u", T(U8))) // !
	}},
	{"select's condition", "select", []string{"condition has element type f32"}, func(b *Builder) {
		x := x48(b)
		Select(x, x, x) // !
	}},
	{"select's branches", "select", []string{"(f32[4,8], f64[4,8])"}, func(b *Builder) {
		x := x48(b)
		Select(Greater(x, x), x, Convert(x, F64)) // !
	}},
	{"select's shape", "select", []string{"(bool[3], f32[4,8], f32[4,8])", "do not broadcast"}, func(b *Builder) {
		x := x48(b)
		Select(b.Input("p", T(Bool, 3)), x, x) // !
	}},
	{"bitcast", "bitcast", []string{"f32 and f64 differ in size"}, func(b *Builder) {
		Bitcast(x48(b), F64) // !
	}},
	{"convert to nothing", "convert", []string{"invalid"}, func(b *Builder) {
		Convert(x48(b), DType(200)) // !
	}},
	{"reduce_precision", "reduce_precision", []string{"0 exponent"}, func(b *Builder) {
		ReducePrecision(x48(b), 0, 3) // !
	}},
	{"is_finite of integers", "is_finite", []string{"not a float"}, func(b *Builder) {
		IsFinite(b.Iota(T(S32, 8), 0)) // !
	}},
	{"reshape", "reshape", []string{"reshape(f32[4,8])", "32 elements do not fill shape [5,7], which has 35"}, func(b *Builder) {
		Reshape(x48(b), 5, 7) // !
	}},
	{"reshape with -1", "reshape", []string{"[5,1]"}, func(b *Builder) {
		Reshape(x48(b), 5, -1) // !
	}},
	{"transpose", "transpose", []string{"[0 0] is not a permutation of the 2 dimensions"}, func(b *Builder) {
		Transpose(x48(b), 0, 0) // !
	}},
	{"reverse", "reverse", []string{"dimension 2 of a value of rank 2"}, func(b *Builder) {
		Reverse(x48(b), 2) // !
	}},
	{"slice", "slice", []string{"bounds 2:9:1 of dimension 1 of size 8"}, func(b *Builder) {
		SliceDim(x48(b), 1, 2, 9) // !
	}},
	{"split", "split", []string{"of size 8, does not split into 3 equal parts"}, func(b *Builder) {
		Split(x48(b), -1, 3) // !
	}},
	{"squeeze", "squeeze", []string{"dimension 0 of f32[4,8] has size 4"}, func(b *Builder) {
		Squeeze(x48(b), 0) // !
	}},
	{"pad", "pad", []string{"negative padding of dimension 0"}, func(b *Builder) {
		Pad(x48(b), b.Scalar(F32, 0), []int{-1, 0}, nil, nil) // !
	}},
	{"concatenate", "concatenate", []string{"(f32[4,8], f32[4,7])", "differ in dimension 1"}, func(b *Builder) {
		Concat(0, x48(b), b.Zeros(T(F32, 4, 7))) // !
	}},
	{"concatenate nothing", "concatenate", []string{"no operands"}, func(b *Builder) {
		Concat(0) // !
	}},
	{"expand_dims", "expand_dims", []string{"dimension 4 of a value of rank 3"}, func(b *Builder) {
		ExpandDims(x48(b), 4) // !
	}},
	{"broadcast_to", "broadcast", []string{"target shape [8] has fewer dimensions"}, func(b *Builder) {
		BroadcastTo(x48(b), 8) // !
	}},
	{"broadcast_in_dim", "broadcast", []string{"dimension 1 of size 8 does not repeat to 3"}, func(b *Builder) {
		BroadcastInDim(x48(b), []int{4, 3}, []int{0, 1}) // !
	}},
	{"dynamic_slice's start", "dynamic_slice", []string{"the start must be an integer scalar"}, func(b *Builder) {
		DynamicSliceDim(x48(b), 0, b.Scalar(F32, 1), 2) // !
	}},
	{"dynamic_slice's size", "dynamic_slice", []string{"size 5 of dimension 0, which has 4"}, func(b *Builder) {
		DynamicSliceDim(x48(b), 0, b.Int(S32, 1), 5) // !
	}},
	{"dynamic_update_slice", "dynamic_update_slice", []string{"update of size 9 in dimension 1, which has 8"}, func(b *Builder) {
		DynamicUpdateSliceDim(x48(b), b.Zeros(T(F32, 1, 9)), 0, b.Int(S32, 1)) // !
	}},
	{"constant data", "constant", []string{"8 bytes of data for type f32[3], which needs 12"}, func(b *Builder) {
		b.ConstF32([]int{3}, []float32{1, 2}) // !
	}},
	{"constant shape", "constant", []string{"negative size -3"}, func(b *Builder) {
		b.Zeros(T(F32, -3)) // !
	}},
	{"iota", "iota", []string{"dimension 1"}, func(b *Builder) {
		b.Iota(T(S32, 3), 1) // !
	}},
	{"integer constant", "int", []string{"f32 is not an integer type"}, func(b *Builder) {
		b.Int(F32, 1) // !
	}},

	// Contractions and reductions.
	{"einsum form", "einsum", []string{`"bi"`, `the form is "ab,bc->ac"`}, func(b *Builder) {
		Einsum("bi", x48(b), x48(b)) // !
	}},
	{"einsum sizes", "einsum", []string{"einsum(f32[4,8], f32[4,8])", "dimension 'i' has size 8 in one operand and 4 in the other"}, func(b *Builder) {
		x := x48(b)
		Einsum("bi,io->bo", x, x) // !
	}},
	{"einsum rank", "einsum", []string{`"bis" names 3 dimensions of an operand of rank 2`}, func(b *Builder) {
		x := x48(b)
		Einsum("bis,io->bo", x, x) // !
	}},
	{"einsum result", "einsum", []string{"the result names 'z'"}, func(b *Builder) {
		x := x48(b)
		Einsum("ab,cb->az", x, x) // !
	}},
	{"matmul rank", "matmul", []string{"rank 2 or more"}, func(b *Builder) {
		MatMul(x48(b), b.Zeros(T(F32, 8))) // !
	}},
	{"dot dimensions", "dot", []string{"right operand: dimension 5"}, func(b *Builder) {
		x := x48(b)
		DotGeneral(x, x, DotDims{Contract: [][2]int{{0, 5}}}, F32, Default) // !
	}},
	{"dot of bool", "dot", []string{"bool"}, func(b *Builder) {
		p := b.Input("p", T(Bool, 4, 4))
		DotGeneral(p, p, DotDims{}, F32, Default) // !
	}},
	{"sum dimension", "sum", []string{"dimension 2 of a value of rank 2"}, func(b *Builder) {
		Sum(x48(b), 2) // !
	}},
	{"sum dimension twice", "reduce", []string{"dimension 1 is given twice"}, func(b *Builder) {
		Sum(x48(b), 1, -1) // !
	}},
	{"mean of integers", "mean", []string{"needs a float"}, func(b *Builder) {
		Mean(b.Iota(T(S32, 8), 0)) // !
	}},
	{"all of floats", "reduce", []string{"all of element type f32"}, func(b *Builder) {
		All(x48(b)) // !
	}},
	{"one_hot of floats", "one_hot", []string{"integer indices"}, func(b *Builder) {
		OneHot(x48(b), 8, F32) // !
	}},

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

func x48b(b *Builder) *Value { return b.Zeros(T(F32, 4, 8)) }

// marks gives the line of the mark "// !" after the first line with text, and
// the line of each mark with a name.
func marks(t *testing.T) func(text string) int {
	_, file, _, _ := runtime.Caller(0)
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(string(src), "\n")
	return func(text string) int {
		for i, l := range lines {
			if strings.HasSuffix(l, "// !"+text) {
				return i + 1
			}
			if !strings.HasPrefix(l, "\t{"+fmt.Sprintf("%q", text)+",") {
				continue
			}
			for j := i; ; j++ {
				if strings.HasSuffix(lines[j], "// !") {
					return j + 1
				}
			}
		}
		t.Fatalf("no mark for %q", text)
		return 0
	}
}

func testMesh(t *testing.T) *mesh.Mesh {
	m, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 4}}, nil)
	require.NoError(t, err)
	return m
}

func TestWrongPrograms(t *testing.T) {
	line, m := marks(t), testMesh(t)
	for _, w := range wrongPrograms {
		t.Run(w.name, func(t *testing.T) {
			mod, err := Trace("wrong", m, func(b *Builder) error {
				w.f(b)
				if w.name != "donated and not taken" {
					b.Output("filler", b.Scalar(F32, 0))
				}
				return nil
			})
			require.Nil(t, mod)
			requireError(t, err, w.op, line(w.name), w.want...)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Empty(t, e.Stack, "a mistake of the caller, not a panic")
		})
	}
}

func requireError(t *testing.T, err error, op string, line int, want ...string) {
	t.Helper()
	require.Error(t, err)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, fmt.Sprintf("graph/errors_test.go:%d", line), e.Pos, "%v", err)
	require.Equal(t, op, e.Op, "%v", err)
	for _, s := range want {
		require.ErrorContains(t, err, s)
	}
	require.ErrorContains(t, err, e.Pos)
}

func TestMistakeInHelper(t *testing.T) {
	_, err := Trace("helper", nil, func(b *Builder) error {
		b.Output("y", twice(x48(b)))
		return nil
	})
	requireError(t, err, "einsum", marks(t)("twice"), "einsum(f32[4,8], f32[4,8])")
}

func TestNoMesh(t *testing.T) {
	for _, f := range []func(b *Builder){
		func(b *Builder) { Constrain(x48(b), sharding.P("dp")) },
		func(b *Builder) { b.Input("x", T(F32, 8), Sharded(sharding.P("dp"))) },
		func(b *Builder) { b.ShardMap(nil, nil, nil, nil) },
	} {
		_, err := Trace("no mesh", nil, func(b *Builder) error { f(b); return nil })
		require.ErrorContains(t, err, "no mesh")
	}
}

func TestTraceItself(t *testing.T) {
	_, err := Trace("empty", nil, func(*Builder) error { return nil })
	require.ErrorContains(t, err, "empty has no outputs")
	require.ErrorContains(t, err, "graph/errors_test.go:")
	_, err = Trace("nothing", nil, nil)
	require.ErrorContains(t, err, "no function")
	_, err = Trace("failing", nil, func(*Builder) error { return io.ErrUnexpectedEOF })
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualError(t, err, "tracing failing: unexpected EOF")
}

// TestPanics: what panics in traced code becomes an error with its line.
func TestPanics(t *testing.T) {
	line := marks(t)
	for _, c := range []struct {
		name, want string
		f          func(b *Builder)
	}{
		{"index", "index out of range [3] with length 2", func(b *Builder) {
			i := 3
			_ = x48(b).Shape()[i] // !index
		}},
		{"nil", "nil pointer", func(b *Builder) {
			var c *llama
			_ = c.dim // !nil
		}},
		{"map", "assignment to entry in nil map", func(b *Builder) {
			var m map[string]int
			m["a"] = 1 // !map
		}},
		{"thrown", "heads are odd", func(b *Builder) {
			b.Scan(nil, []*Value{x48(b)}, func(_, _ []*Value) (next, ys []*Value) {
				panic("heads are odd") // !thrown
			})
		}},
		{"error", "unexpected EOF", func(b *Builder) {
			panic(io.ErrUnexpectedEOF) // !error
		}},
		{"backward", "index out of range", func(b *Builder) {
			x := x48(b)
			y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sum(a[0])}, nil },
				func(res, cts []*Value) []*Value {
					return []*Value{Mul(res[0], cts[0])} // !backward
				})
			Grad(y[0], x)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Trace("panics", nil, func(b *Builder) error { c.f(b); return nil })
			requireError(t, err, "trace", line(c.name), "tracing panics panicked", c.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Stack, "errors_test.go")
			if c.name == "error" {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
		})
	}
}

// TestRecoveredMistake: traced code that swallows our panic does not make a
// wrong program right.
func TestRecoveredMistake(t *testing.T) {
	_, err := Trace("swallowed", nil, func(b *Builder) error {
		x := x48(b)
		func() {
			defer func() { _ = recover() }()
			Add(x, b.Zeros(T(F64))) // !swallowed
		}()
		b.Output("x", x)
		return nil
	})
	requireError(t, err, "add", marks(t)("swallowed"), "element types differ")
}

// TestNilOperands calls every function that takes values with nil.
func TestNilOperands(t *testing.T) {
	unary := map[string]func(*Value) *Value{
		"neg": Neg, "abs": Abs, "exp": Exp, "tanh": Tanh, "erf": Erf, "not": Not, "pop_count": PopCount, "is_finite": IsFinite,
		"relu": Relu, "silu": Silu, "gelu": Gelu, "softplus": Softplus, "square": Square, "zeros_like": ZerosLike,
		"stop_gradient": StopGradient, "to_host": ToHost, "to_device": ToDevice,
	}
	binary := map[string]func(x, y *Value) *Value{
		"add": Add, "sub": Sub, "mul": Mul, "div": Div, "max": Max, "min": Min, "pow": Pow, "rem": Rem, "atan2": Atan2, "and": And,
		"equal": Equal, "less": Less,
		"mat_mul": func(x, y *Value) *Value { return MatMul(x, y) },
		"einsum":  func(x, y *Value) *Value { return Einsum("ab,bc->ac", x, y) },
		"dot":     func(x, y *Value) *Value { return DotGeneral(x, y, DotDims{}, F32, Default) },
		"pad":     func(x, y *Value) *Value { return Pad(x, y, []int{1}, []int{1}, []int{1}) },
		"concat":  func(x, y *Value) *Value { return Concat(0, x, y) },
		"stack":   func(x, y *Value) *Value { return Stack(0, x, y) },
		"barrier": func(x, y *Value) *Value { return Barrier(x, y)[0] },
		"select":  func(x, y *Value) *Value { return Select(x, y, y) },
		"slice":   func(x, y *Value) *Value { return DynamicSliceDim(x, 0, y, 1) },
		"update":  func(x, y *Value) *Value { return DynamicUpdateSliceDim(x, y, 0, y) },
		"vjp":     func(x, y *Value) *Value { return VJP([]*Value{x}, []*Value{x}, []*Value{y})[0] },
		"grad":    func(x, y *Value) *Value { return Grad(Sum(x), y)[0] },
		"gather":  func(x, y *Value) *Value { return Take(x, y, 0) },
	}
	other := map[string]func(x *Value) *Value{
		"convert":          func(x *Value) *Value { return Convert(x, BF16) },
		"bitcast":          func(x *Value) *Value { return Bitcast(x, S32) },
		"reduce_precision": func(x *Value) *Value { return ReducePrecision(x, 8, 7) },
		"reshape":          func(x *Value) *Value { return Reshape(x, 3) },
		"transpose":        func(x *Value) *Value { return Transpose(x, 1, 0) },
		"reverse":          func(x *Value) *Value { return Reverse(x, 0) },
		"expand_dims":      func(x *Value) *Value { return ExpandDims(x, 0) },
		"squeeze":          func(x *Value) *Value { return Squeeze(x, 0) },
		"slice_dim":        func(x *Value) *Value { return SliceDim(x, 0, 0, 1) },
		"split":            func(x *Value) *Value { return Split(x, 0, 2)[0] },
		"broadcast_to":     func(x *Value) *Value { return BroadcastTo(x, 3) },
		"broadcast_in_dim": func(x *Value) *Value { return BroadcastInDim(x, []int{3}, []int{0}) },
		"sum":              func(x *Value) *Value { return Sum(x) },
		"mean":             func(x *Value) *Value { return Mean(x) },
		"prod":             func(x *Value) *Value { return Prod(x, 0) },
		"reduce_max":       func(x *Value) *Value { return ReduceMax(x) },
		"keep_dims":        func(x *Value) *Value { return KeepDims(x, []int{3}, 0) },
		"softmax":          func(x *Value) *Value { return Softmax(x, 0) },
		"log_sum_exp":      func(x *Value) *Value { return LogSumExp(x, 0) },
		"one_hot":          func(x *Value) *Value { return OneHot(x, 3, F32) },
		"add_scalar":       func(x *Value) *Value { return AddScalar(x, 1) },
		"name":             func(x *Value) *Value { return Name(x, "n") },
		"constrain":        func(x *Value) *Value { return Constrain(x, sharding.P()) },
		"with_grad_in":     func(x *Value) *Value { return WithGradIn(x, F32) },
		"all_reduce":       func(x *Value) *Value { return AllReduce(x, "dp") },
		"all_gather":       func(x *Value) *Value { return AllGather(x, 0, "dp") },
		"shift":            func(x *Value) *Value { return Shift(x, 1, "dp") },
		"custom_vjp": func(x *Value) *Value {
			return CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return a, nil }, nil)[0]
		},
	}
	run := func(name string, f func(b *Builder)) {
		t.Run(name, func(t *testing.T) {
			_, err := Trace("nil", testMesh(t), func(b *Builder) error {
				f(b)
				return nil
			})
			require.Error(t, err)
			var e *Error
			require.True(t, errors.As(err, &e))
			require.True(t, strings.HasPrefix(e.Pos, "graph/errors_test.go:"), "%v", err)
			require.ErrorContains(t, err, "nil")
			require.NotContains(t, []string{"", "trace"}, e.Op, "%v", err)
		})
	}
	for name, f := range unary {
		run(name, func(*Builder) { f(nil) })
	}
	for name, f := range other {
		run(name, func(*Builder) { f(nil) })
	}
	for name, f := range binary {
		run(name, func(b *Builder) { f(nil, x48(b)) })
		run(name+" second", func(b *Builder) { f(x48(b), nil) })
		run(name+" both", func(b *Builder) { f(nil, nil) })
	}
	regions := map[string]func(b *Builder, x *Value){
		"scan carry":   func(b *Builder, x *Value) { b.Scan([]*Value{nil}, []*Value{x}, nil) },
		"scan row":     func(b *Builder, x *Value) { b.Scan(nil, []*Value{nil}, nil) },
		"scan next":    func(b *Builder, x *Value) { b.Scan([]*Value{x}, []*Value{x}, func(_, _ []*Value) (n, y []*Value) { return []*Value{nil}, nil }) },
		"scan ys":      func(b *Builder, x *Value) { b.Scan(nil, []*Value{x}, func(_, _ []*Value) (n, y []*Value) { return nil, []*Value{nil} }) },
		"checkpoint":   func(b *Builder, x *Value) { b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{nil} }) },
		"while":        func(b *Builder, x *Value) { b.While([]*Value{nil}, nil, nil) },
		"while yields": func(b *Builder, x *Value) { b.While([]*Value{x}, func([]*Value) *Value { return nil }, nil) },
		"switch":       func(b *Builder, x *Value) { b.Switch(nil, func() []*Value { return nil }) },
		"branch": func(b *Builder, x *Value) {
			b.Switch(b.Int(S32, 0), func() []*Value { return []*Value{nil} })
		},
		"shard_map": func(b *Builder, x *Value) {
			b.ShardMap([]*Value{nil}, []sharding.Spec{sharding.P()}, nil, nil)
		},
		"shard_map yields": func(b *Builder, x *Value) {
			b.ShardMap(nil, nil, []sharding.Spec{sharding.P()}, func([]*Value) []*Value { return []*Value{nil} })
		},
		"custom_vjp yields": func(b *Builder, x *Value) {
			CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{nil}, nil }, nil)
		},
		"custom call": func(b *Builder, x *Value) {
			b.CustomCall(CustomCallSpec{Target: "t", Results: []Type{T(F32)}}, x, nil)
		},
		"into":   func(b *Builder, x *Value) { b.Output("y", nil) },
		"layers": func(b *Builder, x *Value) { b.Layers(nil, []*Value{x, nil}, nil, LayersOptions{}) },
	}
	for name, f := range regions {
		run("region "+name, func(b *Builder) { f(b, x48(b)) })
	}
}

// TestKeptValues: values outlive their Trace in the caller's variables.
func TestKeptValues(t *testing.T) {
	var x, y *Value
	var old *Builder
	m, err := Trace("first", nil, func(b *Builder) error {
		old = b
		x = b.Input("x", T(F32, 4))
		y = Exp(x)
		b.Output("y", y)
		return nil
	})
	require.NoError(t, err)
	text, dump := m.StableHLO(), m.String()

	// Used as they are.
	_, err = Trace("second", nil, func(b *Builder) error {
		b.Output("z", Add(b.Zeros(T(F32, 4)), y)) // !kept
		return nil
	})
	requireError(t, err, "add", marks(t)("kept"), `belongs to the program "first", not to "second"`, "Input and Output")

	// Recorded too late: harmless to the program, reported when it matters.
	late := Sin(Mul(y, x)) // !late
	gs := Grad(Sum(late), x)
	require.Equal(t, T(F32, 4), gs[0].Type())
	old.Output("late", late)
	require.NotNil(t, old.Input("late", T(F32)))
	next, _ := old.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{Add(c[0], late)}, nil }, Iterations(2))
	require.Equal(t, text, m.StableHLO())
	require.Equal(t, dump, m.String())
	require.Len(t, m.Outputs(), 1)
	require.Len(t, m.Inputs(), 1)
	requireError(t, m.Verify(), "mul", marks(t)("late"), `recorded after Trace("first") had returned`)
	for _, v := range []*Value{late, gs[0], next[0]} {
		_, err = Trace("third", nil, func(b *Builder) error {
			b.Output("z", v) // !third
			return nil
		})
		requireError(t, err, "output", marks(t)("third"), "after the trace it belongs to had ended", fmt.Sprintf("errors_test.go:%d", marks(t)("late")))
	}

	// A wrong op has nowhere to report to but a panic; it says what and where.
	defer func() {
		err, ok := recover().(error)
		require.True(t, ok)
		requireError(t, err, "add", marks(t)("nowhere"), "element types differ")
	}()
	Add(late, old.Zeros(T(F64, 4))) // !nowhere
}

// TestFailedTraceLeavesValues: values of a trace that failed in a region can be
// touched as well.
func TestFailedTraceLeavesValues(t *testing.T) {
	var inner *Value
	_, err := Trace("failed", nil, func(b *Builder) error {
		b.Scan(nil, []*Value{x48(b)}, func(_, r []*Value) (next, ys []*Value) {
			inner = Exp(r[0])
			return nil, []*Value{Add(inner, b.Zeros(T(F64)))}
		})
		return nil
	})
	require.Error(t, err)
	require.Equal(t, T(F32, 8), Neg(inner).Type())
}

// TestTraceInTrace: each mistake goes to the program it was made in.
func TestTraceInTrace(t *testing.T) {
	var innerErr error
	m, err := Trace("outer", nil, func(b *Builder) error {
		x := x48(b)
		_, innerErr = Trace("inner", nil, func(in *Builder) error {
			in.Output("y", Add(in.Zeros(T(F32, 4)), in.Zeros(T(F64))))
			return nil
		})
		b.Output("x", Neg(x))
		return nil
	})
	require.NoError(t, err)
	require.NotNil(t, m)
	require.ErrorContains(t, innerErr, "element types differ")
}

// TestErrorsAreComparable keeps Error a plain value that callers may inspect.
func TestErrorsAreComparable(t *testing.T) {
	e := &Error{Op: "add", Pos: "a/b.go:1", Operands: []string{"f32[2]", "s32[]"}, Msg: "element types differ"}
	require.Equal(t, "a/b.go:1: add(f32[2], s32[]): element types differ", e.Error())
	require.Equal(t, "oops", (&Error{Msg: "oops"}).Error())
	require.Equal(t, reflect.Struct, reflect.TypeOf(*e).Kind())
}
