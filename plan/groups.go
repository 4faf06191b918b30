package plan

import (
	"slices"

	"titan/mesh"
	"titan/pjrt/hlo"
)

// groups tells over which axes of a mesh collectives go.
type groups struct {
	mesh   *mesh.Mesh
	coords [][]int // by position
	routes map[string]route
}

type route struct {
	axes  []string
	route mesh.Route
}

func newGroups(m *mesh.Mesh) *groups {
	g := &groups{mesh: m, coords: make([][]int, m.Size()), routes: map[string]route{}}
	for p := range g.coords {
		g.coords[p] = m.Coords(p)
	}
	return g
}

// of returns the axes along which the devices of one group of op differ, slowest
// first, and what joins them. A group that is only part of an axis has the route of
// the whole axis with its own number of devices.
func (g *groups) of(op *hlo.Instruction) ([]string, mesh.Route) {
	members := []int{}
	switch {
	case len(op.SourceTargetPairs) > 0:
		for _, p := range op.SourceTargetPairs {
			if p[0] != p[1] {
				members = []int{p[0], p[1]}
				break
			}
		}
	case len(op.ReplicaGroups) > 0 && len(op.ReplicaGroups[0]) > 0:
		members = op.ReplicaGroups[0]
	default:
		for p := range g.coords {
			members = append(members, p)
		}
	}
	differ := make([]bool, len(g.mesh.Axes()))
	for _, p := range members {
		if p < 0 || p >= len(g.coords) {
			return nil, mesh.Route{Axis: mesh.Axis{Size: len(members)}}
		}
		for k, c := range g.coords[p] {
			differ[k] = differ[k] || c != g.coords[members[0]][k]
		}
	}
	var axes []string
	key := ""
	for k, a := range g.mesh.Axes() {
		if differ[k] {
			axes = append(axes, a.Name)
			key += a.Name + ","
		}
	}
	r, ok := g.routes[key]
	if !ok {
		r.axes = axes
		var err error
		if r.route, err = g.mesh.RouteOver(axes...); err != nil {
			r.route = mesh.Route{}
		}
		g.routes[key] = r
	}
	out := r.route
	out.Axis.Size = len(members)
	out.Sides = slices.Clone(out.Sides)
	return r.axes, out
}
