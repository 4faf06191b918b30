package decoder

import (
	"fmt"
	"math"
	"strings"

	"titan/dtype"
	"titan/graph"
)

// Row is a parameter as generation takes it: of one layer alone. A program that
// reads every weight for one token must not copy them out of stacks.
type Row struct {
	Param        // "layers.3.wq", or a parameter that is no stack, as it is
	Stack string // the parameter it is a row of, or is
	Index int    // which row of it, -1 for all
}

// Rows returns the parameters of the model with their stacks taken apart: for each
// of Arrays in order, its layers in order.
func (c *Config) Rows() []Row {
	sparse, dense := c.SparseLayers()
	var rows []Row
	for _, p := range c.Arrays() {
		if p.Axes[0] != AxisLayer {
			rows = append(rows, Row{p, p.Name, -1})
			continue
		}
		for i := range p.Shape[0] {
			layer := i
			switch all, ofSparse := kindOf(p.Name); {
			case all:
			case ofSparse:
				layer = sparse[i]
			default:
				layer = dense[i]
			}
			one := Param{rowName(p.Name, layer), p.Shape[1:], p.Axes[1:], p.Init}
			rows = append(rows, Row{one, p.Name, i})
		}
	}
	return rows
}

// rowName is the name of a stack's row for a layer.
func rowName(stack string, layer int) string {
	return fmt.Sprintf("layers.%d.%s", layer, strings.TrimPrefix(stack, "layers."))
}

// Cache holds one layer's keys, turned, and values of the tokens that the model has
// seen, [B, key/value heads, S, head_dim]: what a head's products read lies together.
type Cache struct{ Keys, Values *graph.Value }

// CacheType returns the type of one layer's keys, and of its values, of rows
// sequences of at most length tokens.
func (c *Config) CacheType(rows, length int, d dtype.DType) graph.Type {
	return graph.T(d, rows, c.KVHeads, length, c.HeadDim)
}

// Next is what a model reads next: T tokens for each of B sequences.
type Next struct {
	Tokens *graph.Value // s32 [B, T]
	// Start is the position of the first of them, s32 scalar: how many tokens the
	// cache holds. Start + T must not exceed the cache's length.
	Start *graph.Value
	// Last is the number, in 0..T-1, of the token whose successor is asked for,
	// s32 scalar. What comes behind it is padding, which the next call overwrites.
	Last *graph.Value
}

// Extend traces the model on the next tokens of sequences whose past is in the
// layers' caches, and returns logits f32 [B, V] of the token after Last, and the
// extended caches. params are those of Rows. It computes what Logits does for the
// whole sequences, in the same layers.
func (m *Model) Extend(b *graph.Builder, params map[string]*graph.Value, caches []Cache, next Next) (logits *graph.Value, extended []Cache) {
	m = m.withoutDrops()
	T := next.Tokens.Dim(1)
	positions := graph.Add(b.Iota(graph.T(dtype.S32, T), 0), next.Start)
	turn := m.Config.newRope(b, positions, false)
	x := m.embed(next.Tokens, params["embed"])
	for i := range m.Config.Layers {
		w := weights{}
		for _, p := range m.Config.Arrays() {
			if v := params[rowName(p.Name, i)]; v != nil {
				w[p.Name] = v
			}
		}
		var cache Cache
		parts := layerParts{
			turn: turn,
			attend: func(q, k, v *graph.Value) *graph.Value {
				// Behind a barrier: XLA on CPU writes, and so copies, it once for each use.
				written := graph.Barrier(writeCache(caches[i].Keys, k, next.Start), writeCache(caches[i].Values, v, next.Start))
				cache = Cache{written[0], written[1]}
				return attendCached(q, cache.Keys, cache.Values, positions)
			},
			experts: func(h *graph.Value, w weights) (*graph.Value, balance) {
				if h.Dim(0)*T*m.Config.MoE.TopK > m.Config.MoE.Experts {
					return m.experts(h, w)
				}
				return m.fewExperts(h, w), balance{}
			},
		}
		x, _ = m.layer(x, m.Config.Sparse(i), w, parts)
		extended = append(extended, cache)
	}
	x = m.lastNorm(graph.DynamicSliceDim(x, 1, next.Last, 1), params)
	return graph.Squeeze(m.head(x, params), 1), extended
}

// writeCache writes x [B, T, K, h] to the cache's rows from start on.
func writeCache(cache, x, start *graph.Value) *graph.Value {
	return graph.DynamicUpdateSliceDim(cache, graph.Transpose(x, 0, 2, 1, 3), 2, start)
}

// attendCached is softmax attention of q [B, T, H, h], at the given positions
// (s32 [T]), to the cached k and v [B, K, S, h] of positions up to its own. It
// computes what attention does, in the same types; all T×S scores exist at once.
func attendCached(q, k, v, positions *graph.Value) *graph.Value {
	b := q.Builder()
	B, T, H, h := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	K, S := k.Dim(1), k.Dim(2)
	R := H / K
	q = graph.MulScalar(q, 1/math.Sqrt(float64(h)))
	q = graph.Reshape(graph.Transpose(graph.Reshape(q, B, T, K, R, h), 0, 2, 3, 1, 4), B, K, R*T, h)
	scores := graph.Reshape(graph.Einsum("bkqh,bksh->bkqs", q, k, graph.As(dtype.F32)), B, K, R, T, S)
	t := graph.T(dtype.S32, B, K, R, T, S)
	past := graph.GreaterEqual(graph.BroadcastInDim(positions, t.Shape, []int{3}), b.Iota(t, 4))
	scores = graph.Select(past, scores, b.Scalar(dtype.F32, masked))
	p := graph.Exp(graph.Sub(scores, graph.ExpandDims(graph.ReduceMax(scores, 4), 4)))
	sum := graph.Reshape(graph.Sum(p, 4), B, K, R*T, 1)
	p = graph.Reshape(graph.Convert(p, v.DType()), B, K, R*T, S)
	o := graph.Einsum("bkqs,bksh->bkqh", p, v, graph.As(dtype.F32))
	o = graph.Reshape(graph.Convert(graph.Div(o, sum), v.DType()), B, K, R, T, h)
	return graph.Reshape(graph.Transpose(o, 0, 3, 1, 2, 4), B, T, H, h)
}
