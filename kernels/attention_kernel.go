package kernels

import (
	"titan/dtype"
	"titan/graph"
)

// attentionParts are the arrays that the three kernels of attention have in common.
// Scores are made as [keys, queries], so that what there is one of for each query
// is a row, which fills lanes, and reductions over keys run along sublanes.
type attentionParts struct {
	k              *Kernel
	s              attentionShape
	g, r, v        *Value
	queries, keys  *Ref // prefetched: the tiles of each visit
	query, key     *Value
	seen           *Value // this row's queries see some of the keys
	all            *Value // all of them
	lo, hi         *Ref
	q, kk, vv      *Ref
	ct, lse, delta *Ref
}

// attentionKind is what a kernel of attention computes.
type attentionKind uint8

const (
	forward attentionKind = iota // visits by query
	gradQ                        // by query
	gradKV                       // by key
	both                         // gradients of q, k and v: by key, which is free
)

// newAttention defines the grid, v being the innermost dimension or, for the
// gradient of keys, r. Operands: the number of visits; the tile of queries and of
// keys of each; first, last, sure and until of attentionPlan; lo, hi [B, 1, Q]; q,
// k, v; and, for gradients, ct, lse and delta [G, R, 1, Q].
func newAttention(name string, s attentionShape, visits int, of attentionKind) *attentionParts {
	k := New(name)
	p := &attentionParts{k: k, s: s}
	p.g = k.Grid(s.G, Parallel)
	switch of {
	case gradKV:
		p.v, p.r = k.DynamicGrid(visits, s.expected()), k.Grid(s.R, Sequential)
	case both:
		p.r, p.v = k.Grid(s.R, Sequential), k.DynamicGrid(visits, s.expected())
	default:
		p.r, p.v = k.Grid(s.R, Parallel), k.DynamicGrid(visits, s.expected())
	}
	p.queries, p.keys = k.Prefetch("query_tile", visits+1), k.Prefetch("key_tile", visits+1)
	bound, typical := s.typical(of == gradKV || of == both)
	n := s.B * s.queryTiles()
	first, last, sure, until := k.Prefetch("first", n), k.Prefetch("last", n), k.Prefetch("sure", n), k.Prefetch("until", n)
	k.Expect([]int{bound}, typical...)

	tq, tk, zero := s.tiles.Q, s.tiles.K, k.Int(0)
	p.query, p.key = p.queries.At(p.v), p.keys.At(p.v)
	row := Div(p.g, k.Int(s.G/s.B))
	at := Add(Mul(row, k.Int(s.queryTiles())), p.query)
	p.seen = And(LessEqual(first.At(at), p.key), LessEqual(p.key, last.At(at)))
	begin := Mul(p.key, k.Int(tk))
	p.all = And(LessEqual(sure.At(at), begin), LessEqual(Add(begin, k.Int(tk)), until.At(at)))
	key := p.key
	if of == forward || of == gradQ { // keys that are not seen are not copied: the index stays what it was
		key = Max(Min(Max(p.key, first.At(at)), last.At(at)), zero)
	}
	p.lo = k.In("lo", graph.T(dtype.S32, s.B, 1, s.Q), []int{1, 1, tq}, row, zero, p.query)
	p.hi = k.In("hi", graph.T(dtype.S32, s.B, 1, s.Q), []int{1, 1, tq}, row, zero, p.query)
	heads, whole := graph.T(s.in, s.G, s.R, s.Q, s.H), graph.T(s.in, s.G, s.T, s.H)
	p.q = k.In("q", heads, []int{1, 1, tq, s.H}, p.g, p.r, p.query, zero)
	p.kk = k.In("k", whole, []int{1, tk, s.H}, p.g, key, zero)
	p.vv = k.In("v", whole, []int{1, tk, s.H}, p.g, key, zero)
	if of != forward {
		rows := graph.T(dtype.F32, s.G, s.R, 1, s.Q)
		p.ct = k.In("ct", heads, []int{1, 1, tq, s.H}, p.g, p.r, p.query, zero)
		p.lse = k.In("lse", rows, []int{1, 1, 1, tq}, p.g, p.r, zero, p.query)
		p.delta = k.In("delta", rows, []int{1, 1, 1, tq}, p.g, p.r, zero, p.query)
	}
	return p
}

