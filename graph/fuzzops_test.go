package graph_test

import (
	"fmt"
	"slices"
	"strings"

	. "titan/graph"
)

// simpleOp is an op of one result. All are smooth, or nearly so, and bounded or
// of slow growth, so that differences are accurate however they are composed.
type simpleOp struct {
	name     string
	operands int
	same     bool // operands have one shape
	// gen fills in the node's attributes and gives the result's shape, or ok false
	// where the operands do not fit.
	gen  func(g *gen, n *fnode, in []ftype) (shape []int, ok bool)
	eval func(n *fnode, x []*Value) *Value
}

func sameShape(_ *gen, _ *fnode, in []ftype) ([]int, bool) { return in[0].shape, true }

var unaries = []func(x *Value) *Value{
	Sin, Cos, Tanh, Logistic, Erf, Neg, GeluTanh, Softplus, Silu, Gelu, Relu, Abs,
	func(x *Value) *Value { return Exp(Tanh(x)) },
	func(x *Value) *Value { return Rsqrt(AddScalar(Square(x), 1)) },
	func(x *Value) *Value { return Log1p(Square(x)) },
	func(x *Value) *Value { return Tanh(Square(x)) },
}

var binaries = []func(x, y *Value) *Value{
	Sub, Max, Min,
	func(x, y *Value) *Value { return MulScalar(Add(x, y), 0.6) },
	func(x, y *Value) *Value { return Mul(x, Tanh(y)) },
	func(x, y *Value) *Value { return Div(x, AddScalar(Square(y), 1)) },
	func(x, y *Value) *Value { return Atan2(x, AddScalar(Square(y), 0.5)) },
	func(x, y *Value) *Value { return Pow(AddScalar(Square(Tanh(x)), 0.5), Tanh(y)) },
	func(x, y *Value) *Value { return Select(Less(x, y), Sin(x), y) },
}

// anyDim chooses a dimension of size at least 1.
func anyDim(g *gen, n *fnode, in []ftype) (int, bool) {
	if len(in[0].shape) == 0 {
		return 0, false
	}
	d := g.r.IntN(len(in[0].shape))
	n.ints = []int{d}
	return d, true
}

func alongDim(g *gen, n *fnode, in []ftype) ([]int, bool) {
	_, ok := anyDim(g, n, in)
	return in[0].shape, ok
}

func dropDim(g *gen, n *fnode, in []ftype) ([]int, bool) {
	d, ok := anyDim(g, n, in)
	if !ok {
		return nil, false
	}
	return slices.Delete(slices.Clone(in[0].shape), d, d+1), true
}

// index makes an integer that depends on y, from 0 to n-1.
func index(y *Value, n int) *Value {
	return Convert(MulScalar(Logistic(Sum(y)), float64(n)), S32)
}

