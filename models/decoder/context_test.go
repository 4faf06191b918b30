package decoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// attentionData is a problem of attention: whole arrays in row-major order.
type attentionData struct {
	B, S, H, K, h int
	q, k, v, ct   []float32
	segments      []int32 // or nil
}

func newAttentionData(B, S, H, K, h int, documents bool) *attentionData {
	r := rand.New(rand.NewPCG(7, uint64(S)))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		copy(pjrt.AsBytes(x), normals(r, n))
		return x
	}
	d := &attentionData{B: B, S: S, H: H, K: K, h: h, q: floats(B * S * H * h), k: floats(B * S * K * h), v: floats(B * S * K * h), ct: floats(B * S * H * h)}
	if documents {
		d.segments = make([]int32, B*S)
		for b := range B {
			for at, doc := 0, int32(5); at < S; doc-- { // some within a chunk, some over many
				for n := 1 + r.IntN(S/3); n > 0 && at < S; n-- {
					d.segments[b*S+at] = doc
					at++
				}
			}
		}
	}
	return d
}

// oracle is causal softmax attention and its gradients, written down naively in
// float64: output, dq, dk and dv.
func (d *attentionData) oracle() [][]float32 {
	out, dq := make([]float64, len(d.q)), make([]float64, len(d.q))
	dk, dv := make([]float64, len(d.k)), make([]float64, len(d.k))
	R, scale := d.H/d.K, 1/math.Sqrt(float64(d.h))
	for b := range d.B {
		for head := range d.H {
			Q := func(t int) int { return ((b*d.S+t)*d.H + head) * d.h }
			Kv := func(t int) int { return ((b*d.S+t)*d.K + head/R) * d.h }
			for t := range d.S {
				var seen []int
				var p []float64
				sum := 0.0
				for s := range t + 1 {
					if d.segments != nil && d.segments[b*d.S+t] != d.segments[b*d.S+s] {
						continue
					}
					x := 0.0
					for c := range d.h {
						x += float64(d.q[Q(t)+c]) * float64(d.k[Kv(s)+c])
					}
					e := math.Exp(x * scale)
					seen, p, sum = append(seen, s), append(p, e), sum+e
				}
				dp, mean := make([]float64, len(seen)), 0.0
				for i, s := range seen {
					p[i] /= sum
					for c := range d.h {
						ct := float64(d.ct[Q(t)+c])
						out[Q(t)+c] += p[i] * float64(d.v[Kv(s)+c])
						dv[Kv(s)+c] += p[i] * ct
						dp[i] += ct * float64(d.v[Kv(s)+c])
					}
					mean += p[i] * dp[i]
				}
				for i, s := range seen {
					ds := p[i] * (dp[i] - mean) * scale
					for c := range d.h {
						dq[Q(t)+c] += ds * float64(d.k[Kv(s)+c])
						dk[Kv(s)+c] += ds * float64(d.q[Q(t)+c])
					}
				}
			}
		}
	}
	var all [][]float32
	for _, x := range [][]float64{out, dq, dk, dv} {
		y := make([]float32, len(x))
		for i := range x {
			y[i] = float32(x[i])
		}
		all = append(all, y)
	}
	return all
}

