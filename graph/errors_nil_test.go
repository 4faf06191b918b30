package graph_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/sharding"
)

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
			require.True(t, strings.HasPrefix(e.Pos, "graph/errors_nil_test.go:"), "%v", err)
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
		"scan carry": func(b *Builder, x *Value) { b.Scan([]*Value{nil}, []*Value{x}, nil) },
		"scan row":   func(b *Builder, x *Value) { b.Scan(nil, []*Value{nil}, nil) },
		"scan next": func(b *Builder, x *Value) {
			b.Scan([]*Value{x}, []*Value{x}, func(_, _ []*Value) (n, y []*Value) { return []*Value{nil}, nil })
		},
		"scan ys": func(b *Builder, x *Value) {
			b.Scan(nil, []*Value{x}, func(_, _ []*Value) (n, y []*Value) { return nil, []*Value{nil} })
		},
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
