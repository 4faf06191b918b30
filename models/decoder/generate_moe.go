package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// fewExperts is the feed-forward layer with experts for so few tokens that most
// experts have none: x [B, T, D]. It goes through the chosen experts one by one and
// reads no other's weights.
func (m *Model) fewExperts(x *graph.Value, w weights) *graph.Value {
	b, c := x.Builder(), m.Config.MoE
	B, T, D, k := x.Dim(0), x.Dim(1), x.Dim(2), c.TopK
	N := B * T
	rows := graph.Reshape(x, N, D)
	to := c.route(rows, m.Placement.Weight(w["layers.router"], "layers.router"), w[RouterBias], m.Options.ForceLoadBalance)
	matrix := func(name string, expert *graph.Value) *graph.Value {
		name = "layers.experts." + name
		return m.Placement.Weight(graph.Squeeze(graph.DynamicSliceDim(w[name], 0, expert, 1), 0), name)
	}
	pairs := graph.Reshape(graph.BroadcastInDim(rows, []int{N, k, D}, []int{0, 2}), N*k, 1, D)
	_, ys := b.Scan(nil, []*graph.Value{pairs, graph.Reshape(to.experts, N*k)}, func(_, r []*graph.Value) (next, ys []*graph.Value) {
		gate := graph.Einsum("bd,df->bf", r[0], matrix("w_gate", r[1]))
		up := graph.Einsum("bd,df->bf", r[0], matrix("w_up", r[1]))
		return nil, []*graph.Value{graph.Einsum("bf,fd->bd", graph.Mul(graph.Silu(gate), up), matrix("w_down", r[1]))}
	})
	y := graph.Convert(graph.Reshape(ys[0], N, k, D), dtype.F32)
	y = graph.Sum(graph.Mul(y, graph.ExpandDims(to.weights, -1)), 1)
	return graph.Reshape(graph.Convert(y, x.DType()), B, T, D)
}

// withoutDrops is m with experts that take all tokens: what is computed for a
// sequence must not depend on those beside it.
func (m *Model) withoutDrops() *Model {
	if m.Config.MoE == nil {
		return m
	}
	n, moe := *m, *m.Config.MoE
	moe.CapacityFactor = 0
	n.Config.MoE = &moe
	return &n
}
