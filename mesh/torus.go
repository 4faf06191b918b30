package mesh

import "slices"

// torus is a slice whose devices fill a box. Direction 0 is the cores of a
// chip, the following ones are the coordinates of the chips.
type torus struct {
	extent  []int
	low     []int // least coordinates, direction 0 the least core
	wraps   []bool
	devices []DeviceInfo // row-major, direction 0 fastest
}

// coreLinks counts the connection between the cores of a chip as so many links
// between chips. It only has to be more than any torus direction has: cores
// share a package.
const coreLinks = 4

// newTorus returns the box that devices fill, and false if they have no
// coordinates or leave holes.
func newTorus(devices []DeviceInfo) (*torus, bool) {
	rank := len(devices[0].Coords)
	if rank == 0 {
		return nil, false
	}
	place := func(d DeviceInfo) []int { return append([]int{d.Core}, d.Coords...) }
	low, high := place(devices[0]), place(devices[0])
	for _, d := range devices {
		if len(d.Coords) != rank {
			return nil, false
		}
		for i, c := range place(d) {
			low[i], high[i] = min(low[i], c), max(high[i], c)
		}
	}
	t := &torus{extent: make([]int, rank+1), low: low, devices: make([]DeviceInfo, len(devices))}
	volume := 1
	for i := range low {
		t.extent[i] = high[i] - low[i] + 1
		if t.extent[i] < 1 || t.extent[i] > len(devices) {
			return nil, false
		}
		volume *= t.extent[i]
		if volume > len(devices) {
			return nil, false
		}
	}
	if volume != len(devices) {
		return nil, false
	}
	filled := make([]bool, volume)
	for _, d := range devices {
		at := 0
		for i, c := range slices.Backward(place(d)) {
			at = at*t.extent[i] + c - low[i]
		}
		if filled[at] {
			return nil, false
		}
		filled[at], t.devices[at] = true, d
	}
	t.wraps = wraparound(t.extent)
	return t, true
}

// Wraps reports in which directions, x first, the links of a slice close to rings.
func (t Topology) Wraps() [3]bool {
	extent := append([]int{1}, t.Shape...)
	for len(extent) < 4 {
		extent = append(extent, 1)
	}
	return [3]bool(wraparound(extent)[1:])
}

// wraparound reports in which directions the links close to a ring: on
// two-dimensional tori along a side of 16 chips, on three-dimensional ones if
// the slice consists of whole cubes of 4×4×4 chips.
func wraparound(extent []int) []bool {
	wraps := make([]bool, len(extent))
	sides := extent[1:]
	flat := len(sides) < 3 || sides[2] == 1
	cubes := !slices.ContainsFunc(sides, func(n int) bool { return n%4 != 0 })
	for i, n := range sides {
		wraps[i+1] = flat && n == 16 || !flat && cubes
	}
	return wraps
}

// lay returns the devices in the row-major order of axes, whose sizes multiply
// to the number of devices.
//
// Axes take their share of the torus from the last to the first, each the best
// that is left, and lie along it as rings that load the links least (ring).
func (t *torus) lay(axes []Axis) []DeviceInfo {
	taken := make([]int, len(t.extent)) // by axes further right, along each direction
	for i := range taken {
		taken[i] = 1
	}
	step := make([]int, len(t.extent)) // between neighbours in t.devices
	for i, n := 0, 1; i < len(step); i++ {
		step[i], n = n, n*t.extent[i]
	}
	order := []int{0}
	for _, a := range slices.Backward(axes) {
		share := t.share(a.Size, taken)
		next := make([]int, 0, len(order)*a.Size)
		for _, digits := range t.ring(share, taken) {
			off := 0
			for i, d := range digits {
				off += d * taken[i] * step[i]
			}
			for _, o := range order {
				next = append(next, off+o)
			}
		}
		order = next
		for i := range taken {
			taken[i] *= share[i]
		}
	}
	out := make([]DeviceInfo, len(order))
	for p, at := range order {
		out[p] = t.devices[at]
	}
	return out
}

// share returns how many devices along each direction an axis of this size
// gets, given what is taken.
func (t *torus) share(size int, taken []int) []int {
	var best []int
	var bestValue shareValue
	cur := make([]int, len(t.extent))
	var walk func(i, left int)
	walk = func(i, left int) {
		if i == len(cur) {
			if left != 1 {
				return
			}
			if v := t.value(cur, taken); best == nil || v.better(bestValue) {
				best, bestValue = slices.Clone(cur), v
			}
			return
		}
		// Large shares first: among equals the earlier direction is filled.
		for n := t.extent[i] / taken[i]; n >= 1; n-- {
			if t.extent[i]/taken[i]%n == 0 && left%n == 0 {
				cur[i] = n
				walk(i+1, left/n)
			}
		}
	}
	walk(0, size)
	return best
}

// shareValue says how good a share is. What a device receives from all others on the
// axis comes over its links, so their number bounds the time; what the axis takes
// beyond that, the axes to its left lack.
type shareValue struct {
	links       float64 // links that a device has to its neighbours on the axis
	brokenRings int     // wraparound rings that it cuts
	directions  int     // directions it spans
}

func (v shareValue) better(o shareValue) bool {
	if v.links != o.links {
		return v.links > o.links
	}
	if v.brokenRings != o.brokenRings {
		return v.brokenRings < o.brokenRings
	}
	return v.directions < o.directions
}

// value counts, for a share, the links that an axis can use: two along a closed
// ring and one along an open line, divided by the number of other devices that
// lie between neighbours, because the groups of so many others then share the links.
func (t *torus) value(share, taken []int) shareValue {
	var v shareValue
	for i, n := range share {
		if n == 1 {
			continue
		}
		v.directions++
		links := 1.0
		switch {
		case i == 0:
			links = coreLinks
		case t.wraps[i] && taken[i]*n == t.extent[i]:
			links = 2
		case t.wraps[i]:
			v.brokenRings++
		}
		v.links += links / float64(taken[i])
	}
	return v
}
