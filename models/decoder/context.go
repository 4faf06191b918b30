package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// The ways of AttentionOptions.Context.
const (
	ContextRing      = "ring"
	ContextAllGather = "allgather"
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
	if x.Dim(dim)%(2*n) != 0 {
		b.Fail("sequences of %d tokens cannot be shared out among %d devices, which take two equal chunks each; make the length a multiple of %d", x.Dim(dim), n, 2*n)
	}
	chunk := x.Dim(dim) / (2 * n)
	take := func(number *graph.Value) *graph.Value {
		return graph.DynamicSliceDim(x, dim, graph.Mul(number, b.Int(dtype.S32, int64(chunk))), chunk)
	}
	numbers := ownChunks(g.Index(b), n)
	return graph.Concat(dim, take(numbers[0]), take(numbers[1]))
}

// ownChunks returns the numbers of device i's chunks of 2n.
func ownChunks(i *graph.Value, n int) [2]*graph.Value {
	return [2]*graph.Value{i, graph.Sub(i.Builder().Int(dtype.S32, int64(2*n-1)), i)}
}

// mostContextBlocks is how many blocks of a device's queries are written out at
// most. Whole blocks of other devices' keys are never in the future, so there is
// little to gain by it.
const mostContextBlocks = 4

// contextBlock is the size of blocks in a chunk. Large ones suit TPUs: of chunks
// of 8192 on eight v5e, XLA's compiler (libtpu 0.0.52) estimates those of 256 at
// half the cycles of those of 128, of 512 at a third, of 1024 at little less.
func (o AttentionOptions) contextBlock(chunk int) int {
	if o.Block <= 0 {
		for _, size := range []int{512, 256} {
			if chunk%size == 0 {
				return size
			}
		}
	}
	return o.blockSize(chunk)
}

// contextAttention is attention of sequences whose tokens are shared out among
// the devices of g as HeadTail does: q [B, S/n, H, h], k and v [B, S/n, K, h],
// segments s32 [B, S/n] or nil, as for attention, are this device's parts, and so is
// the result. No device holds scores of more than a block of queries and keys at
// once.
func contextAttention(q, k, v, segments *graph.Value, g Group, o AttentionOptions, tiled *tiledBlocks) *graph.Value {
	if g.Alone() {
		return attention(q, k, v, segments, o, tiled)
	}
	b := q.Builder()
	B, L, H, K := q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)
	if L%2 != 0 {
		b.Fail("context parallel attention of %d tokens a device: there must be two equal chunks", L)
	}
	chunk := L / 2
	size := o.contextBlock(chunk)
	static := o.Context != ContextAllGather && chunk <= mostContextBlocks/2*size
	// Chunks that blocks do not divide are filled up with tokens of a segment of
	// their own.
	fill := 0
	if !static && tiled == nil {
		fill = (size - chunk%size) % size
	}
	if fill > 0 && segments == nil {
		segments = b.Zeros(graph.T(dtype.S32, B, L))
	}
	args := toRows(fillChunks(q, 1, fill, 0), fillChunks(k, 1, fill, 0), fillChunks(v, 1, fill, 0))
	args = append(args, g.Index(b))
	if segments != nil {
		args = append(args, fillChunks(segments, 1, fill, math.MinInt32))
	}

	in := func(rows int) blocks {
		switch {
		case tiled != nil:
			return tiled
		case static:
			return o.grouped(staticBlocks{size}, rows, H/K)
		}
		return o.grouped(loopedBlocks{size}, rows, H/K)
	}
	var d distributed
	switch o.Context {
	case "", ContextRing:
		d = ring{g, in(B * K), in(2 * B * K)}
	case ContextAllGather:
		d = gathered{g, in(B * K)}
	default:
		b.Fail("context parallel attention %q; there are %q and %q", o.Context, ContextRing, ContextAllGather)
	}
	out := graph.CustomVJP(args,
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			out, lse := d.forward(ownPart(args, tiled != nil))
			out, lse = graph.Name(graph.Convert(out, args[2].DType()), NameAttnOut), graph.Name(lse, NameAttnOut)
			return []*graph.Value{out}, append(append([]*graph.Value(nil), args...), out, lse)
		},
		func(residuals, cts []*graph.Value) []*graph.Value {
			n := len(residuals) - 2
			p := ownPart(residuals[:n], tiled != nil)
			delta := rowProducts(residuals[n], cts[0])
			grads := d.backward(p, residuals[n+1], delta, graph.Convert(cts[0], p.v.DType()))
			for i, g := range grads {
				grads[i] = graph.Convert(g, residuals[i].DType())
			}
			return append(grads, make([]*graph.Value, n-3)...)
		})[0]
	return dropFill(fromRows(out, B), 1, fill)
}

// distributed is attention of one device's part of sequences to all of them.
type distributed interface {
	// forward returns output and logarithms of the denominators, in f32.
	forward(p part) (out, lse *graph.Value)
	// backward returns the cotangents of this device's q, k and v, in f32. ct
	// has the type of v.
	backward(p part, lse, delta, ct *graph.Value) []*graph.Value
}

// part is what one device has: its two chunks of every sequence, in rows.
type part struct {
	q, k, v  *graph.Value // [G, R, L, h], [G, L, h], [G, L, h]
	device   *graph.Value // its place in the group
	segments *graph.Value // s32 [B, L] or nil
	starts   *graph.Value // instead of segments, for tiledBlocks: places in the sequence
}

func ownPart(args []*graph.Value, tiled bool) part {
	p := part{q: args[0], k: args[1], v: args[2], device: args[3]}
	switch {
	case len(args) > 4 && tiled:
		p.starts = args[4]
	case len(args) > 4:
		p.segments = args[4]
	}
	return p
}

// rows repeats segments for every row.
func (p part) rows(segments *graph.Value) *graph.Value {
	return segmentRows(segments, p.k.Dim(0)/segments.Dim(0))
}

// fillChunks makes both chunks along dim longer by n elements of value with.
func fillChunks(x *graph.Value, dim, n int, with int64) *graph.Value {
	if n == 0 {
		return x
	}
	b, shape := x.Builder(), x.Shape()
	value := graph.Convert(b.Int(dtype.S32, with), x.DType())
	var halves []*graph.Value
	for _, half := range graph.Split(x, dim, 2) {
		high := make([]int, len(shape))
		high[dim] = n
		none := make([]int, len(shape))
		halves = append(halves, graph.Pad(half, value, none, high, none))
	}
	return graph.Concat(dim, halves...)
}

// dropFill undoes fillChunks.
func dropFill(x *graph.Value, dim, n int) *graph.Value {
	if n == 0 {
		return x
	}
	var halves []*graph.Value
	for _, half := range graph.Split(x, dim, 2) {
		halves = append(halves, graph.SliceDim(half, dim, 0, half.Dim(dim)-n))
	}
	return graph.Concat(dim, halves...)
}
