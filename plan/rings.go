package plan

import (
	"titan/mesh"
	"titan/pjrt/hlo"
)

// byRings is how long a collective takes the way the compiler says it travels, on
// links that nothing else uses, and false where that cannot be told: without the
// compiler's note, or between slices.
//
// Each color carries its share of the array through its phases. What a device of a
// ring of k passes on is k-1 times what it has before the phase; in an all-reduce
// that happens twice. Two devices of a chip that exchange their parts beside the
// rings need them on the chip once.
func (m machine) byRings(c collective, s hlo.Strategy, devices *mesh.Mesh) (float64, bool) {
	if c.route.Slices > 1 || c.route.Axis.Size <= 1 || c.bytes == 0 {
		return 0, false
	}
	passes := 1.0
	switch c.kind {
	case "all-reduce":
		passes = 2
	case "all-gather", "reduce-scatter":
	default:
		return 0, false
	}
	hops, load, ok := 0.0, 0.0, false
	if s.Next != nil {
		hops, load, ok = winding(c, s, devices)
	} else {
		hops, load, ok = alongSides(c, s)
		// Groups of the other devices of the same chips share their links.
		load *= float64(max(1, m.chip.Devices)) / float64(max(1, c.route.Cores))
	}
	if !ok {
		return 0, false
	}
	link := m.chip.ICILinkBandwidth() * iciEfficiency
	return startSeconds + passes*(hops*hopSeconds+load*c.bytes/float64(len(s.Colors))/link), true
}

// winding returns the steps of rings whose neighbours are listed, and what the busiest
// link carries in one direction, in shares of one color.
func winding(c collective, s hlo.Strategy, devices *mesh.Mesh) (hops, load float64, ok bool) {
	first, inSlice := devicesOfSlice(devices)
	if len(s.Next) != inSlice {
		return 0, 0, false
	}
	var messages [][2]int
	ring := 0
	for _, color := range s.Colors {
		to := s.Next
		if color[0].Backward {
			to = s.Previous
		}
		for d, next := range to {
			messages = append(messages, [2]int{first + d, first + next})
		}
		ring = max(ring, color[0].Devices)
	}
	n := c.route.Axis.Size
	if ring < 2 || ring > n {
		return 0, 0, false
	}
	busiest, err := devices.Busiest(messages)
	if err != nil || busiest == 0 {
		return 0, 0, false
	}
	return float64(ring - 1), float64(busiest) * float64(ring-1) / float64(n), true
}

// devicesOfSlice returns the lowest id in the first slice and how many devices it has.
// The compiler's list is for each of several slices the same.
func devicesOfSlice(m *mesh.Mesh) (first, n int) {
	slice := 0
	for p := range m.Size() {
		d, _ := m.Device(p)
		switch {
		case p == 0 || d.Slice < slice:
			first, slice, n = d.ID, d.Slice, 1
		case d.Slice == slice:
			first, n = min(first, d.ID), n+1
		}
	}
	return first, n
}

// alongSides is winding for rings that lie along the sides of the torus, phase by
// phase. On a side that is a line, the way back from its last chip to the first takes
// each of its links in the other direction.
func alongSides(c collective, s hlo.Strategy) (hops, load float64, ok bool) {
	var sides [3]mesh.Side
	chips := 1
	for _, side := range c.route.Sides {
		sides[side.Name[0]-'x'] = side
		chips *= side.Chips
	}
	type direction struct {
		side     int
		backward bool
	}
	have := make([]float64, len(s.Colors)) // of its share, what a chip has before the phase
	for k := range have {
		have[k] = 1 / float64(chips)
	}
	for phase := range s.Colors[0] {
		links, most, steps := map[direction]float64{}, 0.0, 0
		for k, color := range s.Colors {
			r := color[phase]
			n := max(1, sides[r.Side].Chips)
			if r.Devices != 0 && r.Devices != n {
				return 0, 0, false
			}
			sent := have[k] * float64(n-1) * float64(max(1, sides[r.Side].Apart))
			have[k] *= float64(n)
			steps = max(steps, n-1)
			for _, backward := range []bool{false, true} {
				if r.Torus && backward != r.Backward {
					continue
				}
				d := direction{r.Side, backward}
				links[d] += sent
				most = max(most, links[d])
			}
		}
		hops, load = hops+float64(steps), load+most
	}
	return hops, load, load > 0
}
