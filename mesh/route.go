package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Route is what joins the devices along an axis.
type Route struct {
	Axis Axis
	// Network is the slowest that traffic along the axis meets; see Crossing.
	Network Network
	// Slices is over how many slices the axis lies, at least 1.
	Slices int
	// Hosts is how many processes drive the devices of one group along the axis, at
	// most.
	Hosts int
	// Cores is the number of devices of one chip along the axis, at least 1.
	Cores int
	// Sides are the directions of the torus along which there is more than one
	// chip. It is empty if the axis stays on a chip, or there is no torus.
	Sides []Side
	// Links is the number of links between chips that lie between neighbours on the
	// axis, at most; 0 if the axis stays on a chip or leaves the torus. 1 means that
	// neighbours have a link of their own.
	Links int
	// Closed says that the last device is as near to the first as neighbours are, as
	// in a ring. Two devices always are.
	Closed bool
}

// Side is a direction of a torus as far as an axis lies along it.
type Side struct {
	Name  string // x, y or z
	Chips int
	// Ring says that the chips are spread evenly over a direction whose links close
	// to a ring: all of them, or every n-th.
	Ring bool
	// Apart is how many links lie between neighbours, at most, at least 1: of other
	// groups so many share a link.
	Apart int
}

// Route returns what joins the devices along an axis. It fails if there is no such
// axis or the mesh was made from ids alone.
func (m *Mesh) Route(axis string) (Route, error) { return m.RouteOver(axis) }

// RouteOver is Route for devices along several axes at once, in the order in which
// a collective lists them: the first axis is the slowest. The Axis of the result
// has their names, joined by commas, and the number of devices of one group.
func (m *Mesh) RouteOver(axes ...string) (Route, error) {
	r := Route{Axis: Axis{Name: strings.Join(axes, ","), Size: 1}, Slices: 1, Hosts: 1, Cores: 1}
	for _, axis := range axes {
		network, err := m.Crossing(axis)
		if err != nil {
			return Route{}, err
		}
		r.Network = max(r.Network, network)
		r.Axis.Size *= m.axes[m.index(axis)].Size
	}
	groups, err := m.Groups(axes...)
	if err != nil {
		return Route{}, err
	}
	if m.devices == nil {
		return Route{}, errNoPlace
	}
	var first []DeviceInfo // of one slice
	for _, d := range m.devices {
		if d.Slice == m.devices[0].Slice {
			first = append(first, d)
		}
	}
	box, placed := newTorus(first)
	var chips [3]int
	var open [3]bool
	apart := [3]int{1, 1, 1}
	for _, g := range groups {
		hosts, inSlice, cores := map[int]bool{}, map[int]bool{}, map[int]bool{}
		var at [3]map[int]bool
		for k, p := range g {
			d := m.devices[p]
			hosts[d.Process], inSlice[d.Slice], cores[d.Core] = true, true, true
			if !placed {
				continue
			}
			for s := range min(3, len(d.Coords)) {
				if at[s] == nil {
					at[s] = map[int]bool{}
				}
				at[s][d.Coords[s]] = true
			}
			if k > 0 && m.devices[g[k-1]].Slice == d.Slice {
				r.Links = max(r.Links, box.hops(m.devices[g[k-1]].Coords, d.Coords))
			}
		}
		r.Slices, r.Hosts, r.Cores = max(r.Slices, len(inSlice)), max(r.Hosts, len(hosts)), max(r.Cores, len(cores))
		for s := range at {
			chips[s] = max(chips[s], len(at[s]))
			apart[s] = max(apart[s], widest(at[s]))
			open[s] = open[s] || len(at[s]) > 1 && !even(at[s], box.extent[s+1])
		}
	}
	for s, n := range chips {
		if n > 1 {
			r.Sides = append(r.Sides, Side{string("xyz"[s]), n, box.wraps[s+1] && !open[s], apart[s]})
		}
	}
	r.Closed = placed && r.Slices == 1 && !slices.ContainsFunc(groups, func(g []int) bool {
		return box.hops(m.devices[g[len(g)-1]].Coords, m.devices[g[0]].Coords) > max(1, r.Links)
	})
	return r, nil
}

// widest returns the largest step from a place to the next.
func widest(places map[int]bool) int {
	step, last := 1, -1
	for _, p := range slices.Sorted(maps.Keys(places)) {
		if last >= 0 {
			step = max(step, p-last)
		}
		last = p
	}
	return step
}

// even reports whether places on a ring of so many chips are equally far apart.
func even(places map[int]bool, chips int) bool {
	if len(places) == 0 || chips%len(places) != 0 {
		return false
	}
	step := chips / len(places)
	for p := range places {
		// The next place is a step ahead, or this is the last before the ring closes.
		if !places[p+step] && !places[p+step-chips] {
			return false
		}
	}
	return true
}

// hops counts the links between the places of two chips of a slice.
func (t *torus) hops(a, b []int) int {
	n := 0
	for i := range a {
		d := max(a[i]-b[i], b[i]-a[i])
		if t.wraps[i+1] {
			d = min(d, t.extent[i+1]-d)
		}
		n += d
	}
	return n
}

// String names what the axis crosses: "ICI x ring of 16", "2 devices of a chip, ICI
// x line of 2", "data-centre network between 2 slices".
func (r Route) String() string {
	var parts []string
	switch {
	case r.Network == NoNetwork:
		return "one device"
	case r.Slices > 1:
		parts = append(parts, fmt.Sprintf("data-centre network between %d slices", r.Slices))
	case r.Network == DCN:
		parts = append(parts, fmt.Sprintf("network between %d hosts", r.Hosts))
	}
	if r.Cores > 1 {
		parts = append(parts, fmt.Sprintf("%d devices of a chip", r.Cores))
	}
	ici := "ICI "
	for _, s := range r.Sides {
		shape := "line"
		if s.Ring {
			shape = "ring"
		}
		parts = append(parts, fmt.Sprintf("%s%s %s of %d", ici, s.Name, shape, s.Chips))
		ici = ""
	}
	if len(parts) == 0 {
		return "inside a host"
	}
	return strings.Join(parts, ", ")
}

// Apart says how far neighbours on the axis are from each other: "1 link", "same chip"
// or, where that is unknown or another slice, "".
func (r Route) Apart() string {
	switch {
	case r.Links == 1:
		return "1 link"
	case r.Links > 1:
		return fmt.Sprintf("up to %d links", r.Links)
	case r.Cores > 1 && r.Slices == 1:
		return "same chip"
	}
	return ""
}
