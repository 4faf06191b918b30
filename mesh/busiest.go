package mesh

import "fmt"

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
	boxes := map[int]*torus{}
	for s, devices := range slice {
		t, placed := newTorus(devices)
		if !placed {
			return 0, errNoPlace
		}
		boxes[s] = t
	}
	type link struct {
		slice     int
		chip      int
		direction int // twice the side, one more if backwards
	}
	load, most := map[link]int{}, 0
	for _, pair := range messages {
		from, known := at[pair[0]]
		to, both := at[pair[1]]
		if !known || !both {
			return 0, fmt.Errorf("mesh: a message from device %d to %d, one of which is not in the mesh", pair[0], pair[1])
		}
		if from.Slice != to.Slice {
			return 0, fmt.Errorf("mesh: a message from device %d to %d, in another slice, takes no links between chips", pair[0], pair[1])
		}
		boxes[from.Slice].walk(from, to, func(chip, direction int) {
			l := link{from.Slice, chip, direction}
			load[l]++
			most = max(most, load[l])
		})
	}
	return most, nil
}

// walk calls link for every link on the way: the chip that it leaves, numbered as the
// box is laid out, and its direction.
func (t *torus) walk(from, to DeviceInfo, link func(chip, direction int)) {
	here := make([]int, len(from.Coords))
	copy(here, from.Coords)
	for side, want := range to.Coords {
		n := t.extent[side+1]
		ahead := want - here[side]
		if t.wraps[side+1] {
			if ahead = (ahead%n + n) % n; 2*ahead > n {
				ahead -= n
			}
		}
		step, direction := 1, 2*side
		if ahead < 0 {
			step, direction, ahead = -1, direction+1, -ahead
		}
		for range ahead {
			chip := 0
			for i := len(here) - 1; i >= 0; i-- {
				chip = chip*t.extent[i+1] + here[i]
			}
			link(chip, direction)
			if here[side] += step; t.wraps[side+1] {
				here[side] = (here[side] + n) % n
			}
		}
	}
}
