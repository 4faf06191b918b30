package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// exchangedFFN is groupedFFN for experts that are shared out over the devices of a
// group, each of which has rows of its own: rows go to their experts' devices and
// what these make of them comes back, both by all-to-all. Nothing is dropped
// although buffers have a fixed size: a device sends at most room rows to each
// other in a round, and there are as many rounds as the busiest pair of devices
// needs, one as a rule.
//
// For the backward pass only the rows that devices have anyway are kept. They are
// sent again, together with their cotangents, and experts compute again what they
// need of the forward pass, which are two products of the three: a row's gradient
// by its weight is ⟨h, ct·Wdᵀ⟩, h being what the down matrix Wd is multiplied with.
type exchangedFFN struct {
	groupedFFN
	group Group   // shares out the experts
	all   Group   // devices that make equally many rounds
	room  float64 // rows that fit into a device's buffers, over those it sends
}

// DefaultExpertBuffer is the room for rows of other devices, over the mean that
// arrive. All of a buffer travels, so that it costs time where it is empty, and
// another round costs as much as the whole buffer once more where it is too small:
// 1.5 is more than devices exceed the mean by once experts are roughly balanced,
// since a device has several experts and gets the mean of their loads.
const DefaultExpertBuffer = 1.5

// ExpertRoom is how many of a device's pairs of token and expert go to one other of n
// devices in a round: room (0 is DefaultExpertBuffer) over their share, in whole rows
// of the memory's tiles.
func ExpertRoom(pairs, n int, room float64) int {
	const step = 8
	if room == 0 {
		room = DefaultExpertBuffer
	}
	each := int(math.Ceil(room * float64(pairs) / float64(n)))
	return min(pairs, (max(each, 1)+step-1)/step*step)
}

// traffic says which pairs of row and expert go where: all s32, P pairs, n devices
// with e experts each.
type traffic struct {
	order   *graph.Value // [P]: the pairs sorted by expert, and so by device
	start   *graph.Value // [n]: where a device's begin in order
	count   *graph.Value // [n]: how many there are
	device  *graph.Value // [P]: where a pair goes
	rank    *graph.Value // [P]: how many go there before it
	arrived *graph.Value // [n, e]: how many rows come from each device for each expert
	rounds  *graph.Value // scalar
}

const trafficArrays = 7

func (t traffic) list() []*graph.Value {
	return []*graph.Value{t.order, t.start, t.count, t.device, t.rank, t.arrived, t.rounds}
}

func trafficOf(v []*graph.Value) traffic {
	return traffic{v[0], v[1], v[2], v[3], v[4], v[5], v[6]}
}

// plan finds out where pairs go; experts s32 [P].
func (g exchangedFFN) plan(experts *graph.Value, room int) traffic {
	b := experts.Builder()
	n, E := g.group.Devices(), g.experts
	one := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	by := g.sort(experts)
	t := traffic{order: by.order, count: graph.Sum(graph.Reshape(by.counts, n, E/n), -1), device: graph.Div(experts, one(E/n))}
	t.start = graph.Cumsum(t.count, 0, graph.Exclusive())
	t.rank = graph.Sub(by.place, stepped(t.device, b.Iota(graph.T(dtype.S32, n), 0), t.start))
	t.arrived = g.group.Exchange(graph.Reshape(by.counts, n, E/n), 0, 0)
	busiest := g.all.Max(graph.ReduceMax(t.count, 0))
	t.rounds = graph.Div(graph.Add(busiest, one(room-1)), one(room))
	return t
}

// round is the traffic of one round in which every device sends room rows, used or
// not, to each of n.
type round struct {
	traffic
	n, room int
	base    *graph.Value // rows to each device in the rounds before
}

func (t traffic) round(number *graph.Value, n, room int) round {
	return round{t, n, room, graph.Mul(number, number.Builder().Int(dtype.S32, int64(room)))}
}