// run computes output and gradients, in type compute, on data × context × tensor
// devices: sequences, their tokens and heads are shared out.
func (d *attentionData) run(t *testing.T, data, context, tensor int, compute dtype.DType, f func(q, k, v, segments *graph.Value, g Group) *graph.Value) [][]float32 {
	t.Helper()
	m, err := mesh.New([]mesh.Axis{{Name: "data", Size: data}, {Name: "context", Size: context}, {Name: "tensor", Size: tensor}}, nil)
	require.NoError(t, err)
	g := Group{Axes: []string{"context"}, Size: context}
	heads, rows := sharding.P("data", nil, "tensor"), sharding.P("data")
	mod, err := graph.Trace("attention", m, func(b *graph.Builder) error {
		q, k := graph.T(dtype.F32, d.B, d.S, d.H, d.h), graph.T(dtype.F32, d.B, d.S, d.K, d.h)
		input := func(name string, t graph.Type) *graph.Value { return b.Input(name, t, graph.Sharded(sharding.P())) }
		args := []*graph.Value{input("q", q), input("k", k), input("v", k), input("ct", q)}
		specs := []sharding.Spec{heads, heads, heads, heads}
		if d.segments != nil {
			args, specs = append(args, input("segments", graph.T(dtype.S32, d.B, d.S))), append(specs, rows)
		}
		outs := b.ShardMap(args, specs, []sharding.Spec{heads, heads, heads, heads}, func(x []*graph.Value) []*graph.Value {
			own := func(x *graph.Value) *graph.Value {
				if x.DType() == dtype.F32 {
					x = graph.Convert(x, compute)
				}
				return HeadTail(x, 1, g)
			}
			var segments *graph.Value
			if len(x) > 4 {
				segments = own(x[4])
			}
			out := f(own(x[0]), own(x[1]), own(x[2]), segments, g)
			// The transpose of HeadTail puts the devices' outputs together again.
			whole := graph.VJP([]*graph.Value{own(x[0])}, []*graph.Value{out}, x[:1])
			return append(whole, graph.VJP([]*graph.Value{out}, []*graph.Value{own(x[3])}, x[:3])...)
		})
		for i, o := range outs {
			b.Output(fmt.Sprint("out", i), graph.Convert(o, dtype.F32), graph.Sharded(sharding.P()))
		}
		return nil
	})
	require.NoError(t, err)
	args := []xlatest.Array{
		xlatest.F32(d.q, d.B, d.S, d.H, d.h), xlatest.F32(d.k, d.B, d.S, d.K, d.h), xlatest.F32(d.v, d.B, d.S, d.K, d.h), xlatest.F32(d.ct, d.B, d.S, d.H, d.h),
	}
	if d.segments != nil {
		args = append(args, xlatest.S32(d.segments, d.B, d.S))
	}
	outs := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), m.Size(), xlatest.Same(m.Size(), args...))
	var res [][]float32
	for _, o := range outs[m.Size()-1] {
		res = append(res, o.Float32s())
	}
	return res
}

var attentionResults = []string{"output", "dq", "dk", "dv"}

// Attention of sequences that devices share is attention, and so are its
// gradients: both ways, blocks written out and looped over, of lengths that blocks
// divide and that they do not, with documents and without, few and odd heads.
func TestContextAttention(t *testing.T) {
	for _, c := range []struct {
		name                  string
		data, context, tensor int
		S, H, K               int
		documents             bool
		o                     AttentionOptions
	}{
		{"static", 1, 2, 1, 48, 6, 3, false, AttentionOptions{Block: 5}},
		{"static, documents", 2, 2, 1, 48, 3, 3, true, AttentionOptions{}},
		{"static in groups", 2, 4, 1, 48, 5, 1, true, AttentionOptions{Block: 4, Rows: 5}},
		{"static", 1, 8, 1, 48, 3, 3, true, AttentionOptions{Block: 2}},
		{"looped, documents", 2, 2, 2, 144, 4, 2, true, AttentionOptions{Block: 2}},
		{"looped in groups", 1, 4, 1, 144, 6, 3, false, AttentionOptions{Block: 1, Rows: 6}},
		{"looped, filled up", 1, 4, 1, 280, 3, 1, true, AttentionOptions{Block: 2}},
		{"looped, filled up", 1, 4, 1, 280, 3, 1, false, AttentionOptions{Block: 2}},
		{"looped", 1, 8, 1, 288, 3, 3, true, AttentionOptions{Block: 1}},
	} {
		d := newAttentionData(2, c.S, c.H, c.K, 4, c.documents)
		want := d.oracle()
		for _, how := range []string{ContextRing, ContextAllGather} {
			t.Run(fmt.Sprintf("%s %d×%d×%d %s", how, c.data, c.context, c.tensor, c.name), func(t *testing.T) {
				got := d.run(t, c.data, c.context, c.tensor, dtype.F32, func(q, k, v, segments *graph.Value, g Group) *graph.Value {
					o := c.o
					o.Context = how
					return contextAttention(q, k, v, segments, g, o)
				})
				for i, what := range attentionResults {
					requireClose(t, want[i], got[i], 2e-6, what)
				}
			})
		}
	}
}
