package decoder

import (
	"titan/graph"
)

// project multiplies x by the named matrices of a layer, each as spec says.
func (m *Model) project(spec string, x *graph.Value, w weights, names ...string) []*graph.Value {
	out := make([]*graph.Value, len(names))
	for i, name := range names {
		out[i] = graph.Einsum(spec, x, m.Placement.Weight(w[name], name))
	}
	return out
}
