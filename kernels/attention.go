package kernels

import (
	"titan/dtype"
	"titan/graph"
)

// Attention is softmax attention of queries to an interval of the keys each, in
// rows of one key/value head, computed in tiles without ever holding all scores
// (Dao, "FlashAttention-2", 2023). Tiles of keys that no query of a tile sees are
// not visited.
type Attention struct {
	// Q [G, R, Q, h], times the scale of the scores, K [G, T, h] and V [G, T, h],
	// all f32 or all bf16: R query heads share each of the G key/value heads.
	Q, K, V *graph.Value
	// Lo and Hi, s32 [B, Q], let query t see keys Lo[t] to Hi[t]−1; each of their
	// rows serves G/B consecutive rows of Q. [KeyIntervals] makes them. Nil are 0 and T.
	Lo, Hi *graph.Value
	// Causal says that Hi is about the query's own place. It changes only what the
	// cost is thought to be.
	Causal bool
	// Apart computes q's gradient and those of K and V by kernels of their own, as
	// is done anyway where the sums of whole sequences exceed the vector memory.
	Apart  bool
	Target Target
	Tiles  AttentionTiles
}

// masked is the score of a key that is not seen: far below any, and finite.
const masked = -1e30

// FlashAttention is attention with gradients for Q, K and V; the result has Q's
// shape and type. A query that sees no key gets some finite output. Like every
// kernel it must be called in a manual region where the mesh has several devices.
func FlashAttention(a Attention) *graph.Value {
	a = a.complete()
	return graph.CustomVJP([]*graph.Value{a.Q, a.K, a.V, a.Lo, a.Hi},
		func(x []*graph.Value) (outs, residuals []*graph.Value) {
			out, lse := a.with(x).Forward(a.Q.DType())
			return []*graph.Value{out}, append(x[:5:5], out, lse)
		},
		func(x, cts []*graph.Value) []*graph.Value {
			f32 := func(v *graph.Value) *graph.Value { return graph.Convert(v, dtype.F32) }
			delta := graph.Sum(graph.Mul(f32(x[5]), f32(cts[0])), 3)
			dq, dk, dv := a.with(x).Backward(x[6], delta, graph.Convert(cts[0], a.V.DType()))
			return []*graph.Value{dq, dk, dv, nil, nil}
		})[0]
}

func (a Attention) with(x []*graph.Value) Attention {
	a.Q, a.K, a.V, a.Lo, a.Hi = x[0], x[1], x[2], x[3], x[4]
	return a
}

// complete fills in Lo and Hi and refuses shapes that do not fit.
func (a Attention) complete() Attention {
	b := a.Q.Builder()
	q, k, v := a.Q.Type(), a.K.Type(), a.V.Type()
	if q.Rank() != 4 || k.Rank() != 3 || !k.Equal(v) || q.Shape[0] != k.Shape[0] || q.Shape[3] != k.Shape[2] || q.DType != k.DType || q.DType != dtype.F32 && q.DType != dtype.BF16 {
		b.Fail("attention of q %v, k %v, v %v: want [G, R, Q, h], [G, T, h] twice, all f32 or all bf16", q, k, v)
	}
	lo, hi := KeyIntervals(b, q.Shape[2], k.Shape[1], Intervals{})
	if a.Lo == nil {
		a.Lo = lo
	}
	if a.Hi == nil {
		a.Hi = hi
	}
	l, h := a.Lo.Type(), a.Hi.Type()
	if !l.Equal(h) || l.Rank() != 2 || l.DType != dtype.S32 || l.Shape[1] != q.Shape[2] || q.Shape[0]%l.Shape[0] != 0 {
		b.Fail("attention of q %v: Lo %v and Hi %v must be s32 [B, %d], where B divides %d", q, l, h, q.Shape[2], q.Shape[0])
	}
	return a
}

// shape gathers the sizes and chooses tiles.
func (a Attention) shape() attentionShape {
	q := a.Q.Type().Shape
	s := attentionShape{G: q[0], R: q[1], Q: q[2], T: a.K.Dim(1), H: q[3], B: a.Lo.Dim(0), in: a.Q.DType()}
	s.tiles = a.Tiles.fit(a.Target, s)
	if s.Q%s.tiles.Q != 0 || s.T%s.tiles.K != 0 {
		a.Q.Builder().Fail("attention of %d queries and %d keys in tiles of %d and %d, which do not divide them", s.Q, s.T, s.tiles.Q, s.tiles.K)
	}
	s.causal = a.Causal
	return s
}

// Forward returns the output, of Q's shape in type as, and the logarithms of the
// softmax's denominators, f32 [G, R, Q]. It has no gradient of its own.
func (a Attention) Forward(as dtype.DType) (out, lse *graph.Value) {
	a = a.complete()
	s := a.shape()
	p := a.plan(s)
	v := p.byQuery()
	outs := attentionForward(s, v.most, as).Call(a.Target, append(v.operands(p), a.rows(a.Lo), a.rows(a.Hi), a.Q, a.K, a.V)...)
	return outs[0], graph.Reshape(outs[1], s.G, s.R, s.Q)
}

// Backward returns, in f32, the cotangents of Q, K and V. lse is the logarithm of
// the denominator over all keys, these and others, delta, f32 [G, R, Q], the sum
// of the output times its cotangent ct for each query; ct has the type of V.
func (a Attention) Backward(lse, delta, ct *graph.Value) (dq, dk, dv *graph.Value) {
	a = a.complete()
	s := a.shape()
	p := a.plan(s)
	row := func(x *graph.Value) *graph.Value { return graph.Reshape(x, s.G, s.R, 1, s.Q) }
	rest := []*graph.Value{a.rows(a.Lo), a.rows(a.Hi), a.Q, a.K, a.V, ct, row(lse), row(delta)}
	if k := attentionGrad(s, s.queryTiles()*s.keyTiles()); a.together(k, s) {
		v := p.byKey()
		d := k.Call(a.Target, append(v.operands(p), rest...)...)
		whole := func(x *graph.Value, like *graph.Value) *graph.Value { return graph.Reshape(x, like.Shape()...) }
		return whole(d[0], a.Q), whole(d[1], a.K), whole(d[2], a.V)
	}
	v := p.byQuery()
	dq = attentionGradQ(s, v.most).Call(a.Target, append(v.operands(p), rest...)...)[0]
	v = p.byKey()
	d := attentionGradKV(s, v.most).Call(a.Target, append(v.operands(p), rest...)...)
	return dq, d[0], d[1]
}

// together says whether k, which gives all gradients at once, has room on the
// target, with six tiles of scores on the way.
func (a Attention) together(k *Kernel, s attentionShape) bool {
	if a.Apart || a.Target.Chip == nil {
		return !a.Apart
	}
	return k.VMEM()+6*4*int64(s.tiles.Q*s.tiles.K) <= VMEMLimit(*a.Target.Chip)
}

func (a Attention) rows(x *graph.Value) *graph.Value {
	return graph.Reshape(x, x.Dim(0), 1, x.Dim(1))
}
