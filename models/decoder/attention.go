package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// AttentionOptions say how causal attention is cut into pieces. They change
// memory and speed, not results beyond rounding.
type AttentionOptions struct {
	// Block is the number of queries and keys treated at once; 0 chooses.
	Block int
	// Rows is how many heads (of all sequences) are treated at once, in a loop
	// over the rest; 0 takes all. CPUs are faster when a piece fits their cache.
	Rows int
}

// masked is added to scores that must not count. It is far below any score, and
// finite, so that a row of nothing else stays free of NaN.
const masked = -1e30

// attention is causal softmax attention: q [B, S, H, h], k and v [B, S, K, h]
// with H a multiple of K; query head i reads key/value head i/(H/K). segments,
// s32 [B, S] or nil, keep queries to the keys of their own segment. The result
// has the shape of q. Scores are computed and summed in f32.
//
// Neither direction holds S×S scores: the backward pass computes probabilities
// again from q, k and the logarithm of the softmax's denominator (Dao, 2023).
func attention(q, k, v, segments *graph.Value, o AttentionOptions) *graph.Value {
	B, S, H, h := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	K := k.Dim(2)
	R := H / K
	// Rows of one key/value head of one sequence; the scale goes into q.
	q = graph.MulScalar(q, 1/math.Sqrt(float64(h)))
	qg := graph.Reshape(graph.Transpose(graph.Reshape(q, B, S, K, R, h), 0, 2, 3, 1, 4), B*K, R, S, h)
	kg := graph.Reshape(graph.Transpose(k, 0, 2, 1, 3), B*K, S, h)
	vg := graph.Reshape(graph.Transpose(v, 0, 2, 1, 3), B*K, S, h)
	args := []*graph.Value{qg, kg, vg}
	if segments != nil {
		args = append(args, graph.Reshape(graph.BroadcastInDim(segments, []int{B, K, S}, []int{0, 2}), B*K, S))
	}

	block := o.block(S)
	run := func(args []*graph.Value) *graph.Value {
		return graph.CustomVJP(args,
			func(args []*graph.Value) (outs, residuals []*graph.Value) {
				out, lse := block.forward(args)
				return []*graph.Value{out}, append(append([]*graph.Value(nil), args...), out, lse)
			},
			func(residuals, cts []*graph.Value) []*graph.Value {
				n := len(residuals) - 2
				grads := block.backward(residuals[:n], residuals[n], residuals[n+1], cts[0])
				return append(grads, make([]*graph.Value, n-3)...)
			})[0]
	}
	var out *graph.Value
	if groups := o.groups(B*K, R); groups > 1 {
		rows := make([]*graph.Value, len(args))
		for i, a := range args {
			rows[i] = graph.Reshape(a, append([]int{groups, B * K / groups}, a.Shape()[1:]...)...)
		}
		_, ys := q.Builder().Scan(nil, rows, func(_, x []*graph.Value) (next, ys []*graph.Value) {
			return nil, []*graph.Value{run(x)}
		})
		out = graph.Reshape(ys[0], B*K, R, S, h)
	} else {
		out = run(args)
	}
	out = graph.Transpose(graph.Reshape(out, B, K, R, S, h), 0, 3, 1, 2, 4)
	return graph.Reshape(out, B, S, H, h)
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

// blocks is how one group's attention is computed.
type blocks interface {
	// forward takes q [G, R, S, h], k and v [G, S, h] and perhaps segments
	// [G, S], and returns the output as q and the log of the denominators
	// [G, R, S] in f32.
	forward(args []*graph.Value) (out, lse *graph.Value)
	// backward returns the cotangents of q, k and v.
	backward(args []*graph.Value, out, lse, ct *graph.Value) []*graph.Value
}

// block chooses: few blocks are written out, so that those in the future are
// never computed; many are looped over.
func (o AttentionOptions) block(S int) blocks {
	const most = 16 // written out
	size := o.Block
	if size <= 0 {
		size = 128
		if S > most*size && S <= 2*most*size {
			size = 256
		}
	}
	size = min(size, S)
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
