// Package mesh arranges devices on named axes and knows the machines they sit
// in: hosts, slices, pods and the facts of each TPU generation.
//
//	m, err := mesh.New([]mesh.Axis{{"dp_shard", 4}, {"tp", 2}}, nil)
//	m.Groups("tp") // [[0 1] [2 3] [4 5] [6 7]]
//
// A device has two numbers. Its position is its place in the mesh, counted row
// by row with the first axis slowest; compiled programs (shardings, replica
// groups, partition ids) speak of positions only. Its id is the number the
// runtime gave it; ids go into the device assignment of a compilation, entry
// p being the id of the device at position p.
package mesh

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"titan/internal/nearest"
)

// Axis is one named direction of a mesh with its number of devices.
type Axis struct {
	Name string
	Size int
}

// String returns "name=size".
func (a Axis) String() string { return fmt.Sprintf("%s=%d", a.Name, a.Size) }

// Mesh arranges device ids on named axes, first axis slowest (row-major). It
// never changes once made and may be shared between goroutines.
type Mesh struct {
	axes   []Axis
	stride []int // positions between neighbours along each axis
	ids    []int // device id at each position

	position map[int]int  // of each device id; nil if ids are positions
	devices  []DeviceInfo // by position; nil if only ids are known
}

// New returns a mesh of the given axes. ids holds the device id at every
// position; nil means 0, 1, …, n-1.
//
// It refuses a mesh without axes, names other than [a-zA-Z_][a-zA-Z0-9_]*,
// names used twice, sizes below one, a product of sizes beyond int32 (XLA's
// type for partition ids), and ids that are negative, repeated or not as many as
// the product of the sizes.
func New(axes []Axis, ids []int) (*Mesh, error) {
	n, err := checkAxes(axes)
	if err != nil {
		return nil, err
	}
	m := &Mesh{axes: slices.Clone(axes), stride: make([]int, len(axes))}
	stride := 1
	for i := len(axes) - 1; i >= 0; i-- {
		m.stride[i] = stride
		stride *= axes[i].Size
	}
	if ids == nil {
		m.ids = make([]int, n)
		for i := range m.ids {
			m.ids[i] = i
		}
		return m, nil
	}
	if len(ids) != n {
		return nil, fmt.Errorf("mesh: %s needs %d devices, %d device ids were given", describe(axes), n, len(ids))
	}
	seen := make(map[int]int, n)
	for p, id := range ids {
		if id < 0 {
			return nil, fmt.Errorf("mesh: device id %d at position %d is negative", id, p)
		}
		if q, ok := seen[id]; ok {
			return nil, fmt.Errorf("mesh: device id %d stands at position %d and again at position %d", id, q, p)
		}
		seen[id] = p
	}
	m.ids = slices.Clone(ids)
	if !m.IotaIDs() {
		m.position = seen
	}
	return m, nil
}

// checkAxes returns the number of positions of valid axes.
func checkAxes(axes []Axis) (int, error) {
	if len(axes) == 0 {
		return 0, errors.New("mesh: a mesh needs at least one axis; give one of size 1 for a single device")
	}
	n := 1
	seen := make(map[string]int, len(axes))
	for i, a := range axes {
		if !validName(a.Name) {
			return 0, fmt.Errorf("mesh: axis %d is named %q; a name is a letter or underscore followed by letters, digits and underscores", i, a.Name)
		}
		if j, ok := seen[a.Name]; ok {
			return 0, fmt.Errorf("mesh: axes %d and %d are both named %q", j, i, a.Name)
		}
		seen[a.Name] = i
		if a.Size < 1 {
			return 0, fmt.Errorf("mesh: axis %q has size %d; the smallest is 1", a.Name, a.Size)
		}
		if a.Size > math.MaxInt32/n {
			return 0, fmt.Errorf("mesh: %s is more than %d devices", describe(axes), math.MaxInt32)
		}
		n *= a.Size
	}
	return n, nil
}

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return s != ""
}

// describe returns "dp_shard=4 × tp=2".
func describe(axes []Axis) string {
	s := make([]string, len(axes))
	for i, a := range axes {
		s[i] = a.String()
	}
	return strings.Join(s, " × ")
}

// Axes returns the axes, slowest first.
func (m *Mesh) Axes() []Axis {
	if m == nil {
		return nil
	}
	return slices.Clone(m.axes)
}

// index returns the place of an axis among the axes, or -1.
func (m *Mesh) index(name string) int {
	if m == nil {
		return -1
	}
	return slices.IndexFunc(m.axes, func(a Axis) bool { return a.Name == name })
}

// AxisSize returns the number of devices along an axis, 0 if there is no such
// axis.
func (m *Mesh) AxisSize(name string) int {
	if i := m.index(name); i >= 0 {
		return m.axes[i].Size
	}
	return 0
}

// Has reports whether the mesh has an axis of this name.
func (m *Mesh) Has(name string) bool { return m.index(name) >= 0 }