// places are the numbers, s32 [n, room], of the rows for a device among all for it.
func (r round) places() *graph.Value {
	return graph.Add(r.base.Builder().Iota(graph.T(dtype.S32, r.n, r.room), 1), r.base)
}

// pairs are those that are sent, s32 [n·room]; any where there are fewer.
func (r round) pairs() *graph.Value {
	last := r.base.Builder().Int(dtype.S32, int64(r.order.Dim(0)-1))
	at := graph.Min(graph.Add(r.places(), graph.ExpandDims(r.start, -1)), last)
	return graph.Take(r.order, graph.Reshape(at, r.n*r.room), 0)
}

// experts are those, s32 [n·room], that the rows that arrive are for, by their
// number on this device; one more than there are where no row is.
func (r round) experts() *graph.Value {
	end := graph.Cumsum(r.arrived, 1)
	past := graph.GreaterEqual(graph.ExpandDims(r.places(), -1), graph.ExpandDims(end, 1)) // [n, room, e]
	return graph.Reshape(graph.Sum(graph.Convert(past, dtype.S32), -1), r.n*r.room)
}

// lay lays out the n·room rows that arrive.
func (g exchangedFFN) lay(r round, expected int) layout {
	local, rows := g.experts/r.n, r.n*r.room
	if g.kernels == nil {
		return layBlocks(r.experts(), local, blockRows(g.block, expected, local), expected)
	}
	b := r.base.Builder()
	// A device's rows for one expert are consecutive, and there are few such runs: where
	// they begin says where each row goes, and what is at each place.
	end := graph.Cumsum(r.arrived, 1)
	inRound := func(x *graph.Value) *graph.Value { // a number among all rows from a device, as one of this round
		return graph.Max(graph.Min(graph.Sub(x, r.base), b.Int(dtype.S32, int64(r.room))), b.Int(dtype.S32, 0))
	}
	from := inRound(graph.Sub(end, r.arrived))
	count := graph.Sub(inRound(end), from)
	from = graph.Add(from, graph.Mul(b.Iota(graph.T(dtype.S32, r.n, local), 0), b.Int(dtype.S32, int64(r.room))))
	byExpert := func(x *graph.Value) *graph.Value { return graph.Reshape(graph.Transpose(x, 1, 0), local*r.n) }
	counts := byExpert(count)
	to := graph.Cumsum(counts, 0, graph.Exclusive())
	shift := graph.Sub(to, byExpert(from))
	byDevice := graph.Reshape(graph.Transpose(graph.Reshape(shift, local, r.n), 1, 0), r.n*local)
	at := b.Iota(graph.T(dtype.S32, rows), 0)
	slot := graph.Add(at, stepped(at, graph.Reshape(from, r.n*local), byDevice))
	row := graph.Sub(at, stepped(at, to, shift))
	return layout{slot, row, expertTiles{graph.Sum(count, 0), g.options(min(expected, rows))}}
}

// returned are the places, s32 [P], of pairs among what comes back, and 1 or 0, f32
// [P], for whether it does in this round.
func (r round) returned() (slot, here *graph.Value) {
	b := r.base.Builder()
	one := func(x int) *graph.Value { return b.Int(dtype.S32, int64(x)) }
	rank := graph.Sub(r.rank, r.base)
	in := graph.And(graph.GreaterEqual(rank, one(0)), graph.Less(rank, one(r.room)))
	rank = graph.Max(graph.Min(rank, one(r.room-1)), one(0))
	return graph.Add(graph.Mul(r.device, one(r.room)), rank), graph.Convert(in, dtype.F32)
}

