package kernels

import (
	"titan/dtype"
	"titan/graph"
)

type attentionShape struct {
	G, R, Q, T, H int
	B             int // rows of intervals
	in            dtype.DType
	tiles         AttentionTiles
	causal        bool
}

func (s attentionShape) queryTiles() int { return s.Q / s.tiles.Q }
func (s attentionShape) keyTiles() int   { return s.T / s.tiles.K }

// expected is the number of visits that costs are counted with.
func (s attentionShape) expected() int {
	nq, nk := s.queryTiles(), s.keyTiles()
	if !s.causal {
		return nq * nk
	}
	n := 0
	for i := range nq { // the last query of tile i, were queries and keys alike long, sees this many
		n += min(nk, ((i+1)*s.tiles.Q*s.T/s.Q+s.tiles.K-1)/s.tiles.K)
	}
	return n
}

// attentionPlan knows which tiles of keys each tile of queries sees: for each row
// of intervals and each tile of queries, s32 [B, nq].
type attentionPlan struct {
	s                   attentionShape
	first, last         *graph.Value // tiles of keys; last < first if none
	sure                *graph.Value // all queries see keys from here
	until               *graph.Value // to before here
	firstKeys, lastKeys *graph.Value // s32 [nq]: over all rows
}

// plan reads the intervals.
func (a Attention) plan(s attentionShape) attentionPlan {
	b := a.Q.Builder()
	num := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	tiled := func(x *graph.Value) *graph.Value { return graph.Reshape(x, s.B, s.queryTiles(), s.tiles.Q) }
	some := graph.Greater(a.Hi, a.Lo)
	from := graph.ReduceMin(tiled(graph.Select(some, graph.Max(a.Lo, num(0)), num(s.T))), 2)
	to := graph.ReduceMax(tiled(graph.Select(some, graph.Min(a.Hi, num(s.T)), num(0))), 2)
	p := attentionPlan{s: s,
		first: graph.Div(from, num(s.tiles.K)),
		last:  graph.Sub(graph.Div(graph.Add(to, num(s.tiles.K-1)), num(s.tiles.K)), num(1)),
		sure:  graph.ReduceMax(tiled(a.Lo), 2),
		until: graph.ReduceMin(tiled(a.Hi), 2),
	}
	p.firstKeys = graph.Min(graph.ReduceMin(p.first, 0), num(s.keyTiles()-1))
	p.lastKeys = graph.ReduceMax(p.last, 0)
	return p
}

// visits are pairs of a tile of queries and one of keys, in order.
type attentionVisits struct {
	most                 int
	bound, queries, keys *graph.Value // s32, s32 [most+1] twice
}

// operands are a kernel's bound and prefetched vectors.
func (v attentionVisits) operands(p attentionPlan) []*graph.Value {
	ops := []*graph.Value{v.bound, v.queries, v.keys}
	for _, x := range []*graph.Value{p.first, p.last, p.sure, p.until} {
		ops = append(ops, graph.Reshape(x, x.Dim(0)*x.Dim(1)))
	}
	return ops
}

// byQuery visits for every tile of queries the keys that any row's sees, at least
// one tile.
func (p attentionPlan) byQuery() attentionVisits {
	b := p.first.Builder()
	v := attentionVisits{most: p.s.queryTiles() * p.s.keyTiles()}
	count := graph.Max(graph.AddScalar(graph.Sub(p.lastKeys, p.firstKeys), 1), b.Int(dtype.S32, 1))
	v.bound, v.queries, v.keys = visit(p.firstKeys, count, v.most)
	return v
}

// byKey visits for every tile of keys the tiles of queries from the first to the
// last that see it, at least one.
func (p attentionPlan) byKey() attentionVisits {
	b, nq, nk := p.first.Builder(), p.s.queryTiles(), p.s.keyTiles()
	num := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	shape := []int{p.s.B, nq, nk}
	spread := func(x *graph.Value) *graph.Value { return graph.BroadcastInDim(x, shape, []int{0, 1}) }
	key, query := b.Iota(graph.T(dtype.S32, shape...), 2), b.Iota(graph.T(dtype.S32, shape...), 1)
	sees := graph.And(graph.LessEqual(spread(p.first), key), graph.LessEqual(key, spread(p.last)))
	from := graph.Min(graph.ReduceMin(graph.Select(sees, query, num(nq)), 0, 1), num(nq-1))
	to := graph.ReduceMax(graph.Select(sees, query, num(-1)), 0, 1)
	v := attentionVisits{most: nq * nk}
	count := graph.Max(graph.AddScalar(graph.Sub(to, from), 1), num(1))
	v.bound, v.keys, v.queries = visit(from, count, v.most)
	return v
}
