package sweep

import (
	"errors"
	"fmt"
	"slices"

	"titan/configs"
	"titan/mesh"
)

// size is the machines of a point. The zero value stands for those of the recipe.
type size struct {
	asked    int            // chips, if that many cannot be had
	topology *mesh.Topology // nil: virtual devices, or the recipe's machines
	devices  int            // 0: the recipe's
	reason   string         // why there are no such machines
}

func (z size) own() bool { return z.topology == nil && z.devices == 0 && z.reason == "" }

// kind names the chips, or the platform where there are none.
func (z size) kind(r *configs.Recipe) string {
	if z.topology != nil {
		return z.topology.Kind
	}
	if t, err := mesh.ParseTopology(r.Mesh.Topology); z.own() && err == nil {
		return t.Kind
	}
	if z.devices > 0 && r.Mesh.Platform == "tpu" {
		return "cpu"
	}
	return r.Mesh.Platform
}

// sizes returns the machines of the points, ascending.
func (s Spec) sizes(r *configs.Recipe) ([]size, error) {
	given := 0
	for _, n := range []int{len(s.Chips), len(s.Devices), len(s.Topologies)} {
		given += min(n, 1)
	}
	switch {
	case given > 1:
		return nil, errors.New("sweep: chips, devices and topologies exclude each other: give one of them")
	case given == 0 && s.Mode != NoMode:
		return nil, fmt.Errorf("sweep: %s mode needs several numbers of chips or devices, or topologies", s.Mode)
	case s.Mode == NoMode && max(len(s.Chips), len(s.Devices), len(s.Topologies)) > 1:
		return nil, errors.New("sweep: with several numbers of devices something has to stay the same: say mode weak (the work of a device) or strong (that of a step)")
	case s.Source == Run && len(s.Chips)+len(s.Topologies) > 0:
		return nil, errors.New("sweep: runs are on devices of this machine: give devices, or plan for chips and topologies")
	case s.Source == Plan && len(s.Devices) > 0:
		return nil, errors.New("sweep: plans are for chips of TPUs: give chips or topologies, or run on devices")
	case s.Source == Plan && given == 0 && r.Mesh.Topology == "":
		return nil, errors.New("sweep: the recipe has no topology to plan for: give chips or topologies")
	}
	var out []size
	for _, n := range s.Devices {
		out = append(out, size{devices: n})
	}
	for _, name := range s.Topologies {
		t, err := mesh.ParseTopology(name)
		if err != nil {
			return nil, err
		}
		out = append(out, size{topology: &t, devices: t.Devices()})
	}
	if len(s.Chips) > 0 {
		of, err := s.pods(r)
		if err != nil {
			return nil, err
		}
		for _, n := range s.Chips {
			out = append(out, of.size(n))
		}
	}
	if given == 0 {
		return []size{{}}, nil
	}
	slices.SortStableFunc(out, func(a, b size) int { return a.devices - b.devices })
	return out, nil
}

// pods chooses the shapes of slices.
type pods struct {
	chip     mesh.Chip
	slice    mesh.Topology // one slice of the recipe; Slices 0: none of this kind
	maxSlice int
}

// usualSlice is the most chips of a slice unless the recipe's has more: larger ones
// exist, but are seldom to be had.
const usualSlice = 1024

// pods returns what the points' chips come in.
func (s Spec) pods(r *configs.Recipe) (pods, error) {
	own, err := mesh.ParseTopology(r.Mesh.Topology)
	if err != nil {
		own = mesh.Topology{}
	}
	kind := s.Kind
	if kind == "" {
		kind = own.Kind
	}
	if kind == "" {
		return pods{}, errors.New("sweep: the recipe has no topology, so that the kind of the chips is open: name it, or give topologies")
	}
	c, err := mesh.ChipOf(kind)
	if err != nil {
		return pods{}, err
	}
	p := pods{chip: c, maxSlice: s.MaxSlice}
	if own.Kind == c.Kind {
		own.Slices = 1
		p.slice = own
	}
	if p.maxSlice == 0 {
		p.maxSlice = usualSlice
		if p.slice.Slices > 0 {
			p.maxSlice = max(p.maxSlice, p.slice.Chips())
		}
	}
	p.maxSlice = min(p.maxSlice, c.MaxChips)
	return p, nil
}

// size returns machines of n chips or, where they do not come so, of the next
// smaller number that they come in.
func (p pods) size(n int) size {
	for m := n; m >= 1; m-- {
		t := p.topology(m)
		if t == nil {
			continue
		}
		z := size{topology: t, devices: t.Devices()}
		if m != n {
			z.asked = n
		}
		return z
	}
	return size{asked: n, reason: fmt.Sprintf("pods of %s offer no slice of %d chips or fewer", p.chip.Kind, n)}
}

// topology returns machines of exactly n chips: one slice if it is not too large,
// else slices of the recipe's shape or, if those do not add up, as few equal ones
// as possible. Of several shapes it takes that with the most similar sides. It is
// nil if there are none.
func (p pods) topology(n int) *mesh.Topology {
	if s := p.slice; s.Slices > 0 && s.Chips() == n {
		return &s
	}
	if n > p.maxSlice && p.slice.Slices > 0 && p.slice.Chips() == p.maxSlice && n%p.maxSlice == 0 {
		t := p.slice
		t.Slices = n / p.maxSlice
		return &t
	}
	if n > p.maxSlice*mostSlices {
		return nil
	}
	for count := (n + p.maxSlice - 1) / p.maxSlice; count <= mostSlices && count <= n; count++ {
		if n%count != 0 || count > 1 && n <= p.maxSlice {
			continue
		}
		for _, shape := range p.chip.Shapes() {
			chips := 1
			for _, side := range shape {
				chips *= side
			}
			if chips == n/count {
				return &mesh.Topology{Kind: p.chip.Kind, Shape: shape, Slices: count}
			}
		}
	}
	return nil
}

// mostSlices bounds how many slices a job is taken to have.
const mostSlices = 256
