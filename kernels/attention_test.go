package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
)

// attentionCase is the size of an attention; G rows are B sequences.
type attentionCase struct {
	B, G, R, Q, T, h int
	tiles            kernels.AttentionTiles
	causal, packed   bool
	apart            bool
}

func (c attentionCase) program(t *testing.T, d dtype.DType, target kernels.Target) string {
	t.Helper()
	m, err := graph.Trace("attention", nil, func(b *graph.Builder) error {
		q, k, v := b.Input("q", graph.T(d, c.G, c.R, c.Q, c.h)), b.Input("k", graph.T(d, c.G, c.T, c.h)), b.Input("v", graph.T(d, c.G, c.T, c.h))
		qs, ks := b.Input("q_segments", graph.T(dtype.S32, c.B, c.Q)), b.Input("k_segments", graph.T(dtype.S32, c.B, c.T))
		ct := b.Input("ct", q.Type())
		a := kernels.Attention{Q: q, K: k, V: v, Causal: c.causal, Apart: c.apart, Target: target, Tiles: c.tiles}
		a.Lo, a.Hi = c.intervals(b, qs, ks)
		out := kernels.FlashAttention(a)
		b.Output("out", out)
		for _, g := range graph.VJP([]*graph.Value{out}, []*graph.Value{ct}, []*graph.Value{q, k, v}) {
			b.Output("grad", g)
		}
		return nil
	})
	require.NoError(t, err)
	return m.StableHLO()
}

// intervals makes those of documents in both of two texts by comparing all of their
// tokens; of one text, where it is causal, by Starts.
func (c attentionCase) intervals(b *graph.Builder, qs, ks *graph.Value) (lo, hi *graph.Value) {
	var in kernels.Intervals
	if c.causal {
		in.Places = b.Iota(graph.T(dtype.S32, c.Q), 0)
	}
	if c.packed && c.causal && c.Q == c.T {
		in.Starts = kernels.Starts(qs)
	}
	lo, hi = kernels.KeyIntervals(b, c.Q, c.T, in)
	if c.packed && in.Starts == nil {
		shape := []int{c.B, c.Q, c.T}
		same := graph.Equal(graph.BroadcastInDim(qs, shape, []int{0, 1}), graph.BroadcastInDim(ks, shape, []int{0, 2}))
		key := b.Iota(graph.T(dtype.S32, shape...), 2)
		lo = graph.ReduceMin(graph.Select(same, key, b.Int(dtype.S32, int64(c.T))), 2)
		hi = graph.AddScalar(graph.ReduceMax(graph.Select(same, key, b.Int(dtype.S32, -1)), 2), 1)
	}
	return lo, hi
}

// plain is softmax attention by its definition, in float64.
func (c attentionCase) plain(q, k, v, ct []float32, qs, ks []int32) (out, dq, dk, dv []float32, sees []bool) {
	out, dq, dk, dv = make([]float32, len(q)), make([]float32, len(q)), make([]float32, len(k)), make([]float32, len(v))
	p := make([]float64, c.T)
	for g := range c.G {
		row := g / (c.G / c.B)
		for r := range c.R {
			for i := range c.Q {
				at := ((g*c.R+r)*c.Q + i) * c.h
				sum, any := 0.0, false
				for j := range c.T {
					p[j] = 0
					if c.causal && j > i || c.packed && qs[row*c.Q+i] != ks[row*c.T+j] {
						continue
					}
					any = true
					s := 0.0
					for x := range c.h {
						s += float64(q[at+x]) * float64(k[(g*c.T+j)*c.h+x])
					}
					p[j] = math.Exp(s)
					sum += p[j]
				}
				sees = append(sees, any)
				if !any {
					continue
				}
				delta := 0.0
				for x := range c.h {
					o := 0.0
					for j := range c.T {
						o += p[j] / sum * float64(v[(g*c.T+j)*c.h+x])
					}
					out[at+x] = float32(o)
					delta += o * float64(ct[at+x])
				}
				for j := range c.T {
					kv := (g*c.T + j) * c.h
					w, dp := p[j]/sum, 0.0
					for x := range c.h {
						dv[kv+x] += float32(w * float64(ct[at+x]))
						dp += float64(ct[at+x]) * float64(v[kv+x])
					}
					ds := w * (dp - delta)
					for x := range c.h {
						dq[at+x] += float32(ds * float64(k[kv+x]))
						dk[kv+x] += float32(ds * float64(q[at+x]))
					}
				}
			}
		}
	}
	return out, dq, dk, dv, sees
}

