package optim

import (
	"titan/mesh"
	"titan/sharding"
)

// SetFlopsPerByte changes what Muon thinks a byte sent costs: 0 makes it split
// every matrix that there are too few of.
func SetFlopsPerByte(o *Optimizer, x float64) { o.muon.balance = x }

// Job describes one iteration of Muon on a mesh.
type Job struct {
	Params       []string
	Moves        [][]string // axes of the all-to-alls of the first parameter
	Share, Split []string
	Slots        int
}

// Plan describes Muon's iterations for all parameters that are matrices.
func Plan(o *Optimizer, m *mesh.Mesh, specs []sharding.Spec) ([]Job, error) {
	var ps []Param
	var ss []sharding.Spec
	for i, p := range o.params {
		if o.groups[o.group[i]].muon {
			ps, ss = append(ps, p), append(ss, specs[i])
		}
	}
	jobs, err := plan(m, ss, ps, o.muon)
	var out []Job
	for _, j := range jobs {
		x := Job{Share: j.share, Split: j.loads[0].split, Slots: j.slots}
		for _, l := range j.loads {
			for _, i := range l.members {
				x.Params = append(x.Params, ps[i].Name)
			}
		}
		for _, mv := range j.loads[0].moves {
			x.Moves = append(x.Moves, mv.axes)
		}
		out = append(out, x)
	}
	return out, err
}

// Matrices returns the number, rows and columns of a parameter's matrices.
func Matrices(o *Optimizer, name string) [3]int {
	for _, p := range o.params {
		if p.Name == name {
			m, _ := p.matrices()
			return [3]int{m.count, m.in, m.out}
		}
	}
	return [3]int{}
}
