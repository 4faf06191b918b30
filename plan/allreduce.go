package plan

import "titan/mesh"

// AllReduce returns how many seconds the devices along an axis of a mesh take to
// add up arrays of so many bytes on each, if nothing else uses the links, by the
// model that predictions use (docs/plan.md). The devices of m have their places.
func AllReduce(kind string, m *mesh.Mesh, axis string, bytes float64) (float64, error) {
	mc, err := newMachine(kind)
	if err != nil {
		return 0, err
	}
	r, err := m.Route(axis)
	if err != nil {
		return 0, err
	}
	return mc.seconds(collective{kind: "all-reduce", bytes: bytes, route: r}), nil
}
