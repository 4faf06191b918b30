package graph_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// oracleCase is a case of testdata/oracle/layers.json, which says how it was made.
type oracleCase struct {
	Shapes [][]int
	Scale  float64
	Ints   []oracleArray
	Outs   []oracleArray
	Grads  [][]float64
}

type oracleArray struct {
	Shape []int
	Data  []float64
}

// layers are the cases in titan's words, as model code would write them.
var layers = map[string]func(b *Builder, x []*Value) []*Value{
	"rms_norm": one1(func(_ *Builder, x []*Value) *Value {
		return Mul(Mul(x[0], Rsqrt(AddScalar(keepMean(Square(x[0])), 1e-6))), x[1])
	}),
	"layer_norm": one1(func(_ *Builder, x []*Value) *Value {
		d := Sub(x[0], keepMean(x[0]))
		return Add(Mul(Div(d, Sqrt(AddScalar(keepMean(Square(d)), 1e-5))), x[1]), x[2])
	}),
	"gelu":        one1(func(_ *Builder, x []*Value) *Value { return Gelu(x[0]) }),
	"gelu_tanh":   one1(func(_ *Builder, x []*Value) *Value { return GeluTanh(x[0]) }),
	"silu":        one1(func(_ *Builder, x []*Value) *Value { return Silu(x[0]) }),
	"softplus":    one1(func(_ *Builder, x []*Value) *Value { return Softplus(x[0]) }),
	"log_softmax": one1(func(_ *Builder, x []*Value) *Value { return LogSoftmax(x[0], -1) }),
	"logsumexp":   one1(func(_ *Builder, x []*Value) *Value { return LogSumExp(x[0], 0) }),
	"swiglu": one1(func(_ *Builder, x []*Value) *Value {
		return MatMul(Mul(Silu(MatMul(x[0], x[1])), MatMul(x[0], x[2])), x[3])
	}),
	"rope_half": one1(func(b *Builder, x []*Value) *Value {
		cos, sin := ropeAngles(b, x[0])
		h := Split(x[0], -1, 2)
		return Concat(-1, Sub(Mul(h[0], cos), Mul(h[1], sin)), Add(Mul(h[1], cos), Mul(h[0], sin)))
	}),
	"rope_pairs": one1(func(b *Builder, x []*Value) *Value {
		cos, sin := ropeAngles(b, x[0])
		every := func(first int) *Value {
			start := []int{0, 0, 0, first}
			return Slice(x[0], start, x[0].Shape(), []int{1, 1, 1, 2})
		}
		a, c := every(0), every(1)
		return Reshape(Stack(-1, Sub(Mul(a, cos), Mul(c, sin)), Add(Mul(c, cos), Mul(a, sin))), x[0].Shape()...)
	}),
	"attention_gqa_causal": one1(func(b *Builder, x []*Value) *Value {
		q, k, v := x[0], x[1], x[2]
		group := q.Dim(2) / k.Dim(2)
		q5 := Reshape(q, q.Dim(0), q.Dim(1), k.Dim(2), group, q.Dim(3))
		s := MulScalar(Einsum("bqhgd,bkhd->bhgqk", q5, k), 0.3)
		p := Softmax(Select(BroadcastTo(band(b, q.Dim(1), q.Dim(1)), s.Shape()...), s, b.Full(s.Type(), math.Inf(-1))), -1)
		return Reshape(Einsum("bhgqk,bkhd->bqhgd", p, v), q.Shape()...)
	}),
	"attention_window": one1(func(b *Builder, x []*Value) *Value {
		return attention(x, func(s *Value) *Value {
			return Select(BroadcastTo(band(b, s.Dim(-1), 2), s.Shape()...), s, b.Full(s.Type(), -1e30))
		})
	}),
	"attention_softcap": one1(func(b *Builder, x []*Value) *Value {
		return attention(x, func(s *Value) *Value {
			s = MulScalar(Tanh(MulScalar(s, 0.5)), 2)
			return Select(BroadcastTo(band(b, s.Dim(-1), s.Dim(-1)), s.Shape()...), s, b.Full(s.Type(), math.Inf(-1)))
		})
	}),
	"cross_entropy": one1(func(b *Builder, x []*Value) *Value {
		logits, labels := x[0], x[1]
		valid := GreaterEqual(labels, b.Zeros(labels.Type()))
		lse := LogSumExp(logits, -1)
		picked := Squeeze(TakeAlong(logits, ExpandDims(Max(labels, b.Zeros(labels.Type())), -1), -1), -1)
		loss := Add(Sub(lse, picked), MulScalar(Square(lse), 1e-2))
		return Div(Sum(Select(valid, loss, ZerosLike(loss))), Sum(Convert(valid, F64)))
	}),
	"embedding": one1(func(_ *Builder, x []*Value) *Value { return MatMul(Embedding(x[0], x[2]), x[1]) }),
	"moe": func(b *Builder, x []*Value) []*Value {
		n := x[1].Dim(1)
		p := Softmax(MatMul(x[0], x[1]), -1)
		w, at := TopK(p, 2)
		w = Div(w, KeepDims(Sum(w, -1), w.Shape(), -1))
		y := Einsum("td,tkdf->tkf", x[0], Take(x[2], at, 0))
		load := MulScalar(Mean(Sum(OneHot(at, n, F64), 1), 0), 0.5)
		return []*Value{Einsum("tkd,tk->td", y, w), MulScalar(Sum(Mul(load, Mean(p, 0))), float64(n))}
	},
	"lstm": func(b *Builder, x []*Value) []*Value {
		zero := b.Zeros(T(F64, 3))
		c, hs := b.Scan([]*Value{zero, zero}, x[:1], func(c, row []*Value) (next, ys []*Value) {
			g := Split(Add(Einsum("i,io->o", row[0], x[1]), Einsum("i,io->o", c[0], x[2])), -1, 4)
			m := Add(Mul(Logistic(g[1]), c[1]), Mul(Logistic(g[0]), Tanh(g[2])))
			h := Mul(Logistic(g[3]), Tanh(m))
			return []*Value{h, m}, []*Value{h}
		}, InReverse())
		return append(c, hs...)
	},
	"linear_attention": func(b *Builder, x []*Value) []*Value {
		_, ys := b.Scan([]*Value{b.Zeros(T(F64, 3, 2))}, x, func(c, r []*Value) (next, ys []*Value) {
			s := Add(MulScalar(c[0], 0.9), Einsum("k,v->kv", r[1], r[2]))
			return []*Value{s}, []*Value{Einsum("k,kv->v", r[0], s)}
		})
		return []*Value{ys[0], Cumsum(x[2], 0)}
	},
	"adamw": func(_ *Builder, x []*Value) []*Value {
		p, g, m, v := x[0], x[1], x[2], Abs(x[3])
		m = Add(MulScalar(m, 0.9), MulScalar(g, 0.1))
		v = Add(MulScalar(v, 0.95), MulScalar(Square(g), 0.05))
		mean := MulScalar(m, 1/(1-math.Pow(0.9, 3)))
		root := AddScalar(Sqrt(MulScalar(v, 1/(1-math.Pow(0.95, 3)))), 1e-8)
		return []*Value{Sub(p, MulScalar(Add(Div(mean, root), MulScalar(p, 0.1)), 1e-2)), m, v}
	},
	"muon": one1(func(b *Builder, x []*Value) *Value {
		y := Div(x[0], AddScalar(Sqrt(Sum(Square(x[0]))), 1e-7))
		c, _ := b.Scan([]*Value{y}, nil, func(c, _ []*Value) (next, ys []*Value) {
			y := c[0]
			a := Einsum("ij,kj->ik", y, y)
			poly := Add(MulScalar(a, -4.7750), MulScalar(MatMul(a, a), 2.0315))
			return []*Value{Add(MulScalar(y, 3.4445), MatMul(poly, y))}, nil
		}, Iterations(5))
		return c[0]
	}),
}

