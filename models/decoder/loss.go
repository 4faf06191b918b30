package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// tokenLoss is the cross-entropy of each position: x [B, S, D], labels s32
// [B, S], weights f32 [B, S] (0 where a label does not count). The result is
// f32 [B, S], 0 where the weight is.
//
// Logits exist for Options.LossChunks-th parts of the sequence and this device's
// part of the vocabulary only, and are computed again in the backward pass, which
// adds up the output matrix's gradient over the parts before devices exchange it,
// once.
func (m *Model) tokenLoss(x, labels, valid, output *graph.Value) *graph.Value {
	name, tied := "output", m.Config.TieEmbeddings
	if tied {
		name = "embed"
	}
	h := chunkedHead{chunks: m.Options.lossChunks(x.Dim(1)), tied: tied, place: m.Placement, vocab: m.Placement.Tensor(), name: name}
	return graph.CustomVJP([]*graph.Value{x, labels, valid, output}, h.forward, h.backward)[0]
}

func (o Options) lossChunks(S int) int { return min(max(1, o.LossChunks), S) }

// chunkedHead is the output layer and the loss.
type chunkedHead struct {
	chunks int
	tied   bool // the matrix is [V, D]
	place  Placement
	vocab  Group // the devices that share the vocabulary
	name   string
}

// split cuts [B, S, …] into [chunks, B, ⌈S/chunks⌉, …], padded with zeros: such
// positions do not count, as their weight is 0.
func (h chunkedHead) split(x *graph.Value) *graph.Value {
	s := x.Shape()
	each := (s[1] + h.chunks - 1) / h.chunks
	if more := each*h.chunks - s[1]; more > 0 {
		none, high := make([]int, len(s)), make([]int, len(s))
		high[1] = more
		x = graph.Pad(x, x.Builder().Scalar(x.DType(), 0), none, high, none)
	}
	shape := append([]int{s[0], h.chunks, each}, s[2:]...)
	perm := []int{1, 0, 2}
	for i := 3; i < len(shape); i++ {
		perm = append(perm, i)
	}
	return graph.Transpose(graph.Reshape(x, shape...), perm...)
}

// join puts the S positions of parts together again.
func (h chunkedHead) join(x *graph.Value, S int) *graph.Value {
	s := x.Shape()
	perm := []int{1, 0, 2}
	for i := 3; i < len(s); i++ {
		perm = append(perm, i)
	}
	return graph.SliceDim(graph.Reshape(graph.Transpose(x, perm...), append([]int{s[1], s[0] * s[2]}, s[3:]...)...), 1, 0, S)
}

// each runs f over the chunks of xs, adding up its sums.
func (h chunkedHead) each(init, xs []*graph.Value, f func(sums, x []*graph.Value) (next, ys []*graph.Value)) (sums, ys []*graph.Value) {
	if h.chunks == 1 {
		return f(init, xs)
	}
	S := xs[0].Dim(1)
	for i, x := range xs {
		xs[i] = h.split(x)
	}
	sums, ys = xs[0].Builder().Scan(init, xs, f)
	for i, y := range ys {
		ys[i] = h.join(y, S)
	}
	return sums, ys
}

func (h chunkedHead) logits(x, w *graph.Value) *graph.Value {
	if h.tied {
		return graph.Einsum("bsd,vd->bsv", x, w, graph.As(dtype.F32))
	}
	return graph.Einsum("bsd,dv->bsv", x, w, graph.As(dtype.F32))
}

// at reports which class each label [B, S] is, as booleans like logits.
func (h chunkedHead) at(labels, logits *graph.Value) *graph.Value {
	b := logits.Builder()
	if !h.vocab.Alone() {
		labels = graph.Sub(labels, graph.Mul(h.vocab.Index(b), b.Int(dtype.S32, int64(logits.Dim(2)))))
	}
	return graph.Equal(b.Iota(graph.T(dtype.S32, logits.Shape()...), 2), graph.ExpandDims(labels, -1))
}

// logSumExp is that of logits [B, S, V] over the whole vocabulary.
func (h chunkedHead) logSumExp(logits *graph.Value) *graph.Value {
	if h.vocab.Alone() {
		return graph.LogSumExp(logits, -1)
	}
	most := h.vocab.Max(graph.ReduceMax(logits, -1))
	sum := graph.Sum(graph.Exp(graph.Sub(logits, graph.ExpandDims(most, -1))), -1)
	return graph.Add(most, graph.Log(h.vocab.Sum(sum)))
}

func (h chunkedHead) forward(args []*graph.Value) (outs, residuals []*graph.Value) {
	w := h.place.Gather(args[3], h.name)
	_, ys := h.each(nil, []*graph.Value{args[0], args[1], args[2]}, func(_, x []*graph.Value) (next, ys []*graph.Value) {
		logits := h.logits(x[0], w)
		lse := h.logSumExp(logits)
		own := h.vocab.Sum(graph.Sum(graph.Select(h.at(x[1], logits), logits, logits.Builder().Scalar(dtype.F32, 0)), -1))
		ys = []*graph.Value{graph.Mul(graph.Sub(lse, own), x[2]), lse}
		if h.chunks == 1 {
			ys = append(ys, logits)
		}
		return nil, ys
	})
	// The backward pass follows at once: the matrix is not gathered again for it.
	residuals = append(append(residuals, args[0], args[1], args[2], w), ys[1:]...)
	return ys[:1], residuals
}

func (h chunkedHead) backward(res, cts []*graph.Value) []*graph.Value {
	x, labels, valid, w, lse := res[0], res[1], res[2], res[3], res[4]
	xs := []*graph.Value{x, labels, graph.Mul(cts[0], valid), lse}
	if h.chunks == 1 {
		xs = append(xs, res[5])
	}
	zero := graph.ZerosLike(graph.Convert(w, dtype.F32))
	sums, ys := h.each([]*graph.Value{zero}, xs, func(sums, c []*graph.Value) (next, ys []*graph.Value) {
		x, labels, ct, lse := c[0], c[1], c[2], c[3]
		var logits *graph.Value
		if h.chunks == 1 {
			logits = c[4]
		} else {
			logits = h.logits(x, w)
		}
		hot := graph.Convert(h.at(labels, logits), dtype.F32)
		d := graph.Mul(graph.Sub(graph.Exp(graph.Sub(logits, graph.ExpandDims(lse, -1))), hot), graph.ExpandDims(ct, -1))
		d = graph.Convert(d, x.DType())
		var dx, dw *graph.Value
		if h.tied {
			dx = graph.Einsum("bsv,vd->bsd", d, w)
			dw = graph.Einsum("bsv,bsd->vd", d, x, graph.As(dtype.F32))
		} else {
			dx = graph.Einsum("bsv,dv->bsd", d, w)
			dw = graph.Einsum("bsd,bsv->dv", x, d, graph.As(dtype.F32))
		}
		if h.chunks > 1 {
			dw = graph.Add(sums[0], dw)
		}
		return []*graph.Value{dw}, []*graph.Value{dx}
	})
	return []*graph.Value{ys[0], nil, nil, h.place.Scatter(sums[0], h.name)}
}
