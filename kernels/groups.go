package kernels

import (
	"titan/dtype"
	"titan/graph"
)

// grouping is how M rows, of which consecutive ones form groups, are visited in
// tiles: a tile that several groups share is visited once for each of them.
type grouping struct {
	visits  int          // at most
	bound   *graph.Value // s32: how many there are
	group   *graph.Value // s32 [visits+1]: of each visit; the number of groups: of none
	tile    *graph.Value // s32 [visits+1]
	lhsTile *graph.Value // s32 [visits+1]: tile, or the one before where there is no group
	rows    *graph.Value // s32 [groups+1]: group g has rows rows[g] to rows[g+1]
}

// group lays out visits of M rows in tiles of size rows, which divides M. Group g
// has sizes[g] rows, the first begin at row first (nil: 0). With all, tiles without
// any group are visited as well, at the end, and groups without rows are not; else
// groups without rows are visited once.
func group(sizes, first *graph.Value, M, size int, all bool) grouping {
	b, E := sizes.Builder(), sizes.Dim(0)
	num := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	if first == nil {
		first = num(0)
	}
	// What would lie beyond the last row is cut off.
	ends := graph.Min(graph.Add(graph.Cumsum(sizes, 0), first), num(M))
	rows := graph.Concat(0, graph.Reshape(graph.Min(first, num(M)), 1), ends)
	starts := graph.SliceDim(rows, 0, 0, E)
	up := func(x *graph.Value) *graph.Value { return graph.Div(graph.Add(x, num(size-1)), num(size)) }
	from := graph.Div(starts, num(size))
	least := num(1)
	if all {
		least = num(0)
	}
	count := graph.Select(graph.Greater(ends, starts), graph.Sub(up(ends), from), least)
	tiles := M / size
	g := grouping{visits: tiles + E - 1, rows: rows}
	g.bound, g.group, g.tile = visit(from, count, g.visits)
	total := g.bound
	v := b.Iota(graph.T(dtype.S32, g.visits+1), 0)
	g.tile = graph.Min(g.tile, num(tiles-1))
	g.lhsTile = g.tile
	if all {
		head := graph.Div(graph.Min(first, num(M)), num(size)) // tiles before any group
		end := graph.Squeeze(graph.SliceDim(ends, 0, E-1, E), 0)
		used := graph.Select(graph.Greater(end, first), up(end), head) // tiles before those after all groups
		rest := graph.Sub(v, total)
		empty := graph.Select(graph.Less(rest, head), rest, graph.Add(graph.Sub(rest, head), used))
		none := graph.GreaterEqual(v, total)
		g.tile = graph.Min(graph.Select(none, empty, g.tile), num(tiles-1))
		g.lhsTile = graph.Select(none, graph.Max(graph.Sub(used, num(1)), num(0)), g.lhsTile)
		g.bound = graph.Add(total, graph.Add(head, graph.Sub(num(tiles), used)))
	}
	return g
}

// visit lays out, item by item, count[i] visits to consecutive tiles from from[i]
// on, at most most in all: how many there are, and each one's item and tile. Visits
// there are not, one of which always follows, have the number of items as item.
func visit(from, count *graph.Value, most int) (total, item, tile *graph.Value) {
	b, E, n := from.Builder(), from.Dim(0), most+1
	after := graph.Cumsum(count, 0) // visits up to the end of each item
	before := graph.Sub(after, count)
	spread := func(x *graph.Value) *graph.Value { return graph.BroadcastInDim(x, []int{n, E}, []int{1}) }
	at := b.Iota(graph.T(dtype.S32, n, E), 0)
	past := graph.LessEqual(spread(after), at)
	mine := graph.And(graph.LessEqual(spread(before), at), graph.Not(past))
	shift := graph.Sum(graph.Select(mine, spread(graph.Sub(from, before)), b.Int(dtype.S32, 0)), 1)
	tile = graph.Add(b.Iota(graph.T(dtype.S32, n), 0), shift)
	return graph.Sum(count), graph.Sum(graph.Convert(past, dtype.S32), 1), tile
}
