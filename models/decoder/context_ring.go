package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// ring is attention by ring (Liu et al., 2023), balanced for causal masks: in
// step s of n-1 a device meets the keys and values of the device s places before
// it, while it passes on what it will not need again.
//
// Of device j's chunks, device i sees the first with all its queries if j comes
// before i, and both with the queries of its second chunk if j comes after. Either
// way that is two pairs of a chunk of queries and one of keys, with no mask: the
// second with the first, and first with first or second with second. So all
// devices do the same in every step and nothing in vain. Its own keys a device
// sees as one sequence.
type ring struct {
	g          Group
	own, pairs blocks // for the device's own keys, and for two pairs at once
}

// send passes xs on to the next device and returns what comes from the one before.
func (r ring) send(xs []*graph.Value) []*graph.Value {
	out := make([]*graph.Value, len(xs))
	for i, x := range xs {
		out[i] = r.g.Next(x, 1)
	}
	return out
}

// round calls visit for steps 1 to n-1, with the keys and values kv that arrive
// in step 1 and those that follow, and what it returned before; acc at first. They
// are passed on before they are visited: neither waits for the other. All but the
// last step are a loop, so that the program does not grow with n.
func (r ring) round(kv, acc []*graph.Value, visit func(step *graph.Value, kv, acc []*graph.Value) []*graph.Value) []*graph.Value {
	b, n := kv[0].Builder(), r.g.Devices()
	if n > 2 {
		steps := graph.Add(blockNumbers(b, n-2), b.Int(dtype.S32, 1))
		init := append(append([]*graph.Value(nil), kv...), acc...)
		all, _ := b.Scan(init, []*graph.Value{steps}, func(c, x []*graph.Value) (next, ys []*graph.Value) {
			now := c[:len(kv)]
			return append(r.send(now), visit(x[0], now, c[len(kv):])...), nil
		})
		kv, acc = all[:len(kv)], all[len(kv):]
	}
	return visit(b.Int(dtype.S32, int64(n-1)), kv, acc)
}

// travels returns what goes round the ring.
func (p part) travels() []*graph.Value {
	kv := []*graph.Value{p.k, p.v}
	if p.segments != nil {
		kv = append(kv, p.segments)
	}
	return kv
}

// own is attention of the device's tokens to each other: of its two chunks the
// first lies before the second.
func (p part) own(n int) piece {
	own := piece{q: p.q, k: p.k, v: p.v}
	if p.segments != nil {
		own.qSegments = p.rows(p.segments)
		own.kSegments = own.qSegments
	}
	if p.starts != nil { // how many of the device's keys come before them
		b, chunk := p.starts.Builder(), p.k.Dim(1)/2
		var before *graph.Value
		for _, number := range ownChunks(p.device, n) {
			x := graph.Sub(p.starts, graph.Mul(number, b.Int(dtype.S32, int64(chunk))))
			x = graph.Min(graph.Max(x, b.Int(dtype.S32, 0)), b.Int(dtype.S32, int64(chunk)))
			if before != nil {
				x = graph.Add(before, x)
			}
			before = x
		}
		own.starts = before
	}
	return own
}

// step is what a device does in one step of the ring.
type step struct {
	part
	chunk int
	at    *graph.Value // where the chunks of the second pair start: 0 or chunk
	// keysAt are the places in the sequence where the keys of both pairs start.
	keysAt [2]*graph.Value
}

func (p part) step(number *graph.Value, n int) step {
	b, chunk := number.Builder(), p.k.Dim(1)/2
	num := func(n int) *graph.Value { return b.Int(dtype.S32, int64(n)) }
	before := graph.GreaterEqual(p.device, number) // the keys' device lies before this one
	s := step{part: p, chunk: chunk, at: graph.Select(before, num(0), num(chunk))}
	if p.starts != nil {
		device := graph.Sub(p.device, number)
		chunks := ownChunks(graph.Select(before, device, graph.Add(device, num(n))), n)
		chunks[1] = graph.Select(before, chunks[0], chunks[1])
		for i, c := range chunks {
			s.keysAt[i] = graph.Mul(c, num(chunk))
		}
	}
	return s
}

// queries takes the chunks of both pairs' queries along dim and lays them one
// after the other along dimension 0.
func (s step) queries(x *graph.Value, dim int) *graph.Value {
	return graph.Concat(0, graph.SliceDim(x, dim, s.chunk, 2*s.chunk), graph.DynamicSliceDim(x, dim, s.at, s.chunk))
}

