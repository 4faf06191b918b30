package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// embed looks up the rows of the embedding table for tokens s32 [B, S]; the
// result is this device's share of [B, S, D] in the compute type. Every device
// looks up the tokens of its part of the vocabulary, the others' are zero, and
// adds up the gradients of its rows in f32.
func (m *Model) embed(tokens, table *graph.Value) *graph.Value {
	p := m.Placement
	group := p.Tensor()
	// own returns where tokens are in this device's rows of the vocabulary, and
	// -1 for those that are not.
	own := func(tokens *graph.Value, rows int) *graph.Value {
		if group.Alone() {
			return tokens
		}
		b := tokens.Builder()
		at := graph.Sub(tokens, graph.Mul(group.Index(b), b.Int(dtype.S32, int64(rows))))
		inside := graph.And(graph.GreaterEqual(at, b.Int(dtype.S32, 0)), graph.Less(at, b.Int(dtype.S32, int64(rows))))
		return graph.Select(inside, at, b.Int(dtype.S32, -1))
	}
	x := graph.CustomVJP([]*graph.Value{tokens, table},
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			rows := p.Gather(args[1], "embed")
			at := own(args[0], rows.Dim(0))
			if group.Alone() {
				return []*graph.Value{graph.Embedding(rows, at)}, args[:1]
			}
			b := at.Builder()
			y := graph.Embedding(rows, graph.Max(at, b.Int(dtype.S32, 0)))
			known := graph.ExpandDims(graph.GreaterEqual(at, b.Int(dtype.S32, 0)), -1)
			return []*graph.Value{graph.Select(known, y, b.Scalar(y.DType(), 0))}, args[:1]
		},
		func(res, cts []*graph.Value) []*graph.Value {
			V, D := m.Config.VocabSize/group.Devices(), m.Config.Dim
			n := res[0].Dim(0) * res[0].Dim(1)
			sum := cts[0].Builder().Zeros(graph.T(dtype.F32, V, D))
			at := graph.Reshape(own(res[0], V), n)
			sum = graph.IndexAdd(sum, at, graph.Reshape(graph.Convert(cts[0], dtype.F32), n, D), 0)
			return []*graph.Value{nil, p.Scatter(sum, "embed")}
		})[0]
	return p.Leave(x)
}
