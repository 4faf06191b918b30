package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ForTopology arranges devices, as the runtime describes them, on axes so that
// the more an axis is to the right the faster are the links along it.
//
// With several slices, the leading axes lie across them: each takes as many slices
// as its size and those that are left have in common, and what remains of it lies
// inside. outer names the axes that may lie across slices; without any, all may.
// Devices at the same place on the other axes are at the same place in every
// slice. Inside a slice whose coordinates fill a box, axes are laid on the torus
// by torus.lay; other devices are taken in the order of process and id, which
// keeps trailing axes inside a host.
//
// It refuses a number of devices other than the axes need, slices of different
// sizes, and outer axes that cannot count the slices.
func ForTopology(axes []Axis, devices []DeviceInfo, outer ...string) (*Mesh, error) {
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
	across, err := acrossSlices(axes, len(bySlice), outer)
	if err != nil {
		return nil, err
	}
	inner := slices.Clone(axes)
	for i := range inner {
		inner[i].Size /= across[i]
	}
	laid := make([][]DeviceInfo, len(bySlice))
	for i, slice := range bySlice {
		laid[i] = laySlice(inner, slice)
	}
	ids := make([]int, n)
	for p := range ids {
		// From the last axis to the first, the coordinate's parts are digits of the
		// slice and of the place in it.
		slice, place, rest := 0, 0, p
		outside, inside := 1, 1
		for i := len(axes) - 1; i >= 0; i-- {
			c := rest % axes[i].Size
			rest /= axes[i].Size
			slice += c / inner[i].Size * outside
			place += c % inner[i].Size * inside
			outside, inside = outside*across[i], inside*inner[i].Size
		}
		ids[p] = laid[slice][place].ID
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

// acrossSlices returns over how many of count slices each axis lies. The leading
// axes take what they can; count is covered if it divides the product of the
// sizes of outer.
func acrossSlices(axes []Axis, count int, outer []string) ([]int, error) {
	across := make([]int, len(axes))
	left := count
	var may []Axis
	for i, a := range axes {
		across[i] = 1
		if len(outer) > 0 && !slices.Contains(outer, a.Name) {
			continue
		}
		may = append(may, a)
		across[i] = gcd(a.Size, left)
		left /= across[i]
	}
	if left > 1 {
		have := "there is none of them"
		if len(may) > 0 {
			have = fmt.Sprintf("%s is no multiple of %d", describe(may), count)
		}
		return nil, fmt.Errorf("mesh: %d slices share only the data-centre network, and only %s may lie across slices: %s",
			count, strings.Join(outer, " and "), have)
	}
	return across, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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