// each runs f on the pair of tiles, if it is seen: with a mask, or with nil where
// all queries see all keys.
func (p *attentionParts) each(f func(mask *Value)) {
	p.k.If(And(p.seen, p.all), func() { f(nil) })
	p.k.If(And(p.seen, Not(p.all)), func() {
		tk, tq := p.s.tiles.K, p.s.tiles.Q
		key := Add(p.k.Iota(tk, tq, 0), Mul(p.key, p.k.Int(tk)))
		f(And(GreaterEqual(key, p.lo.Load()), Less(key, p.hi.Load())))
	})
}

// edges says whether a visit is the first, or the last, to its tile of the ones
// that tiles lists.
func (p *attentionParts) edges(tiles *Ref) (first, last *Value) {
	k, v := p.k, p.v
	now := tiles.At(v)
	first = Or(Equal(v, k.Int(0)), NotEqual(tiles.At(Max(Sub(v, k.Int(1)), k.Int(0))), now))
	return first, NotEqual(tiles.At(Add(v, k.Int(1))), now)
}

// cost counts products [tk, tq]×h for each visit, and the exponentials.
func (p *attentionParts) cost(products int) *Kernel {
	pairs := float64(p.s.G*p.s.R*p.s.expected()) * float64(p.s.tiles.Q*p.s.tiles.K)
	p.k.Flops(2*float64(products)*pairs*float64(p.s.H), pairs)
	return p.k
}

// attentionForward gives out [G, R, Q, h] and lse [G, R, 1, Q].
func attentionForward(s attentionShape, visits int, as dtype.DType) *Kernel {
	p := newAttention("attention", s, visits, forward)
	k, tq, zero := p.k, s.tiles.Q, p.k.Int(0)
	out := k.Out("out", graph.T(as, s.G, s.R, s.Q, s.H), []int{1, 1, tq, s.H}, p.g, p.r, p.query, zero)
	lse := k.Out("lse", graph.T(dtype.F32, s.G, s.R, 1, s.Q), []int{1, 1, 1, tq}, p.g, p.r, zero, p.query)
	row, whole := graph.T(dtype.F32, 1, tq), graph.T(dtype.F32, s.H, tq)
	most, sum, acc := k.Scratch("most", row), k.Scratch("sum", row), k.Scratch("acc", whole)

	first, last := p.edges(p.queries)
	k.If(first, func() {
		most.Store(k.Full(row, masked))
		sum.Store(k.Zeros(row))
		acc.Store(k.Zeros(whole))
	})
	p.each(func(mask *Value) {
		scores := Dot(p.kk.Load(), 1, p.q.Load(), 1)
		if mask != nil {
			scores = Select(mask, scores, k.F32(masked))
		}
		old := most.Load()
		now := Max(old, ReduceMax(scores, 0))
		e, fade := Exp(Sub(scores, now)), Exp(Sub(old, now))
		most.Store(now)
		sum.Store(Add(Mul(sum.Load(), fade), Sum(e, 0)))
		acc.Store(Add(Mul(acc.Load(), fade), Dot(p.vv.Load(), 0, Convert(e, s.in), 0)))
	})
	k.If(last, func() {
		n := Max(sum.Load(), k.F32(1e-30)) // 0 where nothing was seen
		out.Store(Convert(Transpose(Div(acc.Load(), n)), as))
		lse.Store(Add(most.Load(), Log(n)))
	})
	return p.cost(2)
}

// gradients returns, as [keys, queries], the probabilities and the cotangents of
// the scores, in the type of the operands.
func (p *attentionParts) gradients(mask *Value) (e, ds *Value) {
	scores := Dot(p.kk.Load(), 1, p.q.Load(), 1)
	e = Exp(Sub(scores, p.lse.Load()))
	if mask != nil {
		e = Select(mask, e, p.k.F32(0))
	}
	dp := Dot(p.vv.Load(), 1, p.ct.Load(), 1)
	ds = Mul(e, Sub(dp, p.delta.Load()))
	return Convert(e, p.s.in), Convert(ds, p.s.in)
}

