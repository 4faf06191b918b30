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
	whole := func(x *graph.Value) *graph.Value { return sequenceOrder(a.g.Gather(x, 1), n) }
	chunks := ownChunks(p.device, n)
	all := piece{q: p.q, k: whole(p.k), v: whole(p.v), chunks: &chunks}
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
		grads[i] = a.g.Scatter(deviceOrder(grads[i], a.g.Devices()), 1)
	}
	return grads
}

// sequenceOrder puts dimension 1 of x, the parts that HeadTail gives n devices
// one after the other, into the order of the sequence.
func sequenceOrder(x *graph.Value, n int) *graph.Value {
	shape := x.Shape()
	chunk := shape[1] / (2 * n)
	x = graph.Reshape(x, append([]int{shape[0], n, 2, chunk}, shape[2:]...)...)
	heads, tails := graph.SliceDim(x, 2, 0, 1), graph.SliceDim(x, 2, 1, 2)
	return graph.Reshape(graph.Concat(1, heads, graph.Reverse(tails, 1)), shape...)
}

// deviceOrder undoes sequenceOrder.
func deviceOrder(x *graph.Value, n int) *graph.Value {
	shape := x.Shape()
	chunk := shape[1] / (2 * n)
	x = graph.Reshape(x, append([]int{shape[0], 2 * n, 1, chunk}, shape[2:]...)...)
	heads, tails := graph.SliceDim(x, 1, 0, n), graph.SliceDim(x, 1, n, 2*n)
	return graph.Reshape(graph.Concat(2, heads, graph.Reverse(tails, 1)), shape...)
}
