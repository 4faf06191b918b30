package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// embed looks up the rows of the embedding table for tokens s32 [B, S]; the
// result is [B, S, D] in the compute type. Every device looks up its own tokens
// in the gathered table and adds up their gradients in f32.
func (m *Model) embed(b *graph.Builder, tokens, table *graph.Value) *graph.Value {
	return m.Placement.Region(b, []Arg{{Value: tokens}, {table, "embed"}}, 1, func(r Region, local []*graph.Value) []*graph.Value {
		return graph.CustomVJP(local,
			func(args []*graph.Value) (outs, residuals []*graph.Value) {
				return []*graph.Value{graph.Embedding(r.Gather(args[1], "embed"), args[0])}, args[:1]
			},
			func(res, cts []*graph.Value) []*graph.Value {
				rows := res[0].Dim(0) * res[0].Dim(1)
				ids := graph.Reshape(res[0], rows)
				sum := cts[0].Builder().Zeros(graph.T(dtype.F32, m.Config.VocabSize, m.Config.Dim))
				sum = graph.IndexAdd(sum, ids, graph.Reshape(graph.Convert(cts[0], dtype.F32), rows, m.Config.Dim), 0)
				return []*graph.Value{nil, r.Scatter(sum, "embed")}
			})
	})[0]
}
