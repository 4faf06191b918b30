package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ForTopology arranges devices, as the runtime describes them, on axes so that
// the more an axis is to the right the faster are the links along it.
//
// With several slices the leading axes count the slices: the product of their
// sizes must be the number of slices, so that every other axis stays inside a
// slice. Inside a slice whose coordinates fill a box, axes are laid on the torus
// by layTorus; other devices are taken in the order of process and id, which
// keeps trailing axes inside a host.
//
// It refuses a number of devices other than the axes need, slices of different
// sizes, and an axis that would lie partly inside and partly across slices.
func ForTopology(axes []Axis, devices []DeviceInfo) (*Mesh, error) {
	n, err := checkAxes(axes)
	if err != nil {
		return nil, err
	}
	if n != len(devices) {
		return nil, fmt.Errorf("mesh: %s needs %d devices, there are %d", describe(axes), n, len(devices))
	}
	bySlice, err := splitSlices(devices)
	if err != nil {
		return nil, err
	}
	outer, err := sliceAxes(axes, len(bySlice), len(bySlice[0]))
	if err != nil {
		return nil, err
	}
	ids := make([]int, 0, n)
	for _, slice := range bySlice {
		for _, d := range laySlice(axes[outer:], slice) {
			ids = append(ids, d.ID)
		}
	}
	m, err := New(axes, ids)
	if err != nil {
		return nil, err
	}
	return m.WithDevices(devices)
}

// splitSlices groups devices by slice, in the order of the slice numbers.
func splitSlices(devices []DeviceInfo) ([][]DeviceInfo, error) {
	groups := map[int][]DeviceInfo{}
	for _, d := range devices {
		groups[d.Slice] = append(groups[d.Slice], d)
	}
	if len(groups) == 0 {
		return nil, errors.New("mesh: there are no devices")
	}
	var numbers []int
	for s := range groups {
		numbers = append(numbers, s)
	}
	slices.Sort(numbers)
	var out [][]DeviceInfo
	for _, s := range numbers {
		if first := numbers[0]; len(groups[s]) != len(groups[first]) {
			return nil, fmt.Errorf("mesh: slice %d has %d devices, slice %d has %d; slices must be equal",
				first, len(groups[first]), s, len(groups[s]))
		}
		out = append(out, groups[s])
	}
	return out, nil
}

// sliceAxes returns how many leading axes count the slices. Axes of size 1
// count for neither side.
func sliceAxes(axes []Axis, count, perSlice int) (int, error) {
	across := 1
	for i, a := range axes {
		if across == count {
			return i, nil
		}
		if count%(across*a.Size) != 0 {
			left := count / across
			return 0, fmt.Errorf("mesh: axis %v would lie partly across slices and partly inside one: there are %d slices of %d devices and %d of them are left to count; "+
				"give the leading axes a product of %d, for instance an axis of %d before %q",
				a, count, perSlice, left, count, left, a.Name)
		}
		across *= a.Size
	}
	return len(axes), nil
}

// laySlice orders the devices of one slice for the axes inside it.
func laySlice(axes []Axis, devices []DeviceInfo) []DeviceInfo {
	if t, ok := newTorus(devices); ok {
		return t.lay(axes)
	}
	ordered := slices.Clone(devices)
	slices.SortFunc(ordered, func(a, b DeviceInfo) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.ID, b.ID))
	})
	return ordered
}