// everyRound runs body for round 0 and, in a loop, for those that follow if there
// are any; body adds to sums, which are nil at first.
func (t traffic) everyRound(n, room int, body func(r round, sums []*graph.Value) []*graph.Value) []*graph.Value {
	b := t.rounds.Builder()
	one := b.Int(dtype.S32, 1)
	sums := body(t.round(b.Int(dtype.S32, 0), n, room), nil)
	return b.While(append([]*graph.Value{one}, sums...),
		func(c []*graph.Value) *graph.Value { return graph.Less(c[0], t.rounds) },
		func(c []*graph.Value) []*graph.Value {
			return append([]*graph.Value{graph.Add(c[0], one)}, body(t.round(c[0], n, room), c[1:])...)
		}, graph.ExpectedTrips(0))[1:] // if experts are balanced
}

// apply is groupedFFN.apply; experts are numbers of all experts, stored the
// matrices of this device's.
func (g exchangedFFN) apply(x, weights, experts *graph.Value, stored []*graph.Value) (y, dropped *graph.Value) {
	b, N, k := x.Builder(), x.Dim(0), g.topK
	n := g.group.Devices()
	room := ExpertRoom(N*k, n, g.room)
	token := func(pair *graph.Value) *graph.Value { return graph.Div(pair, b.Int(dtype.S32, int64(k))) }
	send := func(v *graph.Value) *graph.Value { return g.group.Exchange(v, 0, 0) }
	plus := func(sums []*graph.Value, i int, v *graph.Value) *graph.Value {
		if sums == nil {
			return v
		}
		return graph.Add(sums[i], v)
	}

	forward := func(a []*graph.Value) (outs, residuals []*graph.Value) {
		x, weights, t, w := a[0], a[1], trafficOf(a[2:]), g.gather(a[2+trafficArrays:])
		d := x.DType()
		sums := t.everyRound(n, room, func(r round, sums []*graph.Value) []*graph.Value {
			rows := send(graph.Take(x, token(r.pairs()), 0))
			l := g.lay(r, N*k) // as many arrive as are sent, in the mean
			ys, _, _ := l.by.forward(graph.Take(rows, l.row, 0), w)
			back := send(graph.Take(ys, l.slot, 0))
			slot, here := r.returned()
			share := graph.Mul(weights, graph.Reshape(here, N, k))
			return []*graph.Value{plus(sums, 0, sumOfChoices(back, slot, share))}
		})
		return []*graph.Value{graph.Convert(sums[0], d)}, a
	}
	backward := func(res, cts []*graph.Value) []*graph.Value {
		x, weights, t, w := res[0], res[1], trafficOf(res[2:]), g.gather(res[2+trafficArrays:])
		d := x.DType()
		ct, flat := graph.Convert(cts[0], d), graph.Reshape(weights, N*k)
		sums := t.everyRound(n, room, func(r round, sums []*graph.Value) []*graph.Value {
			pairs := r.pairs()
			at := token(pairs)
			l := g.lay(r, N*k)
			sent := func(v, at *graph.Value) *graph.Value { return graph.Take(send(graph.Take(v, at, 0)), l.row, 0) }
			var before ffn
			if sums != nil {
				before = ffn(sums[2:])
			}
			dxs, dshares, grads := l.by.backward(sent(x, at), sent(ct, at), sent(flat, pairs), nil, nil, w, before)
			backRows, backShares := send(graph.Take(dxs, l.slot, 0)), send(graph.Take(dshares, l.slot, 0))
			slot, here := r.returned()
			dw := graph.Mul(graph.Take(backShares, slot, 0), here)
			return append([]*graph.Value{
				plus(sums, 0, sumOfChoices(backRows, slot, graph.Reshape(here, N, k))), plus(sums, 1, graph.Reshape(dw, N, k)),
			}, grads[:]...)
		})
		none := make([]*graph.Value, trafficArrays)
		return append(append([]*graph.Value{graph.Convert(sums[0], d), sums[1]}, none...), g.scatter(ffn(sums[2:]))...)
	}
	args := []*graph.Value{x, weights}
	for _, v := range g.plan(graph.Reshape(experts, N*k), room).list() {
		args = append(args, graph.Name(v, NameRouter))
	}
	return graph.CustomVJP(append(args, stored...), forward, backward)[0], nil
}
