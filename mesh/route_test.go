package mesh

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The devices that a topology says it has are those that libtpu has.
func TestDeviceInfosAgainstLibtpu(t *testing.T) {
	devices, _ := realDevices(t)
	for name, want := range devices {
		top, err := ParseTopology(name)
		require.NoError(t, err)
		require.Equal(t, want, top.DeviceInfos(), name)
	}
	require.Nil(t, Topology{Kind: "v9", Shape: []int{1, 1}, Slices: 1}.DeviceInfos())
}

func TestRoute(t *testing.T) {
	for _, c := range []struct {
		topology string
		axes     []Axis
		want     []Route // the axes' sizes are filled in
	}{
		{"v5e:2x4", []Axis{{"dp_shard", 2}, {"tp", 4}}, []Route{
			{Network: ICI, Slices: 1, Hosts: 2, Cores: 1, Sides: []Side{{"y", 2, false, 2}}, Links: 2, Closed: true},
			{Network: IntraHost, Slices: 1, Hosts: 1, Cores: 1, Sides: []Side{{"x", 2, false, 1}, {"y", 2, false, 1}}, Links: 1, Closed: true},
		}},
		{"v6e:16x16", []Axis{{"dp_shard", 16}, {"tp", 16}}, []Route{
			{Network: ICI, Slices: 1, Hosts: 8, Cores: 1, Sides: []Side{{"y", 16, true, 1}}, Links: 1, Closed: true},
			{Network: ICI, Slices: 1, Hosts: 8, Cores: 1, Sides: []Side{{"x", 16, true, 1}}, Links: 1, Closed: true},
		}},
		{"tpu7x:4x4x4*2", []Axis{{"dp_replicate", 2}, {"dp_shard", 16}, {"cp", 4}, {"tp", 2}}, []Route{
			{Network: DCN, Slices: 2, Hosts: 2, Cores: 1},
			{Network: ICI, Slices: 1, Hosts: 8, Cores: 1, Sides: []Side{{"y", 4, true, 1}, {"z", 4, true, 1}}, Links: 1, Closed: true},
			{Network: ICI, Slices: 1, Hosts: 2, Cores: 1, Sides: []Side{{"x", 4, true, 1}}, Links: 1, Closed: true},
			{Network: IntraHost, Slices: 1, Hosts: 1, Cores: 2, Closed: true},
		}},
		{"tpu7x:2x2x2*2", []Axis{{"pp", 4}, {"dp_shard", 4}, {"tp", 2}}, []Route{
			{Network: DCN, Slices: 2, Hosts: 4, Cores: 1, Sides: []Side{{"z", 2, false, 1}}, Links: 1},
			{Network: IntraHost, Slices: 1, Hosts: 1, Cores: 1, Sides: []Side{{"x", 2, false, 1}, {"y", 2, false, 1}}, Links: 1, Closed: true},
			{Network: IntraHost, Slices: 1, Hosts: 1, Cores: 2, Closed: true},
		}},
		{"v5e:4x4", []Axis{{"dp_shard", 1}, {"tp", 16}}, []Route{
			{Network: NoNetwork, Slices: 1, Hosts: 1, Cores: 1, Closed: true},
			{Network: ICI, Slices: 1, Hosts: 4, Cores: 1, Sides: []Side{{"x", 4, false, 1}, {"y", 4, false, 1}}, Links: 1, Closed: true},
		}},
		{"tpu7x:4x4x4", []Axis{{"dp_shard", 32}, {"tp", 4}}, []Route{
			{Network: ICI, Slices: 1, Hosts: 16, Cores: 1, Sides: []Side{{"x", 2, true, 2}, {"y", 4, true, 1}, {"z", 4, true, 1}}, Links: 2, Closed: true},
			{Network: IntraHost, Slices: 1, Hosts: 1, Cores: 2, Sides: []Side{{"x", 2, false, 1}}, Links: 1, Closed: true},
		}},
	} {
		top, err := ParseTopology(c.topology)
		require.NoError(t, err)
		m := layout(t, top.DeviceInfos(), c.axes...)
		for i, a := range c.axes {
			got, err := m.Route(a.Name)
			require.NoError(t, err)
			want := c.want[i]
			want.Axis = a
			require.Equal(t, want, got, "%s %v", c.topology, a)
		}
	}
}

// Devices without a torus have processes only.
func TestRouteWithoutTorus(t *testing.T) {
	m := layout(t, []DeviceInfo{{ID: 0}, {ID: 1}, {ID: 2, Process: 1}, {ID: 3, Process: 1}}, Axis{"dp", 2}, Axis{"tp", 2})
	r, err := m.Route("tp")
	require.NoError(t, err)
	require.Equal(t, Route{Axis: Axis{"tp", 2}, Network: IntraHost, Slices: 1, Hosts: 1, Cores: 1}, r)
	r, err = m.Route("dp")
	require.NoError(t, err)
	require.Equal(t, Route{Axis: Axis{"dp", 2}, Network: DCN, Slices: 1, Hosts: 2, Cores: 1}, r)
	require.Equal(t, "network between 2 hosts", r.String())
	_, err = m.Route("cp")
	require.ErrorContains(t, err, `no axis "cp"`)
	_, err = newMesh(t, nil, Axis{"tp", 2}).Route("tp")
	require.ErrorContains(t, err, "ForTopology or WithDevices")
}

// A torus of two dimensions has no z.
func TestRouteFlat(t *testing.T) {
	var ds []DeviceInfo
	for i := range 32 {
		ds = append(ds, DeviceInfo{ID: i, Process: i / 4, Coords: []int{i % 16, i / 16}})
	}
	r, err := layout(t, ds, Axis{"dp", 2}, Axis{"tp", 16}).Route("tp")
	require.NoError(t, err)
	require.Equal(t, "ICI x ring of 16", r.String())
}

func TestRouteString(t *testing.T) {
	for want, r := range map[string]Route{
		"one device ":                   {Slices: 1, Cores: 1},
		"2 devices of a chip same chip": {Network: IntraHost, Slices: 1, Cores: 2},
		"2 devices of a chip, ICI x ring of 4, y line of 2 1 link":     {Network: ICI, Slices: 1, Cores: 2, Sides: []Side{{"x", 4, true, 1}, {"y", 2, false, 1}}, Links: 1},
		"ICI z line of 2 up to 2 links":                                {Network: ICI, Slices: 1, Cores: 1, Sides: []Side{{"z", 2, false, 1}}, Links: 2},
		"data-centre network between 2 slices ":                        {Network: DCN, Slices: 2, Cores: 1},
		"data-centre network between 2 slices, ICI z line of 2 1 link": {Network: DCN, Slices: 2, Cores: 1, Sides: []Side{{"z", 2, false, 1}}, Links: 1},
		"network between 3 hosts ":                                     {Network: DCN, Slices: 1, Hosts: 3, Cores: 1},
		"inside a host ":                                               {Network: IntraHost, Slices: 1, Hosts: 1, Cores: 1},
	} {
		require.Equal(t, want, r.String()+" "+r.Apart())
	}
}
