package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// boundedFFN lets every expert take from each device at most factor times its share
// of that device's rows, N·k/E (GShard, Lepikhin et al., 2020): what comes later is
// dropped, and adds nothing. All sizes are known before, so that experts are plain
// batched products and, where devices share them out, one exchange each way.
type boundedFFN struct {
	experts, topK int
	factor        float64
	place         Placement
}

// room is how many of so many pairs of row and expert an expert takes.
func (g boundedFFN) room(pairs int) int {
	return min(pairs, max(1, int(math.Ceil(g.factor*float64(pairs)/float64(g.experts)))))
}

func (g boundedFFN) apply(x, weights, experts *graph.Value, stored []*graph.Value) (y, dropped *graph.Value) {
	b, D, E := x.Builder(), x.Dim(1), g.experts
	pairs := x.Dim(0) * g.topK
	room := g.room(pairs)
	one := func(n int) *graph.Value { return b.Int(dtype.S32, int64(n)) }
	flat := graph.Reshape(experts, pairs)
	_, counts, rank := countRows(flat, E)
	number := b.Iota(graph.T(dtype.S32, pairs), 0)
	kept := graph.Less(rank, one(room))
	// A dropped pair has a place of its own behind all others.
	slot := graph.Select(kept, graph.Add(graph.Mul(flat, one(room)), rank), graph.Add(number, one(E*room)))
	pair := graph.IndexUpdate(b.Full(graph.T(dtype.S32, E*room), -1), slot, number, 0, graph.UniqueIndices())
	s := seats{
		topK: g.topK, slot: slot, kept: graph.Convert(kept, dtype.F32),
		pair: graph.Max(pair, one(0)), filled: graph.Convert(graph.GreaterEqual(pair, one(0)), dtype.F32),
	}

	group := g.place.Experts()
	rows := graph.Name(group.Exchange(graph.Reshape(s.spread(x), E, room, D), 0, 1), NameExpertIn) // [experts here, devices·room, D]
	var w ffn
	for i, n := range expertNames {
		w[i] = graph.Name(g.place.Weight(stored[i], n), NameWeights)
	}
	gate := graph.Name(graph.Einsum("ecd,edf->ecf", rows, w[0]), NameGate)
	up := graph.Name(graph.Einsum("ecd,edf->ecf", rows, w[1]), NameUp)
	rows = graph.Einsum("ecf,efd->ecd", graph.Mul(graph.Silu(gate), up), w[2])
	y = s.collect(graph.Name(graph.Reshape(group.Exchange(rows, 1, 0), E*room, D), NameExpertOut), weights)

	over := graph.Sum(graph.Convert(graph.Max(graph.Sub(counts, one(room)), one(0)), dtype.F32))
	return y, graph.MulScalar(over, 1/float64(g.place.Tensor().Devices())) // these hold the same rows
}

// seats says where pairs of row and expert are in a buffer of M rows: P pairs, k for
// each row.
type seats struct {
	topK   int
	slot   *graph.Value // s32 [P]: outside for a pair that is dropped
	kept   *graph.Value // f32 [P]: 1 for one that is not
	pair   *graph.Value // s32 [M]
	filled *graph.Value // f32 [M]: 1 where there is a pair
}

func (s seats) list() []*graph.Value { return []*graph.Value{s.slot, s.kept, s.pair, s.filled} }

func (s seats) of(v []*graph.Value) seats { return seats{s.topK, v[0], v[1], v[2], v[3]} }

// seated takes, of values of every row, those of the rows that have the seats.
func (s seats) seated(x *graph.Value) *graph.Value {
	return graph.Take(x, graph.Div(s.pair, s.pair.Builder().Int(dtype.S32, int64(s.topK))), 0)
}

// picked takes from a buffer [M, D] what is in the seats of every row, f32 [N, k, D].
func (s seats) picked(buffer *graph.Value) *graph.Value {
	x := graph.Mul(graph.Convert(graph.Take(buffer, s.slot, 0), dtype.F32), graph.ExpandDims(s.kept, -1))
	return graph.Reshape(x, s.slot.Dim(0)/s.topK, s.topK, buffer.Dim(1))
}

// spread puts rows [N, D] into their seats [M, D]. Its derivative takes them from
// there again, which costs less than adding into rows.
func (s seats) spread(x *graph.Value) *graph.Value {
	d := x.DType()
	return graph.CustomVJP(append([]*graph.Value{x}, s.list()...),
		func(a []*graph.Value) (outs, residuals []*graph.Value) {
			s := s.of(a[1:])
			y := graph.Mul(s.seated(a[0]), graph.Convert(graph.ExpandDims(s.filled, -1), d))
			return []*graph.Value{y}, a[1:]
		},
		func(res, cts []*graph.Value) []*graph.Value {
			dx := graph.Convert(graph.Sum(s.of(res).picked(cts[0]), 1), d)
			return []*graph.Value{dx, nil, nil, nil, nil}
		})[0]
}

// collect adds up by weights f32 [N, k] what is in the seats [M, D] of every row.
func (s seats) collect(buffer, weights *graph.Value) *graph.Value {
	d := buffer.DType()
	return graph.CustomVJP(append([]*graph.Value{buffer, weights}, s.list()...),
		func(a []*graph.Value) (outs, residuals []*graph.Value) {
			y := graph.Sum(graph.Mul(s.of(a[2:]).picked(a[0]), graph.ExpandDims(a[1], -1)), 1)
			return []*graph.Value{graph.Convert(y, d)}, a
		},
		func(res, cts []*graph.Value) []*graph.Value {
			s, weights := s.of(res[2:]), res[1]
			ct := graph.Convert(cts[0], dtype.F32)
			share := graph.Mul(graph.Take(graph.Reshape(weights, s.slot.Dim(0)), s.pair, 0), s.filled)
			dy := graph.Convert(graph.Mul(s.seated(ct), graph.ExpandDims(share, -1)), d)
			dw := graph.Sum(graph.Mul(s.picked(res[0]), graph.ExpandDims(ct, 1)), -1)
			return []*graph.Value{dy, dw, nil, nil, nil, nil}
		})[0]
}
