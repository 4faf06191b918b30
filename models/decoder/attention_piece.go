package decoder

import "titan/graph"

// piece is attention of some queries to some keys, in rows of one key/value head.
type piece struct {
	q, k, v *graph.Value // [G, R, Q, h], [G, T, h], [G, T, h]
	// qSegments [G, Q] and kSegments [G, T], s32, keep queries to the keys of
	// their own segment; nil: there is one only.
	qSegments, kSegments *graph.Value
	// starts, s32 [B, Q], is there instead of segments for tiledBlocks: the first key
	// of a query's document, which may lie before the keys or behind them. Each row
	// is that of G/B rows of q.
	starts *graph.Value
	// all: queries see all keys. If not, they see those up to their own place.
	all bool
	// chunks, if set, say where queries lie: the keys are equal chunks, of which
	// the queries are the two with these numbers (s32 scalars), the first before
	// the second. Otherwise query t lies at key t.
	chunks *[2]*graph.Value
}

// ownPiece is attention of a sequence to itself: q, k, v and perhaps segments, or
// starts.
func ownPiece(args []*graph.Value, tiled bool) piece {
	p := piece{q: args[0], k: args[1], v: args[2]}
	switch {
	case len(args) > 3 && tiled:
		p.starts = args[3]
	case len(args) > 3:
		p.qSegments, p.kSegments = args[3], args[3]
	}
	return p
}

// blocks is how the attention of a piece is computed. A query that sees no key of
// its segment gets some finite output, and a logarithm near masked.
type blocks interface {
	// forward returns the output as q, in type as, and the logarithms of the
	// denominators, f32 [G, R, Q].
	forward(p piece, as graph.DType) (out, lse *graph.Value)
	// backward returns, in f32, the piece's part in the cotangents of q, k and v.
	// lse is the logarithm of the denominator over all keys, of this piece and
	// others, delta [G, R, Q] the rowProducts of the output and its cotangent ct,
	// which has the type of v.
	backward(p piece, lse, delta, ct *graph.Value) []*graph.Value
}

// groupedBlocks treats groups of rows one after the other.
type groupedBlocks struct {
	groups int
	blocks
}

// grouped is in for each group of rows that o asks for.
func (o AttentionOptions) grouped(in blocks, rows, repeat int) blocks {
	if groups := o.groups(rows, repeat); groups > 1 {
		return groupedBlocks{groups, in}
	}
	return in
}

// loop runs f for each group of the piece and of the further values, and puts
// what it returns together.
func (g groupedBlocks) loop(p piece, further []*graph.Value, f func(p piece, further []*graph.Value) []*graph.Value) []*graph.Value {
	xs := []*graph.Value{p.q, p.k, p.v}
	if p.qSegments != nil {
		xs = append(xs, p.qSegments, p.kSegments)
	}
	n := len(xs)
	_, ys := p.q.Builder().Scan(nil, inGroups(g.groups, append(xs, further...)), func(_, x []*graph.Value) (next, ys []*graph.Value) {
		part := piece{q: x[0], k: x[1], v: x[2], all: p.all, chunks: p.chunks}
		if n > 3 {
			part.qSegments, part.kSegments = x[3], x[4]
		}
		return nil, f(part, x[n:])
	})
	for i, y := range ys {
		ys[i] = graph.Reshape(y, append([]int{y.Dim(0) * y.Dim(1)}, y.Shape()[2:]...)...)
	}
	return ys
}

func (g groupedBlocks) forward(p piece, as graph.DType) (out, lse *graph.Value) {
	ys := g.loop(p, nil, func(p piece, _ []*graph.Value) []*graph.Value {
		out, lse := g.blocks.forward(p, as)
		return []*graph.Value{out, lse}
	})
	return ys[0], ys[1]
}

func (g groupedBlocks) backward(p piece, lse, delta, ct *graph.Value) []*graph.Value {
	return g.loop(p, []*graph.Value{lse, delta, ct}, func(p piece, x []*graph.Value) []*graph.Value {
		return g.blocks.backward(p, x[0], x[1], x[2])
	})
}
