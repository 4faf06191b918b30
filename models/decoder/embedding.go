package decoder

import (
	"titan/dtype"
	"titan/graph"
	"titan/kernels"
)

// embed looks up the rows of the embedding table for tokens s32 [B, S]; the
// result is this device's share of [B, S, D] in the compute type. Every device
// looks up the tokens of its part of the vocabulary, the others' are zero, and
// adds up the gradients of its rows in f32.
func (m *Model) embed(tokens, table *graph.Value) *graph.Value {
	p := m.Placement
	if g := p.Columns("embed"); EmbedsByColumns(g, m.Config.Dim, table.Dim(0), tokens.Dim(0)*tokens.Dim(1)) {
		return m.embedByColumns(tokens, table, g)
	}
	return p.Leave(graph.CustomVJP([]*graph.Value{tokens, table},
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			return []*graph.Value{m.ownRows(p.Gather(args[1], "embed"), args[0])}, args[:1]
		},
		func(res, cts []*graph.Value) []*graph.Value {
			return []*graph.Value{nil, p.Scatter(m.rowSums(res[0], cts[0]), "embed")}
		})[0])
}

// EmbedsByColumns reports whether a device of g, which share out the D columns of a
// table of so many rows, looks up its columns for the tokens of all of them, so many
// of each, and rows are put together by an exchange: then neither the table is
// gathered nor its gradient scattered, of which no device has more than its columns.
// It takes columns that fill lanes, and no more look-ups than the table has rows:
// each has its price, however few columns it is of.
func EmbedsByColumns(g Group, D, rows, tokens int) bool {
	return !g.Alone() && D/g.Devices()%kernels.Unit == 0 && g.Devices()*tokens <= rows
}

// embedByColumns is embed where devices g have the columns, none of which travel:
// what is looked up does, after Leave, which makes it less.
func (m *Model) embedByColumns(tokens, table *graph.Value, g Group) *graph.Value {
	p := m.Placement
	compute, reduce := p.Types()
	B, n, part := tokens.Dim(0), g.Devices(), table.Dim(1)
	return graph.CustomVJP([]*graph.Value{tokens, table},
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			all := g.Gather(args[0], 0) // [n·B, S]
			x := p.Leave(graph.Convert(m.ownRows(args[1], all), compute))
			share := x.Dim(1)
			x = g.Exchange(graph.Reshape(x, n, B, share, part), 0, 0)
			return []*graph.Value{graph.Reshape(graph.Transpose(x, 1, 2, 0, 3), B, share, n*part)}, []*graph.Value{all}
		},
		func(res, cts []*graph.Value) []*graph.Value {
			share := cts[0].Dim(1)
			ct := graph.Transpose(graph.Reshape(cts[0], B, share, n, part), 2, 0, 1, 3)
			ct = p.Enter(graph.Reshape(g.Exchange(ct, 0, 0), n*B, share, part))
			return []*graph.Value{nil, graph.Convert(m.rowSums(res[0], ct), reduce)}
		})[0]
}

// own returns where tokens are among this device's rows of the vocabulary, and -1
// for those that are not.
func (m *Model) own(tokens *graph.Value, rows int) *graph.Value {
	group := m.Placement.Tensor()
	if group.Alone() {
		return tokens
	}
	b := tokens.Builder()
	at := graph.Sub(tokens, graph.Mul(group.Index(b), b.Int(dtype.S32, int64(rows))))
	inside := graph.And(graph.GreaterEqual(at, b.Int(dtype.S32, 0)), graph.Less(at, b.Int(dtype.S32, int64(rows))))
	return graph.Select(inside, at, b.Int(dtype.S32, -1))
}

// ownRows looks tokens up in this device's rows; those of others are zero.
func (m *Model) ownRows(rows, tokens *graph.Value) *graph.Value {
	at := m.own(tokens, rows.Dim(0))
	if m.Placement.Tensor().Alone() {
		return graph.Embedding(rows, at)
	}
	b := at.Builder()
	y := graph.Embedding(rows, graph.Max(at, b.Int(dtype.S32, 0)))
	known := graph.ExpandDims(graph.GreaterEqual(at, b.Int(dtype.S32, 0)), -1)
	return graph.Select(known, y, b.Scalar(y.DType(), 0))
}

// rowSums adds up cotangents [B, S, …] of tokens' rows, in f32.
func (m *Model) rowSums(tokens, cts *graph.Value) *graph.Value {
	V, n, D := m.Config.VocabSize/m.Placement.Tensor().Devices(), tokens.Dim(0)*tokens.Dim(1), cts.Dim(2)
	sum := cts.Builder().Zeros(graph.T(dtype.F32, V, D))
	return graph.IndexAdd(sum, graph.Reshape(m.own(tokens, V), n), graph.Reshape(graph.Convert(cts, dtype.F32), n, D), 0)
}