// keys is queries for the keys' side.
func (s step) keys(x *graph.Value, dim int) *graph.Value {
	return graph.Concat(0, graph.SliceDim(x, dim, 0, s.chunk), graph.DynamicSliceDim(x, dim, s.at, s.chunk))
}

// piece is the attention of both pairs.
func (s step) piece(kv []*graph.Value) piece {
	p := piece{q: s.queries(s.q, 2), k: s.keys(kv[0], 1), v: s.keys(kv[1], 1), all: true}
	if s.segments != nil {
		p.qSegments, p.kSegments = s.queries(s.rows(s.segments), 1), s.keys(s.rows(kv[2]), 1)
	}
	if s.starts != nil {
		pairs := graph.Split(s.queries(s.starts, 1), 0, 2)
		p.starts = graph.Concat(0, graph.Sub(pairs[0], s.keysAt[0]), graph.Sub(pairs[1], s.keysAt[1]))
	}
	return p
}

// change replaces the chunk of xs that starts at at, along dim, by what f makes
// of it.
func (s step) change(xs []*graph.Value, dim int, at *graph.Value, f func(xs []*graph.Value) []*graph.Value) []*graph.Value {
	old := make([]*graph.Value, len(xs))
	for i, x := range xs {
		old[i] = graph.DynamicSliceDim(x, dim, at, s.chunk)
	}
	out := make([]*graph.Value, len(xs))
	for i, y := range f(old) {
		out[i] = graph.DynamicUpdateSliceDim(xs[i], y, dim, at)
	}
	return out
}

// add adds the parts of both pairs, ys as queries and keys lay them, to x, where
// the chunk of the first pair starts at first.
func (s step) add(x, ys *graph.Value, dim, first int) *graph.Value {
	for i, y := range graph.Split(ys, 0, 2) {
		at := s.at
		if i == 0 {
			at = x.Builder().Int(dtype.S32, int64(first))
		}
		x = s.change([]*graph.Value{x}, dim, at, func(x []*graph.Value) []*graph.Value {
			return []*graph.Value{graph.Add(x[0], y)}
		})[0]
	}
	return x
}

func (r ring) forward(p part) (out, lse *graph.Value) {
	kv := r.send(p.travels())
	out, lse = r.own.forward(p.own(r.g.Devices()), dtype.F32)
	acc := r.round(kv, []*graph.Value{out, lse}, func(number *graph.Value, kv, acc []*graph.Value) []*graph.Value {
		s := p.step(number, r.g.Devices())
		out, lse := r.pairs.forward(s.piece(kv), dtype.F32)
		outs, lses := graph.Split(out, 0, 2), graph.Split(lse, 0, 2)
		for i, at := range []*graph.Value{number.Builder().Int(dtype.S32, int64(s.chunk)), s.at} {
			acc = s.change(acc, 2, at, func(old []*graph.Value) []*graph.Value {
				return merge(old[0], old[1], outs[i], lses[i])
			})
		}
		return acc
	})
	return acc[0], acc[1]
}

// merge puts attention to some keys and attention to others together: outputs
// [G, R, Q, h] and logarithms of the denominators [G, R, Q], all in f32.
func merge(out1, lse1, out2, lse2 *graph.Value) []*graph.Value {
	most := graph.Max(lse1, lse2)
	w1, w2 := graph.Exp(graph.Sub(lse1, most)), graph.Exp(graph.Sub(lse2, most))
	sum := graph.Add(w1, w2)
	weigh := func(out, w *graph.Value) *graph.Value {
		return graph.Mul(out, graph.ExpandDims(graph.Div(w, sum), 3))
	}
	return []*graph.Value{graph.Add(weigh(out1, w1), weigh(out2, w2)), graph.Add(most, graph.Log(sum))}
}

// backward takes keys and values round once more, and behind them, one step
// later, the cotangents that they have gathered so far: they too are passed on
// while the next part of them is computed, and come home in the end.
func (r ring) backward(p part, lse, delta, ct *graph.Value) []*graph.Value {
	kv := r.send(p.travels())
	acc := r.round(kv, r.own.backward(p.own(r.g.Devices()), lse, delta, ct), func(number *graph.Value, kv, acc []*graph.Value) []*graph.Value {
		behind := r.send(acc[1:])
		s := p.step(number, r.g.Devices())
		grads := r.pairs.backward(s.piece(kv), s.queries(lse, 2), s.queries(delta, 2), s.queries(ct, 2))
		return []*graph.Value{
			s.add(acc[0], grads[0], 2, s.chunk), s.add(behind[0], grads[1], 1, 0), s.add(behind[1], grads[2], 1, 0),
		}
	})
	return append(acc[:1], r.send(acc[1:])...)
}