// documents draws segments of n tokens: runs of random lengths, one after the
// other, and sometimes filling (0) at the end.
func documents(r *rand.Rand, n int) []int32 {
	s := make([]int32, n)
	id := int32(1)
	for i, left := 0, 1+r.IntN(n); i < n; i++ {
		if left == 0 {
			id, left = id+1, 1+r.IntN(n)
		}
		s[i] = id
		left--
	}
	for i := n - r.IntN(n/2+1)*r.IntN(2); i < n; i++ {
		s[i] = 0
	}
	return s
}

// Values and gradients are those of the definition: causal or not, packed or not,
// heads sharing keys, tiles that masks cut in all ways.
func TestAttentionIsThePlainOne(t *testing.T) {
	cpu := xlatest.CPU(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []attentionCase{
		{B: 2, G: 4, R: 2, Q: 16, T: 16, h: 4, tiles: kernels.AttentionTiles{Q: 4, K: 8}, causal: true, packed: true},
		{B: 2, G: 4, R: 2, Q: 16, T: 16, h: 4, tiles: kernels.AttentionTiles{Q: 4, K: 8}, causal: true, packed: true, apart: true},
		{B: 1, G: 2, R: 3, Q: 12, T: 12, h: 5, tiles: kernels.AttentionTiles{Q: 6, K: 3}, causal: true},
		{B: 2, G: 2, R: 1, Q: 8, T: 24, h: 4, tiles: kernels.AttentionTiles{Q: 4, K: 4}, packed: true},
		{B: 1, G: 2, R: 2, Q: 8, T: 6, h: 4, tiles: kernels.AttentionTiles{Q: 2, K: 3}, apart: true},
		{B: 1, G: 1, R: 2, Q: 10, T: 10, h: 3, causal: true, packed: true}, // one tile
	} {
		x := xlatest.Compile(t, cpu, c.program(t, dtype.F32, strict), 1)
		for range 40 {
			q, ct := floats(r, c.G*c.R*c.Q*c.h), floats(r, c.G*c.R*c.Q*c.h)
			k, v := floats(r, c.G*c.T*c.h), floats(r, c.G*c.T*c.h)
			var qs, ks []int32
			for range c.B {
				seq := documents(r, c.T)
				ks = append(ks, seq...)
				qs = append(qs, seq[:min(c.Q, c.T)]...)
				for i := c.T; i < c.Q; i++ {
					qs = append(qs, seq[0])
				}
			}
			if c.packed && c.Q != c.T { // queries of another part of the text, some of no document here
				for i := range qs {
					qs[i] += int32(r.IntN(2))
				}
			}
			out, dq, dk, dv, sees := c.plain(q, k, v, ct, qs, ks)
			for i, any := range sees {
				if !any { // its output is anything, and so it must have no cotangent
					for x := range c.h {
						ct[i*c.h+x] = 0
					}
				}
			}
			shape := []int{c.G, c.R, c.Q, c.h}
			got := xlatest.RunExecutable(t, x, [][]xlatest.Array{{
				xlatest.F32(q, shape...), xlatest.F32(k, c.G, c.T, c.h), xlatest.F32(v, c.G, c.T, c.h),
				xlatest.S32(qs, c.B, c.Q), xlatest.S32(ks, c.B, c.T), xlatest.F32(ct, shape...),
			}})[0]
			res := got[0].Float32s()
			for i, any := range sees {
				for x := i * c.h; !any && x < (i+1)*c.h; x++ {
					require.False(t, math.IsNaN(float64(res[x])) || math.IsInf(float64(res[x]), 0))
					res[x] = 0
				}
			}
			requireClose(t, out, res, 1e-4, "out of %+v, segments %v %v", c, qs, ks)
			requireClose(t, dq, got[1].Float32s(), 1e-4, "dq of %+v, segments %v %v", c, qs, ks)
			requireClose(t, dk, got[2].Float32s(), 1e-4, "dk of %+v, segments %v %v", c, qs, ks)
			requireClose(t, dv, got[3].Float32s(), 1e-4, "dv of %+v, segments %v %v", c, qs, ks)
		}
	}
}
