package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// Cache holds the turned keys and the values of the tokens a model has seen, one
// row for each position, [layers, B, key/value heads, S, head_dim]: a head's rows
// lie together, as its products read them.
type Cache struct{ Keys, Values *graph.Value }

// CacheType returns the type of the keys, and of the values, of rows sequences of
// at most length tokens.
func (c *Config) CacheType(rows, length int, d dtype.DType) graph.Type {
	return graph.T(d, c.Layers, rows, c.KVHeads, length, c.HeadDim)
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
// cache, and returns logits f32 [B, V] of the token after Last with the extended
// cache. It computes what Logits does for the whole sequences, from the parameters
// and the layers of training.
func (m *Model) Extend(b *graph.Builder, params map[string]*graph.Value, cache Cache, next Next) (logits *graph.Value, extended Cache) {
	T := next.Tokens.Dim(1)
	positions := graph.Add(b.Iota(graph.T(dtype.S32, T), 0), next.Start)
	one, zero := b.Int(dtype.S32, 1), b.Int(dtype.S32, 0)
	turn := m.Config.newRope(b, positions)

	// From layer to layer go the residual stream, the cache, and how many layers,
	// and how many of them with experts, there were.
	carry := []*graph.Value{m.embed(b, next.Tokens, params["embed"]), cache.Keys, cache.Values, zero, zero}
	carry, _ = m.layers(b, params, carry, func(c []*graph.Value, sparse bool, w weights) ([]*graph.Value, balance) {
		x, keys, values, layer, expertLayer := c[0], c[1], c[2], c[3], c[4]
		parts := layerParts{
			turn: turn,
			attend: func(q, k, v *graph.Value) *graph.Value {
				keys, values = writeCache(keys, k, layer, next.Start), writeCache(values, v, layer, next.Start)
				return attendCached(q, rowOf(keys, layer), rowOf(values, layer), positions)
			},
			experts: func(h *graph.Value, w weights) (*graph.Value, balance) {
				if h.Dim(0)*T*m.Config.MoE.TopK > m.Config.MoE.Experts {
					return m.experts(b, h, nil, w)
				}
				return m.fewExperts(h, w["layers.router"], params, expertLayer), balance{}
			},
		}
		x, _ = m.layer(x, sparse, w, parts)
		if sparse {
			expertLayer = graph.Add(expertLayer, one)
		}
		return []*graph.Value{x, keys, values, graph.Add(layer, one), expertLayer}, balance{}
	})
	x := graph.DynamicSliceDim(carry[0], 1, next.Last, 1)
	logits = graph.Squeeze(m.head(m.lastNorm(x, params), params), 1)
	return logits, Cache{carry[1], carry[2]}
}

// writeCache writes x [B, T, K, h] to a layer's rows of the cache from start on.
func writeCache(cache, x, layer, start *graph.Value) *graph.Value {
	zero := x.Builder().Int(dtype.S32, 0)
	x = graph.ExpandDims(graph.Transpose(x, 0, 2, 1, 3), 0)
	return graph.DynamicUpdateSlice(cache, x, layer, zero, zero, start, zero)
}

// rowOf returns row i of a stack.
func rowOf(stack, i *graph.Value) *graph.Value {
	return graph.Squeeze(graph.DynamicSliceDim(stack, 0, i, 1), 0)
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