var simpleOps = []simpleOp{
	{"unary", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.ints = []int{g.r.IntN(len(unaries))}
		return in[0].shape, true
	}, func(n *fnode, x []*Value) *Value { return unaries[n.ints[0]](x[0]) }},
	{"unary", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.ints = []int{g.r.IntN(len(unaries))}
		return in[0].shape, true
	}, func(n *fnode, x []*Value) *Value { return unaries[n.ints[0]](x[0]) }},
	{"binary", 2, true, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.ints = []int{g.r.IntN(len(binaries))}
		return in[0].shape, true
	}, func(n *fnode, x []*Value) *Value { return binaries[n.ints[0]](x[0], x[1]) }},
	{"broadcasting binary", 2, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.ints = []int{g.r.IntN(len(binaries))}
		x, y := in[0].shape, in[1].shape
		if len(x) < len(y) {
			x, y = y, x
		}
		out := slices.Clone(x)
		for i, m := range y {
			if at := len(x) - len(y) + i; out[at] == 1 {
				out[at] = m
			} else if m != 1 && m != out[at] {
				return nil, false
			}
		}
		return out, true
	}, func(n *fnode, x []*Value) *Value { return binaries[n.ints[0]](x[0], x[1]) }},
	{"einsum", 2, false, genEinsum, func(n *fnode, x []*Value) *Value { return MulScalar(Einsum(n.text, x[0], Tanh(x[1])), 0.5) }},
	{"einsum", 2, false, genEinsum, func(n *fnode, x []*Value) *Value { return MulScalar(Einsum(n.text, x[0], Tanh(x[1])), 0.5) }},
	{"transpose", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.ints = g.r.Perm(len(in[0].shape))
		var out []int
		for _, d := range n.ints {
			out = append(out, in[0].shape[d])
		}
		return out, len(out) > 1
	}, func(n *fnode, x []*Value) *Value { return Transpose(x[0], n.ints...) }},
	{"reshape", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		left := in[0].elements()
		n.ints = []int{}
		for _, f := range []int{2, 2, 3} {
			if left%f == 0 && g.chance(0.6) {
				n.ints = append(n.ints, f)
				left /= f
			}
		}
		n.ints = append(n.ints, left)
		return n.ints, true
	}, func(n *fnode, x []*Value) *Value { return Reshape(x[0], n.ints...) }},
	{"reverse", 1, false, alongDim, func(n *fnode, x []*Value) *Value { return Reverse(x[0], n.ints[0]) }},
	{"slice", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		d, ok := anyDim(g, n, in)
		if !ok {
			return nil, false
		}
		size := in[0].shape[d]
		lo := g.r.IntN(size)
		hi, step := lo+1+g.r.IntN(size-lo), 1+g.r.IntN(2)
		n.ints = []int{d, lo, hi, step}
		out := slices.Clone(in[0].shape)
		out[d] = (hi - lo + step - 1) / step
		return out, true
	}, func(n *fnode, x []*Value) *Value {
		start, limit, stride := make([]int, x[0].Rank()), slices.Clone(x[0].Shape()), make([]int, x[0].Rank())
		for i := range stride {
			stride[i] = 1
		}
		d := n.ints[0]
		start[d], limit[d], stride[d] = n.ints[1], n.ints[2], n.ints[3]
		return Slice(x[0], start, limit, stride)
	}},
	{"pad", 2, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		d, ok := anyDim(g, n, in)
		if !ok {
			return nil, false
		}
		lo, hi, in1 := g.r.IntN(2), g.r.IntN(2), g.r.IntN(2)
		n.ints = []int{d, lo, hi, in1}
		out := slices.Clone(in[0].shape)
		out[d] = lo + out[d] + (out[d]-1)*in1 + hi
		return out, lo+hi+in1 > 0
	}, func(n *fnode, x []*Value) *Value {
		at := make([][]int, 3)
		for i := range at {
			at[i] = make([]int, x[0].Rank())
			at[i][n.ints[0]] = n.ints[1+i]
		}
		return Pad(x[0], Tanh(Sum(x[1])), at[0], at[1], at[2])
	}},
	{"concat", 2, true, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		d, ok := anyDim(g, n, in)
		if !ok {
			return nil, false
		}
		out := slices.Clone(in[0].shape)
		out[d] *= 2
		return out, true
	}, func(n *fnode, x []*Value) *Value { return Concat(n.ints[0], x[0], x[1]) }},
	{"dynamic_slice", 2, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		d, ok := anyDim(g, n, in)
		if !ok {
			return nil, false
		}
		out := slices.Clone(in[0].shape)
		out[d] = 1 + g.r.IntN(out[d])
		n.ints = append(n.ints, out[d])
		return out, true
	}, func(n *fnode, x []*Value) *Value {
		return DynamicSliceDim(x[0], n.ints[0], index(x[1], x[0].Dim(n.ints[0])), n.ints[1])
	}},
	{"dynamic_update_slice", 2, true, alongDim, func(n *fnode, x []*Value) *Value {
		d := n.ints[0]
		return DynamicUpdateSliceDim(x[0], SliceDim(x[1], d, 0, 1), d, index(x[1], x[0].Dim(d)))
	}},
	{"take", 2, false, alongDim, func(n *fnode, x []*Value) *Value {
		d := n.ints[0]
		size := x[0].Dim(d)
		at := Rem(Add(index(x[1], size), x[0].Builder().Iota(T(S32, size), 0)), x[0].Builder().Int(S32, int64(max(1, size-1))))
		return Take(x[0], at, d) // one row is taken twice, one never
	}},
	{"index_add", 2, true, alongDim, func(n *fnode, x []*Value) *Value {
		d := n.ints[0]
		at := Mul(x[0].Builder().Iota(T(S32, x[0].Dim(d)), 0), x[0].Builder().Int(S32, 0)) // all to one row
		return MulScalar(IndexAdd(x[0], at, x[1], d), 0.5)
	}},
	{"sort", 1, false, alongDim, func(n *fnode, x []*Value) *Value { return Sort(x[0], n.ints[0]) }},
	{"cumsum", 1, false, alongDim, func(n *fnode, x []*Value) *Value { return MulScalar(Cumsum(x[0], n.ints[0]), 0.5) }},
	{"sum", 1, false, dropDim, func(n *fnode, x []*Value) *Value { return MulScalar(Sum(x[0], n.ints[0]), 0.7) }},
	{"mean", 1, false, dropDim, func(n *fnode, x []*Value) *Value { return Mean(x[0], n.ints[0]) }},
	{"max", 1, false, dropDim, func(n *fnode, x []*Value) *Value { return ReduceMax(x[0], n.ints[0]) }},
	{"prod", 1, false, dropDim, func(n *fnode, x []*Value) *Value { return Prod(Tanh(x[0]), n.ints[0]) }},
	{"log_sum_exp", 1, false, dropDim, func(n *fnode, x []*Value) *Value { return LogSumExp(x[0], n.ints[0]) }},
	{"softmax", 1, false, alongDim, func(n *fnode, x []*Value) *Value { return Softmax(x[0], n.ints[0]) }},
	{"name", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.text = []string{"h", "inner", "other"}[g.r.IntN(3)]
		return in[0].shape, true
	}, func(n *fnode, x []*Value) *Value { return Name(x[0], n.text) }},
	{"name", 1, false, func(g *gen, n *fnode, in []ftype) ([]int, bool) {
		n.text = []string{"h", "inner"}[g.r.IntN(2)]
		n.ints = []int{g.r.IntN(len(unaries))}
		return in[0].shape, true
	}, func(n *fnode, x []*Value) *Value {
		if n.ints != nil {
			return Name(unaries[n.ints[0]](x[0]), n.text)
		}
		return Name(x[0], n.text)
	}},
	{"barrier", 2, false, sameShape, func(_ *fnode, x []*Value) *Value { return Barrier(x[0], x[1])[0] }},
	{"own derivative", 2, true, sameShape, func(_ *fnode, x []*Value) *Value {
		return CustomVJP([]*Value{x[0], x[1]}, func(a []*Value) (outs, res []*Value) {
			t := Tanh(a[1])
			return []*Value{Mul(a[0], t)}, []*Value{a[0], Name(t, "h")}
		}, func(r, ct []*Value) []*Value {
			d := Sub(r[1].Builder().Full(r[1].Type(), 1), Square(r[1]))
			return []*Value{Mul(ct[0], r[1]), Mul(Mul(ct[0], r[0]), d)}
		})[0]
	}},
}