// CheckAxis returns an error that names the nearest axis if the mesh has none of
// this name.
func (m *Mesh) CheckAxis(name string) error {
	if m.Has(name) {
		return nil
	}
	if m == nil {
		return fmt.Errorf("mesh: there is no mesh to have an axis %q", name)
	}
	names := make([]string, len(m.axes))
	for i, a := range m.axes {
		names[i] = a.Name
	}
	hint := nearest.Name(name, names)
	if hint != "" {
		hint = fmt.Sprintf("; did you mean %q?", hint)
	}
	return fmt.Errorf("mesh: there is no axis %q in %v%s", name, m, hint)
}

// Size returns the number of positions, the product of the axis sizes.
func (m *Mesh) Size() int {
	if m == nil {
		return 0
	}
	return len(m.ids)
}

// IDs returns the device id at every position: the device assignment of a
// program compiled for this mesh.
func (m *Mesh) IDs() []int {
	if m == nil {
		return nil
	}
	return slices.Clone(m.ids)
}

// IotaIDs reports whether every device id equals its position.
func (m *Mesh) IotaIDs() bool {
	if m == nil {
		return false
	}
	for p, id := range m.ids {
		if p != id {
			return false
		}
	}
	return true
}

// Coords returns the coordinate of a position along every axis, nil if the
// position is not in 0..Size()-1.
func (m *Mesh) Coords(position int) []int {
	if position < 0 || position >= m.Size() {
		return nil
	}
	c := make([]int, len(m.axes))
	for i := range c {
		c[i] = m.coord(position, i)
	}
	return c
}

// coord returns the coordinate of a position along axis i.
func (m *Mesh) coord(position, i int) int { return position / m.stride[i] % m.axes[i].Size }

// Position returns the position at the given coordinates, one for each axis.
// It is -1 if their number is wrong or one lies outside its axis.
func (m *Mesh) Position(coords ...int) int {
	if m == nil || len(coords) != len(m.axes) {
		return -1
	}
	p := 0
	for i, c := range coords {
		if c < 0 || c >= m.axes[i].Size {
			return -1
		}
		p += c * m.stride[i]
	}
	return p
}

// PositionOf returns the position of a device, and false if the mesh does not
// hold it.
func (m *Mesh) PositionOf(deviceID int) (int, bool) {
	switch {
	case m == nil:
		return 0, false
	case m.position != nil:
		p, ok := m.position[deviceID]
		return p, ok
	}
	return deviceID, deviceID >= 0 && deviceID < len(m.ids)
}

// DeviceCoord returns the coordinate of a device along an axis, and false if
// the mesh has no such device or axis.
func (m *Mesh) DeviceCoord(deviceID int, axis string) (int, bool) {
	i := m.index(axis)
	p, ok := m.PositionOf(deviceID)
	if i < 0 || !ok {
		return 0, false
	}
	return m.coord(p, i), true
}

// Groups returns the sets of positions that differ only along the given axes:
// the replica groups of a collective over them. There is one list for each
// combination of the other axes, in row-major order; members go major to minor
// in the order the axes are given. Without axes every position is alone.
//
// Members are positions, which is what XLA wants in replica_groups of a
// program with one replica that sets use_global_device_ids.
func (m *Mesh) Groups(axes ...string) ([][]int, error) {
	if m == nil {
		return nil, errors.New("mesh: there is no mesh to form groups in")
	}
	in := make([]bool, len(m.axes))
	members := []int{0}
	for _, name := range axes {
		i := m.index(name)
		if i < 0 {
			return nil, m.CheckAxis(name)
		}
		if in[i] {
			return nil, fmt.Errorf("mesh: axis %q is given twice for a group", name)
		}
		in[i] = true
		members = m.spread(members, i)
	}
	leaders := []int{0}
	for i := range m.axes {
		if !in[i] {
			leaders = m.spread(leaders, i)
		}
	}
	groups := make([][]int, len(leaders))
	flat := make([]int, len(leaders)*len(members))
	for g, base := range leaders {
		groups[g] = flat[g*len(members) : (g+1)*len(members) : (g+1)*len(members)]
		for k, off := range members {
			groups[g][k] = base + off
		}
	}
	return groups, nil
}

// spread repeats every position along axis i, that axis being the minor one.
func (m *Mesh) spread(positions []int, i int) []int {
	out := make([]int, 0, len(positions)*m.axes[i].Size)
	for _, p := range positions {
		for c := range m.axes[i].Size {
			out = append(out, p+c*m.stride[i])
		}
	}
	return out
}

// String returns the axes and the number of devices, "dp_shard=4 × tp=2 (8 devices)".
func (m *Mesh) String() string {
	if m == nil {
		return "no mesh"
	}
	noun := "devices"
	if len(m.ids) == 1 {
		noun = "device"
	}
	return fmt.Sprintf("%s (%d %s)", describe(m.axes), len(m.ids), noun)
}

// Equal reports whether both meshes have the same axes in the same order and
// the same device at every position.
func (m *Mesh) Equal(o *Mesh) bool {
	if m == nil || o == nil {
		return m == o
	}
	return slices.Equal(m.axes, o.axes) && slices.Equal(m.ids, o.ids)
}