func one1(f func(b *Builder, x []*Value) *Value) func(b *Builder, x []*Value) []*Value {
	return func(b *Builder, x []*Value) []*Value { return []*Value{f(b, x)} }
}

func keepMean(x *Value) *Value { return KeepDims(Mean(x, -1), x.Shape(), -1) }

// ropeAngles gives cosine and sine of position·frequency for x[batch, seq, heads, dim].
func ropeAngles(b *Builder, x *Value) (cos, sin *Value) {
	s, half := x.Dim(1), x.Dim(3)/2
	pos := Convert(b.Iota(T(S32, s, 1, half), 0), F64)
	freq := Pow(b.Scalar(F64, 10000), MulScalar(Convert(b.Iota(T(S32, s, 1, half), 2), F64), -1/float64(half)))
	return Cos(Mul(pos, freq)), Sin(Mul(pos, freq))
}

// band allows query i the keys i-back … i.
func band(b *Builder, n, back int) *Value {
	q, k := b.Iota(T(S32, n, n), 0), b.Iota(T(S32, n, n), 1)
	return And(LessEqual(k, q), LessEqual(Sub(q, k), b.Int(S32, int64(back))))
}

func attention(x []*Value, mask func(scores *Value) *Value) *Value {
	s := mask(MulScalar(Einsum("bqhd,bkhd->bhqk", x[0], x[1]), 0.3))
	return Einsum("bhqk,bkhd->bqhd", Softmax(s, -1), x[2])
}

