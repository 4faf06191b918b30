package decoder

import "titan/graph"

// gathered is attention to the keys and values of all devices, which are brought
// together first. The blocks that a query does not see are skipped: the numbers
// of iterations differ from device to device, their work does not.
type gathered struct {
	g      Group
	blocks blocks
}

// piece brings keys and values together, in the order of the sequence.
func (a gathered) piece(p part) piece {
	n := a.g.Devices()
	whole := func(x *graph.Value) *graph.Value { return sequenceOrder(a.g.Gather(graph.ExpandDims(x, 0), 0)) }
	chunks := ownChunks(p.device, n)
	all := piece{q: p.q, k: whole(p.k), v: whole(p.v), starts: p.starts, chunks: &chunks}
	if p.segments != nil {
		all.qSegments, all.kSegments = p.rows(p.segments), p.rows(whole(p.segments))
	}
	return all
}

func (a gathered) forward(p part) (out, lse *graph.Value) {
	return a.blocks.forward(a.piece(p), graph.F32)
}

// backward brings keys and values together again, rather than to hold them.
func (a gathered) backward(p part, lse, delta, ct *graph.Value) []*graph.Value {
	grads := a.blocks.backward(a.piece(p), lse, delta, ct)
	for i := 1; i < 3; i++ {
		grads[i] = graph.Squeeze(a.g.Scatter(deviceOrder(grads[i], a.g.Devices()), 0), 0)
	}
	return grads
}

// Devices exchange along a dimension 0 of their own: along another one, XLA's TPU
// compiler makes a reduce-scatter an all-reduce of which it keeps a part (seen in
// libtpu 0.0.52).

// sequenceOrder puts the parts [n, G, 2c, …] that HeadTail gives n devices into
// the order of the sequence: [G, S, …].
func sequenceOrder(x *graph.Value) *graph.Value {
	shape := x.Shape() // n, G, 2c, …
	n, rest := shape[0], shape[3:]
	x = graph.Reshape(x, append([]int{n, shape[1], 2, shape[2] / 2}, rest...)...)
	heads, tails := graph.SliceDim(x, 2, 0, 1), graph.Reverse(graph.SliceDim(x, 2, 1, 2), 0)
	x = swap(graph.Squeeze(graph.Concat(0, heads, tails), 2))
	return graph.Reshape(x, append([]int{shape[1], n * shape[2]}, rest...)...)
}

// deviceOrder undoes sequenceOrder.
func deviceOrder(x *graph.Value, n int) *graph.Value {
	shape := x.Shape() // G, S, …
	chunk, rest := shape[1]/(2*n), shape[2:]
	x = swap(graph.Reshape(x, append([]int{shape[0], 2 * n, chunk}, rest...)...))
	heads, tails := graph.SliceDim(x, 0, 0, n), graph.Reverse(graph.SliceDim(x, 0, n, 2*n), 0)
	return graph.Concat(2, heads, tails)
}

// swap exchanges dimensions 0 and 1.
func swap(x *graph.Value) *graph.Value {
	perm := make([]int, x.Rank())
	for i := range perm {
		perm[i] = i
	}
	perm[0], perm[1] = 1, 0
	return graph.Transpose(x, perm...)
}