var simpleByName = func() map[string]simpleOp {
	m := map[string]simpleOp{}
	for _, op := range simpleOps {
		m[op.name] = op
	}
	return m
}()

// genEinsum pairs dimensions of equal size at random and sums over some.
func genEinsum(g *gen, n *fnode, in []ftype) ([]int, bool) {
	const letters = "abcdefgh"
	xs := letters[:len(in[0].shape)]
	ys, next := "", len(xs)
	sizes := slices.Clone(in[0].shape)
	for _, m := range in[1].shape {
		shared := -1
		for i, k := range in[0].shape {
			if k == m && !strings.Contains(ys, letters[i:i+1]) && g.chance(0.8) {
				shared = i
			}
		}
		if shared < 0 {
			shared, sizes = next, append(sizes, m)
			next++
		}
		ys += letters[shared : shared+1]
	}
	var out string
	var shape []int
	for _, i := range g.r.Perm(next) {
		c := letters[i : i+1]
		if g.chance(map[bool]float64{true: 0.4, false: 0.85}[strings.Contains(xs, c) && strings.Contains(ys, c)]) {
			out, shape = out+c, append(shape, sizes[i])
		}
	}
	n.text = fmt.Sprintf("%s,%s->%s", xs, ys, out)
	return shape, true
}
