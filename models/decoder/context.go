package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// HeadTail takes this device's part of dimension dim of x, whole sequences of S
// tokens: with n devices the sequence is cut into 2n equal chunks, and device i
// has chunks i and 2n-1-i, one after the other. Under a causal mask a chunk costs
// as much as there are tokens before it, so that every device has equal work. S
// must be a multiple of 2n; a group of one device has all of x.
func HeadTail(x *graph.Value, dim int, g Group) *graph.Value {
	if g.Alone() {
		return x
	}
	b, n := x.Builder(), g.Devices()
	chunk := x.Dim(dim) / (2 * n)
	i := g.Index(b)
	take := func(number *graph.Value) *graph.Value {
		return graph.DynamicSliceDim(x, dim, graph.Mul(number, b.Int(dtype.S32, int64(chunk))), chunk)
	}
	return graph.Concat(dim, take(i), take(graph.Sub(b.Int(dtype.S32, int64(2*n-1)), i)))
}
