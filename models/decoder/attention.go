package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
	"titan/kernels"
)

// AttentionOptions say how causal attention is cut into pieces. They change
// memory and speed, not results beyond rounding.
type AttentionOptions struct {
	// Block is the number of queries and keys treated at once; 0 chooses.
	Block int
	// Rows is how many heads (of all sequences) are treated at once, in a loop
	// over the rest; 0 takes all. CPUs are faster when a piece fits their cache.
	Rows int
	// Context is how devices that share out a sequence's tokens meet each other's
	// keys and values: ContextRing (or "") passes them round, ContextAllGather
	// brings all of them together on every device.
	Context string
	// Plain keeps to plain operations where the model has tile kernels; Tiles are the
	// sizes of these.
	Plain bool
	Tiles kernels.AttentionTiles
}

// masked is added to scores that must not count. It is far below any score, and
// finite, so that a row of nothing else stays free of NaN.
const masked = -1e30

// attention is causal softmax attention: q [B, S, H, h], k and v [B, S, K, h]
// with H a multiple of K; query head i reads key/value head i/(H/K). segments,
// s32 [B, S] or nil, keep queries to the keys of their own segment; for tile kernels
// they are what kernels.Starts makes of them. The result has the shape of q. Scores
// are computed and summed in f32.
//
// Neither direction holds S×S scores: the backward pass computes probabilities
// again from q, k and the logarithm of the softmax's denominator (Dao, 2023).
func attention(q, k, v, segments *graph.Value, o AttentionOptions, tiled *tiledBlocks) *graph.Value {
	B, S, H, K := q.Dim(0), q.Dim(1), q.Dim(2), k.Dim(2)
	args := toRows(q, k, v)
	var block blocks
	groups := 1
	switch {
	case tiled == nil:
		block, groups = o.block(S), o.groups(B*K, H/K)
		if segments != nil {
			segments = segmentRows(segments, K)
		}
	default:
		block = tiled
	}
	if segments != nil {
		args = append(args, segments)
	}
	run := func(args []*graph.Value) *graph.Value {
		return graph.CustomVJP(args,
			func(args []*graph.Value) (outs, residuals []*graph.Value) {
				out, lse := block.forward(ownPiece(args, tiled != nil), args[2].DType())
				out, lse = graph.Name(out, NameAttnOut), graph.Name(lse, NameAttnOut)
				return []*graph.Value{out}, append(append([]*graph.Value(nil), args...), out, lse)
			},
			func(residuals, cts []*graph.Value) []*graph.Value {
				n := len(residuals) - 2
				p := ownPiece(residuals[:n], tiled != nil)
				delta := rowProducts(residuals[n], cts[0])
				grads := block.backward(p, residuals[n+1], delta, graph.Convert(cts[0], p.v.DType()))
				for i, g := range grads {
					grads[i] = graph.Convert(g, residuals[i].DType())
				}
				return append(grads, make([]*graph.Value, n-3)...)
			})[0]
	}
	var out *graph.Value
	if groups > 1 {
		_, ys := q.Builder().Scan(nil, inGroups(groups, args), func(_, x []*graph.Value) (next, ys []*graph.Value) {
			return nil, []*graph.Value{run(x)}
		})
		out = graph.Reshape(ys[0], args[0].Shape()...)
	} else {
		out = run(args)
	}
	return fromRows(out, B)
}

// toRows makes rows of one key/value head of one sequence: q [B*K, H/K, S, h],
// times the scale of the scores, and k and v [B*K, S, h].
func toRows(q, k, v *graph.Value) []*graph.Value {
	B, S, H, h, K := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3), k.Dim(2)
	R := H / K
	q = graph.MulScalar(q, 1/math.Sqrt(float64(h)))
	return []*graph.Value{
		graph.Reshape(graph.Transpose(graph.Reshape(q, B, S, K, R, h), 0, 2, 3, 1, 4), B*K, R, S, h),
		graph.Reshape(graph.Transpose(k, 0, 2, 1, 3), B*K, S, h),
		graph.Reshape(graph.Transpose(v, 0, 2, 1, 3), B*K, S, h),
	}
}

// fromRows undoes toRows, for the output of B sequences.
func fromRows(out *graph.Value, B int) *graph.Value {
	K, R, S, h := out.Dim(0)/B, out.Dim(1), out.Dim(2), out.Dim(3)
	out = graph.Transpose(graph.Reshape(out, B, K, R, S, h), 0, 3, 1, 2, 4)
	return graph.Reshape(out, B, S, K*R, h)
}

// segmentRows repeats segments [B, S] for each of K key/value heads: [B*K, S].
func segmentRows(segments *graph.Value, K int) *graph.Value {
	B, S := segments.Dim(0), segments.Dim(1)
	return graph.Reshape(graph.BroadcastInDim(segments, []int{B, K, S}, []int{0, 2}), B*K, S)
}

// rowProducts is the sum of out·ct for every query, in f32: what the softmax's
// derivative subtracts.
func rowProducts(out, ct *graph.Value) *graph.Value {
	return graph.Sum(graph.Mul(graph.Convert(out, dtype.F32), graph.Convert(ct, dtype.F32)), 3)
}

// inGroups cuts the rows of every x into equal groups, along a new dimension 0.
func inGroups(groups int, xs []*graph.Value) []*graph.Value {
	out := make([]*graph.Value, len(xs))
	for i, x := range xs {
		out[i] = graph.Reshape(x, append([]int{groups, x.Dim(0) / groups}, x.Shape()[1:]...)...)
	}
	return out
}

// groups returns into how many equal groups rows are divided.
func (o AttentionOptions) groups(rows, repeat int) int {
	if o.Rows <= 0 {
		return 1
	}
	size := min(rows, max(1, o.Rows/repeat))
	for rows%size != 0 {
		size--
	}
	return rows / size
}

// blockSize is the size of blocks that are looped over, in S queries or keys.
func (o AttentionOptions) blockSize(S int) int {
	if o.Block > 0 {
		return min(o.Block, S)
	}
	return min(128, S)
}

// block chooses for S queries and keys: few blocks are written out, so that those
// in the future are never computed; many are looped over.
func (o AttentionOptions) block(S int) blocks {
	const most = 16 // written out
	size := o.blockSize(S)
	if o.Block <= 0 && S > most*size && S <= 2*most*size {
		size *= 2
	}
	switch n := (S + size - 1) / size; {
	case n <= most:
		return staticBlocks{size}
	case S%size != 0:
		return staticBlocks{(S + most - 1) / most}
	}
	return loopedBlocks{size}
}

// causal masks scores of the queries from q0 on and the keys from k0 on, which
// lie along dimensions qDim and kDim.
func causal(scores *graph.Value, qDim, q0, kDim, k0 int) *graph.Value {
	b := scores.Builder()
	t := graph.T(dtype.S32, scores.Shape()...)
	at := func(dim, start int) *graph.Value {
		return graph.Add(b.Iota(t, dim), b.Full(graph.T(dtype.S32), float64(start)))
	}
	return graph.Select(graph.GreaterEqual(at(qDim, q0), at(kDim, k0)), scores, b.Scalar(dtype.F32, masked))
}