// Layers, losses and optimisers have the values and gradients that JAX gives
// them.
func TestLayersLikeJAX(t *testing.T) {
	raw, err := os.ReadFile("testdata/oracle/layers.json")
	require.NoError(t, err)
	var cases map[string]oracleCase
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.Len(t, layers, len(cases))

	type place struct{ outs, grads []int }
	places := map[string]place{}
	var inputs []array
	m := trace(t, nil, func(b *Builder) {
		outputs := 0
		out := func(v *Value) int {
			b.Output("v", v)
			outputs++
			return outputs - 1
		}
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			c := cases[name]
			var x []*Value
			for i, shape := range c.Shapes {
				a := array{T(F64, shape...), nil}
				for k := range a.Elements() {
					a.data = append(a.data, math.Sin(float64((k+1)*(i+1)))*c.Scale)
				}
				inputs, x = append(inputs, a), append(x, b.Input(name, a.Type))
			}
			floats := x
			for _, a := range c.Ints {
				in := arr(T(S32, a.Shape...), a.Data...)
				inputs, x = append(inputs, in), append(x, b.Input(name, in.Type))
			}
			require.Contains(t, layers, name)
			ys := layers[name](b, x)
			require.Len(t, ys, len(c.Outs), name)
			var p place
			var cts []*Value
			for _, y := range ys {
				p.outs = append(p.outs, out(y))
				ct := array{y.Type(), nil}
				for k := range ct.Elements() {
					ct.data = append(ct.data, math.Cos(float64(k+1)))
				}
				cts = append(cts, b.Const(ct.Type, ct.encode(F64)))
			}
			for _, g := range VJP(ys, cts, floats) {
				p.grads = append(p.grads, out(g))
			}
			places[name] = p
		}
	})
	got := run(t, m, inputs...)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for i, o := range c.Outs {
				require.NoError(t, differ(arr(T(F64, o.Shape...), o.Data...), got[places[name].outs[i]], 1e-11), "result %d", i)
			}
			for i, g := range c.Grads {
				require.NoError(t, differ(arr(T(F64, c.Shapes[i]...), g...), got[places[name].grads[i]], 1e-10), "gradient of argument %d", i)
			}
		})
	}
}
