package optim

import (
	"titan/mesh"
	"titan/sharding"
)

// SetFlopsPerByte changes what Muon thinks a byte sent costs: 0 makes it split
// every matrix that there are too few of.
func SetFlopsPerByte(o *Optimizer, x float64) { o.muon.balance = x }

// Route describes how a parameter's matrices travel, members parameters alike:
// the axes of each all-to-all, those that share copies out, those that go on
// splitting a matrix, and the matrices on each device.
func Route(o *Optimizer, m *mesh.Mesh, spec sharding.Spec, p Param, members int) (moves [][]string, share, split []string, slots int) {
	v, _ := p.matrices()
	local, err := spec.Shard(m, p.Shape)
	if err != nil {
		panic(err)
	}
	r := newRoute(m, spec, len(p.Shape), v, members*product(local[:v.stack]), o.muon)
	for _, x := range r.moves {
		moves = append(moves, x.axes)
	}
	return moves, r.share, r.split, r.slots
}
