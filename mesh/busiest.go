package mesh

import (
	"fmt"
	"slices"
)

// Busiest returns how many of the messages between pairs of devices, given by ids,
// take the same link between chips in the same direction, at most: 0 if all stay on
// their chips. A message goes along x first, on every side the shorter way; of two
// equally short ways forwards. It fails for messages between slices, and where the
// devices' places are not known.
func (m *Mesh) Busiest(messages [][2]int) (int, error) {
	if m == nil || len(m.devices) == 0 {
		return 0, errNoPlace
	}
	at, slice := make(map[int]DeviceInfo, len(m.devices)), map[int][]DeviceInfo{}
	for _, d := range m.devices {
		at[d.ID] = d
		slice[d.Slice] = append(slice[d.Slice], d)
	}
	traffic, most := map[int]*load{}, 0
	for s, devices := range slice {
		t, placed := newTorus(devices)
		if !placed {
			return 0, errNoPlace
		}
		traffic[s] = newLoad(t)
	}
	for _, pair := range messages {
		from, known := at[pair[0]]
		to, both := at[pair[1]]
		if !known || !both {
			return 0, fmt.Errorf("mesh: a message from device %d to %d, one of which is not in the mesh", pair[0], pair[1])
		}
		if from.Slice != to.Slice {
			return 0, fmt.Errorf("mesh: a message from device %d to %d, in another slice, takes no links between chips", pair[0], pair[1])
		}
		l := traffic[from.Slice]
		l.send(l.chip(from), l.chip(to))
		most = max(most, l.most)
	}
	return most, nil
}

// load counts the messages on the links of a torus.
type load struct {
	*torus
	links []int // by chip, side and direction; chips as the box is laid out
	most  int
	here  []int // where send is
}

func newLoad(t *torus) *load {
	sides := len(t.extent) - 1
	return &load{torus: t, links: make([]int, product(t.extent[1:])*sides*2), here: make([]int, sides)}
}

// chip returns where in the box a device's chip is.
func (l *load) chip(d DeviceInfo) []int {
	at := slices.Clone(d.Coords)
	for i := range at {
		at[i] -= l.low[i+1]
	}
	return at
}

// send adds a message between two places in the box to the links on its way.
func (l *load) send(from, to []int) {
	copy(l.here, from)
	for side, want := range to {
		n := l.extent[side+1]
		ahead := want - l.here[side]
		if l.wraps[side+1] {
			if ahead = (ahead%n + n) % n; 2*ahead > n {
				ahead -= n
			}
		}
		step, direction := 1, 0
		if ahead < 0 {
			step, direction, ahead = -1, 1, -ahead
		}
		for range ahead {
			chip := 0
			for i, c := range slices.Backward(l.here) {
				chip = chip*l.extent[i+1] + c
			}
			link := (chip*len(l.here)+side)*2 + direction
			l.links[link]++
			l.most = max(l.most, l.links[link])
			if l.here[side] += step; l.wraps[side+1] {
				l.here[side] = (l.here[side] + n) % n
			}
		}
	}
}
