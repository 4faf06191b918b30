package decoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// attentionData is a problem of attention: whole arrays in row-major order.
type attentionData struct {
	B, S, H, K, h int
	q, k, v, ct   []float32
	segments      []int32 // or nil
	tiled         *tiledBlocks
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
func (d *attentionData) run(t *testing.T, data, context, tensor int, compute dtype.DType, o AttentionOptions) [][]float32 {
	t.Helper()
	m, err := mesh.New([]mesh.Axis{{Name: "data", Size: data}, {Name: "context", Size: context}, {Name: "tensor", Size: tensor}}, nil)
	require.NoError(t, err)
	g := Group{Axes: []string{"context"}, Size: context}
	heads, rows := sharding.P("data", nil, "tensor"), sharding.P("data")
	kvHeads := heads
	if d.K%tensor != 0 {
		kvHeads = rows // all devices have all of them
	}
	mod, err := graph.Trace("attention", m, func(b *graph.Builder) error {
		q, k := graph.T(dtype.F32, d.B, d.S, d.H, d.h), graph.T(dtype.F32, d.B, d.S, d.K, d.h)
		input := func(name string, t graph.Type) *graph.Value { return b.Input(name, t, graph.Sharded(sharding.P())) }
		args := []*graph.Value{input("q", q), input("k", k), input("v", k), input("ct", q)}
		specs := []sharding.Spec{heads, kvHeads, kvHeads, heads}
		if d.segments != nil {
			args, specs = append(args, input("segments", graph.T(dtype.S32, d.B, d.S))), append(specs, rows)
		}
		outs := b.ShardMap(args, specs, []sharding.Spec{heads, heads, kvHeads, kvHeads}, func(x []*graph.Value) []*graph.Value {
			own := func(x *graph.Value) *graph.Value {
				if x.DType() == dtype.F32 {
					x = graph.Convert(x, compute)
				}
				return HeadTail(x, 1, g)
			}
			var segments *graph.Value
			if len(x) > 4 {
				segments = x[4]
				if d.tiled != nil {
					segments = kernels.Starts(segments)
				}
				segments = own(segments)
			}
			out := contextAttention(own(x[0]), own(x[1]), own(x[2]), segments, g, o, d.tiled)
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
	// Compiling costs more than running.
	x, err := xlatest.CPU(t).Compile([]byte(widenDots(mod.StableHLO())), pjrt.CompileOptions{Partitions: m.Size(), Shardy: true, Flags: xlatest.LittleEffort()})
	require.NoError(t, err)
	defer x.Close()
	outs := xlatest.RunExecutable(t, x, xlatest.Same(m.Size(), args...))
	var res [][]float32
	for _, o := range outs[m.Size()-1] {
		res = append(res, o.Float32s())
	}
	return res
}

var bf16Dot = regexp.MustCompile(`(?m)^( *)%(\w+) = stablehlo\.dot_general (%\w+), (%\w+)(.*) : \(tensor<([0-9x]+)bf16>, tensor<([0-9x]+)bf16>\)`)

// widenDots converts the operands of contractions of bf16 to f32 first. That
// changes no product and no sum, and the CPU plugin executes it.
func widenDots(program string) string {
	return bf16Dot.ReplaceAllString(program, `$1%l$2 = stablehlo.convert $3 : (tensor<${6}bf16>) -> tensor<${6}f32>
$1%r$2 = stablehlo.convert $4 : (tensor<${7}bf16>) -> tensor<${7}f32>
$1%$2 = stablehlo.dot_general %l$2, %r$2$5 : (tensor<${6}f32>, tensor<${7}f32>)`)
}

var attentionResults = []string{"output", "dq", "dk", "dv"}

// Attention of sequences that devices share is attention, and so are its
// gradients: both ways, blocks written out and looped over, of lengths that blocks
// divide and that they do not, with documents and without, few and odd heads; by
// tile kernels, interpreted, too.
func TestContextAttention(t *testing.T) {
	const ring, gather = ContextRing, ContextAllGather
	for _, c := range []struct {
		name                  string
		how                   []string
		data, context, tensor int
		S, H, K               int
		documents             bool
		o                     AttentionOptions
	}{
		{"alone", []string{ring}, 1, 1, 1, 36, 6, 3, true, AttentionOptions{Block: 16}},
		{"written out", []string{ring}, 1, 2, 1, 40, 6, 3, false, AttentionOptions{Block: 6}},
		{"written out", []string{ring}, 1, 8, 1, 96, 3, 3, true, AttentionOptions{Block: 4}},
		{"one block, in groups", []string{ring, gather}, 1, 4, 2, 48, 6, 1, true, AttentionOptions{Rows: 3}},
		{"looped", []string{ring, gather}, 2, 2, 2, 72, 4, 2, true, AttentionOptions{Block: 6}},
		{"looped, filled up", []string{ring, gather}, 1, 4, 1, 88, 3, 1, false, AttentionOptions{Block: 4}},
		{"looped, filled up", []string{ring}, 1, 4, 1, 88, 3, 1, true, AttentionOptions{Block: 4, Rows: 3}},
		{"looped", []string{ring, gather}, 1, 8, 1, 144, 3, 3, true, AttentionOptions{Block: 3}},
		{"tiles", []string{ring}, 1, 1, 1, 36, 6, 3, true, AttentionOptions{Tiles: kernels.AttentionTiles{Q: 6, K: 9}}},
		{"tiles", []string{ring, gather}, 2, 2, 2, 72, 4, 2, true, AttentionOptions{Tiles: kernels.AttentionTiles{Q: 6, K: 9}}},
		{"tiles", []string{ring, gather}, 1, 4, 1, 88, 3, 1, false, AttentionOptions{Tiles: kernels.AttentionTiles{Q: 11, K: 11}}},
		{"tiles", []string{ring}, 1, 8, 1, 96, 3, 3, true, AttentionOptions{Tiles: kernels.AttentionTiles{Q: 3, K: 6}}},
	} {
		d := newAttentionData(2, c.S, c.H, c.K, 4, c.documents)
		want := d.oracle()
		for _, how := range c.how {
			t.Run(fmt.Sprintf("%s %d×%d×%d %s documents=%v", how, c.data, c.context, c.tensor, c.name, c.documents), func(t *testing.T) {
				c.o.Context = how
				d.tiled = nil
				if c.o.Tiles.Q > 0 {
					d.tiled = &tiledBlocks{kernels.Target{Strict: true}, c.o.Tiles}
				}
				got := d.run(t, c.data, c.context, c.tensor, dtype.F32, c.o)
				for i, what := range attentionResults {
					requireClose(t, want[i], got[i], 2e-6, what)
				}
			})
		}
	}
}

// In bf16 the result is that of f32 to the precision of bf16, not of the number of
// pieces: parts are merged, and gradients summed over devices, in f32.
func TestContextAttentionBF16(t *testing.T) {
	d := newAttentionData(2, 96, 4, 2, 16, true)
	want := d.oracle()
	alone := d.run(t, 1, 1, 1, dtype.BF16, AttentionOptions{})
	for _, how := range []string{ContextRing, ContextAllGather} {
		got := d.run(t, 1, 4, 1, dtype.BF16, AttentionOptions{Context: how})
		for i, what := range attentionResults {
			off, offAlone := distance(want[i], got[i]), distance(want[i], alone[i])
			t.Logf("%s, %s: relative error %.2g, on one device %.2g", how, what, off, offAlone)
			require.Less(t, off, 1.2*offAlone, "%s, %s", how, what)
			require.Less(t, off, 1.0/128, "%s, %s", how, what)
		}
	}
}

// distance is |got-want|/|want|.
func distance(want, got []float32) float64 {
	var off, all float64
	for i := range want {
		off += math.Pow(float64(got[i]-want[i]), 2)
		all += math.Pow(float64(want[i]), 2)
	}
	return math.Sqrt(off / all)
}

// Device i of n has chunks i and 2n-1-i.
func TestHeadTail(t *testing.T) {
	const n, chunk = 4, 3
	m, err := mesh.New([]mesh.Axis{{Name: "context", Size: n}}, nil)
	require.NoError(t, err)
	mod, err := graph.Trace("headtail", m, func(b *graph.Builder) error {
		x := b.Input("x", graph.T(dtype.S32, 2, 2*n*chunk), graph.Sharded(sharding.P()))
		y := b.ShardMap([]*graph.Value{x}, []sharding.Spec{sharding.P()}, []sharding.Spec{sharding.P(nil, "context")}, func(x []*graph.Value) []*graph.Value {
			return []*graph.Value{HeadTail(x[0], 1, Group{Axes: []string{"context"}, Size: n})}
		})
		b.Output("y", y[0], graph.Sharded(sharding.P(nil, "context")))
		return nil
	})
	require.NoError(t, err)
	x := make([]int32, 2*2*n*chunk)
	for i := range x {
		x[i] = int32(i)
	}
	outs := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), n, xlatest.Same(n, xlatest.S32(x, 2, 2*n*chunk)))
	for i := range n {
		var want []int32
		for row := range 2 {
			for _, c := range []int{i, 2*n - 1 - i} {
				at := (row*2*n + c) * chunk
				want = append(want, x[at:at+chunk]...)
			}
		}
		require.Equal(t, want, outs[i][0].Int32s(), "device %d", i)
	}
}

func TestContextAttentionMistakes(t *testing.T) {
	traced := func(S int, o AttentionOptions) error {
		m, err := mesh.New([]mesh.Axis{{Name: "context", Size: 2}}, nil)
		require.NoError(t, err)
		g := Group{Axes: []string{"context"}, Size: 2}
		_, err = graph.Trace("attention", m, func(b *graph.Builder) error {
			x := b.Input("x", graph.T(dtype.F32, 1, S, 2, 4))
			b.ShardMap([]*graph.Value{x}, []sharding.Spec{sharding.P()}, []sharding.Spec{sharding.P(nil, "context")}, func(x []*graph.Value) []*graph.Value {
				y := HeadTail(x[0], 1, g)
				return []*graph.Value{contextAttention(y, y, y, nil, g, o, nil)}
			})
			b.Output("x", x)
			return nil
		})
		return err
	}
	require.NoError(t, traced(8, AttentionOptions{}))
	require.ErrorContains(t, traced(6, AttentionOptions{}), "sequences of 6 tokens cannot be shared out among 2 devices, which take two equal chunks each; make the length a multiple of 4")
	require.ErrorContains(t, traced(8, AttentionOptions{Context: "rings"}), `"rings"; there are "ring" and "allgather"`)
}