// attentionGradQ gives q's cotangent, f32 [G, R, Q, h].
func attentionGradQ(s attentionShape, visits int) *Kernel {
	p := newAttention("attention_gradient_q", s, visits, gradQ)
	k, tq := p.k, s.tiles.Q
	out := k.Out("dq", graph.T(dtype.F32, s.G, s.R, s.Q, s.H), []int{1, 1, tq, s.H}, p.g, p.r, p.query, k.Int(0))
	whole := graph.T(dtype.F32, s.H, tq)
	acc := k.Scratch("acc", whole)
	first, last := p.edges(p.queries)
	k.If(first, func() { acc.Store(k.Zeros(whole)) })
	p.each(func(mask *Value) {
		_, ds := p.gradients(mask)
		acc.Store(Add(acc.Load(), Dot(p.kk.Load(), 0, ds, 0)))
	})
	k.If(last, func() { out.Store(Transpose(acc.Load())) })
	return p.cost(3)
}

// attentionGradKV gives the cotangents of k and v, f32 [G, T, h].
func attentionGradKV(s attentionShape, visits int) *Kernel {
	p := newAttention("attention_gradient_kv", s, visits, gradKV)
	k, t, tile := p.k, graph.T(dtype.F32, s.G, s.T, s.H), graph.T(dtype.F32, s.tiles.K, s.H)
	block := []int{1, s.tiles.K, s.H}
	dk := k.Out("dk", t, block, p.g, p.key, k.Int(0))
	dv := k.Out("dv", t, block, p.g, p.key, k.Int(0))
	sumK, sumV := k.Scratch("sum_k", tile), k.Scratch("sum_v", tile)
	first, last := p.edges(p.keys)
	k.If(And(first, Equal(p.r, k.Int(0))), func() {
		sumK.Store(k.Zeros(tile))
		sumV.Store(k.Zeros(tile))
	})
	p.each(func(mask *Value) {
		e, ds := p.gradients(mask)
		sumV.Store(Add(sumV.Load(), Dot(e, 1, p.ct.Load(), 0)))
		sumK.Store(Add(sumK.Load(), Dot(ds, 1, p.q.Load(), 0)))
	})
	k.If(And(last, Equal(p.r, k.Int(s.R-1))), func() {
		dk.Store(sumK.Load())
		dv.Store(sumV.Load())
	})
	return p.cost(4)
}

// attentionGrad gives the cotangents of q [G, R, Q/tile, tile, h], k and v [G,
// T/tile, tile, h], f32, at once, with one computation of the scores. Those of a
// head of q, and of k and v, are in vector memory whole while they are summed, so
// that it is for sequences that fit there.
func attentionGrad(s attentionShape, visits int) *Kernel {
	p := newAttention("attention_gradient", s, visits, both)
	k, nq, nk, h := p.k, s.queryTiles(), s.keyTiles(), s.H
	zero := k.Int(0)
	sums := func(name string, shape, block []int, index ...*Value) *Ref {
		return k.Out(name, graph.T(dtype.F32, shape...), block, index...)
	}
	dq := sums("dq", []int{s.G, s.R, nq, s.tiles.Q, h}, []int{1, 1, nq, s.tiles.Q, h}, p.g, p.r, zero, zero, zero)
	dk := sums("dk", []int{s.G, nk, s.tiles.K, h}, []int{1, nk, s.tiles.K, h}, p.g, zero, zero, zero)
	dv := sums("dv", []int{s.G, nk, s.tiles.K, h}, []int{1, nk, s.tiles.K, h}, p.g, zero, zero, zero)
	clear := func(r *Ref, n int) {
		for i := range n {
			t := r.sheetOf(n, k.Int(i))
			t.Store(k.Zeros(t.tile()))
		}
	}
	k.If(Equal(p.v, zero), func() { clear(dq, nq) })
	k.If(And(Equal(p.v, zero), Equal(p.r, zero)), func() {
		clear(dk, nk)
		clear(dv, nk)
	})
	add := func(r *Ref, n int, at, x *Value) {
		t := r.sheetOf(n, at)
		t.Store(Add(t.Load(), x))
	}
	p.each(func(mask *Value) {
		e, ds := p.gradients(mask)
		add(dv, nk, p.key, Dot(e, 1, p.ct.Load(), 0))
		add(dk, nk, p.key, Dot(ds, 1, p.q.Load(), 0))
		add(dq, nq, p.query, Transpose(Dot(p.kk.Load(), 0, ds, 0)))
	})
	return p.cost(5)
}

// sheetOf is r's sheet i, or r where there is one of them only.
func (r *Ref) sheetOf(n int, i *Value) *Ref {
	if n == 1 {
		return r
	}
	return r.Sheet(i)
}
