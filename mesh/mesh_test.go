package mesh

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func newMesh(t *testing.T, ids []int, axes ...Axis) *Mesh {
	t.Helper()
	m, err := New(axes, ids)
	require.NoError(t, err)
	return m
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		axes []Axis
		ids  []int
		want []string
	}{
		{"no axes", nil, nil, []string{"at least one axis"}},
		{"empty name", []Axis{{"", 2}}, nil, []string{"axis 0", `""`}},
		{"leading digit", []Axis{{"dp", 2}, {"2d", 2}}, nil, []string{"axis 1", `"2d"`}},
		{"hyphen", []Axis{{"dp-shard", 2}}, nil, []string{`"dp-shard"`}},
		{"not ASCII", []Axis{{"é", 2}}, nil, []string{`"é"`}},
		{"duplicate name", []Axis{{"dp", 2}, {"tp", 1}, {"dp", 4}}, nil, []string{"axes 0 and 2", `"dp"`}},
		{"zero size", []Axis{{"dp", 0}}, nil, []string{`"dp"`, "size 0"}},
		{"negative size", []Axis{{"dp", 2}, {"tp", -3}}, nil, []string{`"tp"`, "size -3"}},
		{"too many", []Axis{{"a", 1 << 20}, {"b", 1 << 20}}, nil, []string{"a=1048576 × b=1048576", "2147483647"}},
		{"overflows int64", []Axis{{"a", math.MaxInt}, {"b", math.MaxInt}}, nil, []string{"2147483647"}},
		{"too few ids", []Axis{{"dp", 2}, {"tp", 2}}, []int{0, 1, 2}, []string{"dp=2 × tp=2", "4 devices", "3 device ids"}},
		{"no ids", []Axis{{"dp", 2}}, []int{}, []string{"2 devices", "0 device ids"}},
		{"negative id", []Axis{{"dp", 2}}, []int{0, -1}, []string{"-1", "position 1"}},
		{"duplicate id", []Axis{{"dp", 3}}, []int{5, 6, 5}, []string{"device id 5", "position 0", "position 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.axes, c.ids)
			require.Error(t, err)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

func TestAccessors(t *testing.T) {
	m := newMesh(t, nil, Axis{"dp_shard", 4}, Axis{"tp", 2})
	require.Equal(t, "dp_shard=4 × tp=2 (8 devices)", m.String())
	require.Equal(t, []Axis{{"dp_shard", 4}, {"tp", 2}}, m.Axes())
	require.Equal(t, 8, m.Size())
	require.Equal(t, 4, m.AxisSize("dp_shard"))
	require.Equal(t, 0, m.AxisSize("pp"))
	require.True(t, m.Has("tp"))
	require.False(t, m.Has("pp"))
	require.True(t, m.IotaIDs())
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, m.IDs())
	require.Equal(t, "tp=1 (1 device)", newMesh(t, nil, Axis{"tp", 1}).String())

	m.Axes()[0].Size = 99
	m.IDs()[0] = 99
	require.Equal(t, 4, m.AxisSize("dp_shard"), "a mesh does not change through what it returned")
	require.True(t, m.IotaIDs())

	ids := []int{7, 3}
	own := newMesh(t, ids, Axis{"dp", 2})
	ids[0] = 1
	require.Equal(t, []int{7, 3}, own.IDs(), "a mesh does not change through what it was given")
}

func TestNewKeepsSequentialIDs(t *testing.T) {
	m := newMesh(t, []int{0, 1}, Axis{"dp", 2})
	require.True(t, m.IotaIDs())
	p, ok := m.PositionOf(1)
	require.True(t, ok)
	require.Equal(t, 1, p)
	_, ok = m.PositionOf(2)
	require.False(t, ok)
	_, ok = m.PositionOf(-1)
	require.False(t, ok)
}

func TestCoords(t *testing.T) {
	m := newMesh(t, []int{10, 11, 12, 20, 21, 22}, Axis{"dp", 2}, Axis{"tp", 3})
	require.False(t, m.IotaIDs())
	require.Equal(t, []int{1, 2}, m.Coords(5))
	require.Equal(t, 5, m.Position(1, 2))
	require.Nil(t, m.Coords(6))
	require.Nil(t, m.Coords(-1))
	require.Equal(t, -1, m.Position(1))
	require.Equal(t, -1, m.Position(1, 3))
	require.Equal(t, -1, m.Position(-1, 0))
	for p := range m.Size() {
		require.Equal(t, p, m.Position(m.Coords(p)...))
	}
	c, ok := m.DeviceCoord(21, "tp")
	require.True(t, ok)
	require.Equal(t, 1, c)
	c, ok = m.DeviceCoord(21, "dp")
	require.True(t, ok)
	require.Equal(t, 1, c)
	_, ok = m.DeviceCoord(21, "pp")
	require.False(t, ok)
	_, ok = m.DeviceCoord(0, "tp")
	require.False(t, ok)
}

func TestGroups(t *testing.T) {
	m := newMesh(t, []int{7, 6, 5, 4, 3, 2, 1, 0}, Axis{"a", 2}, Axis{"b", 2}, Axis{"c", 2})
	for _, c := range []struct {
		axes []string
		want [][]int
	}{
		{nil, [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
		{[]string{"c"}, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
		{[]string{"b"}, [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
		{[]string{"a"}, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{[]string{"a", "c"}, [][]int{{0, 1, 4, 5}, {2, 3, 6, 7}}},
		{[]string{"c", "a"}, [][]int{{0, 4, 1, 5}, {2, 6, 3, 7}}},
		{[]string{"a", "b", "c"}, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}},
	} {
		got, err := m.Groups(c.axes...)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c.axes)
	}
	_, err := m.Groups("d")
	require.ErrorContains(t, err, `no axis "d"`)
	_, err = m.Groups("a", "b", "a")
	require.ErrorContains(t, err, `"a" is given twice`)

	g, err := m.Groups("c")
	require.NoError(t, err)
	_ = append(g[0], 99)
	require.Equal(t, []int{2, 3}, g[1], "growing one group leaves the next alone")
}

// Groups partition the positions, members share the other coordinates, and
// their order is that of the axes given.
func TestGroupsProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		axes := make([]Axis, 1+r.IntN(5))
		for i := range axes {
			axes[i] = Axis{string(rune('a' + i)), 1 + r.IntN(4)}
		}
		m := newMesh(t, nil, axes...)
		var over []string
		for _, i := range r.Perm(len(axes))[:r.IntN(len(axes)+1)] {
			over = append(over, axes[i].Name)
		}
		groups, err := m.Groups(over...)
		require.NoError(t, err)
		seen := make([]bool, m.Size())
		for _, g := range groups {
			for k, p := range g {
				require.False(t, seen[p])
				seen[p] = true
				rank := 0
				for i, a := range axes {
					if !slices.Contains(over, a.Name) {
						require.Equal(t, m.Coords(g[0])[i], m.Coords(p)[i])
					}
				}
				for _, name := range over {
					c, _ := m.DeviceCoord(p, name)
					rank = rank*m.AxisSize(name) + c
				}
				require.Equal(t, k, rank)
			}
		}
		require.NotContains(t, seen, false)
	}
}

func TestEqual(t *testing.T) {
	m := newMesh(t, nil, Axis{"dp", 2}, Axis{"tp", 2})
	require.True(t, m.Equal(newMesh(t, []int{0, 1, 2, 3}, Axis{"dp", 2}, Axis{"tp", 2})))
	require.False(t, m.Equal(newMesh(t, []int{0, 1, 3, 2}, Axis{"dp", 2}, Axis{"tp", 2})))
	require.False(t, m.Equal(newMesh(t, nil, Axis{"tp", 2}, Axis{"dp", 2})))
	require.False(t, m.Equal(newMesh(t, nil, Axis{"dp", 4})))
	require.False(t, m.Equal(nil))
	var none *Mesh
	require.True(t, none.Equal(nil))
	require.False(t, none.Equal(m))
}

func TestCheckAxis(t *testing.T) {
	m := newMesh(t, nil, Axis{"dp_shard", 2}, Axis{"tp", 2})
	require.NoError(t, m.CheckAxis("tp"))
	require.ErrorContains(t, m.CheckAxis("dp_sard"), `no axis "dp_sard" in dp_shard=2 × tp=2 (4 devices); did you mean "dp_shard"?`)
	require.EqualError(t, m.CheckAxis("sequence"), `mesh: there is no axis "sequence" in dp_shard=2 × tp=2 (4 devices)`)
}

func TestNoMesh(t *testing.T) {
	var m *Mesh
	require.Equal(t, "no mesh", m.String())
	require.Zero(t, m.Size())
	require.Zero(t, m.AxisSize("tp"))
	require.Nil(t, m.Axes())
	require.Nil(t, m.IDs())
	require.Nil(t, m.Coords(0))
	require.Equal(t, -1, m.Position())
	require.False(t, m.IotaIDs())
	require.False(t, m.Has("tp"))
	_, ok := m.DeviceCoord(0, "tp")
	require.False(t, ok)
	_, ok = m.Device(0)
	require.False(t, ok)
	for _, err := range []error{
		m.CheckAxis("tp"),
		func() error { _, err := m.Groups(); return err }(),
		func() error { _, err := m.Hosts(); return err }(),
		func() error { _, err := m.Crossing("tp"); return err }(),
		func() error { _, err := m.WithDevices(nil); return err }(),
	} {
		require.Error(t, err)
	}
}
