package mesh

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// realDevices returns what libtpu says of the devices of some topologies; see
// testdata/devices.py.
func realDevices(t *testing.T) (devices map[string][]DeviceInfo, kind map[string]string) {
	t.Helper()
	data, err := os.ReadFile("testdata/devices.json")
	require.NoError(t, err)
	var file map[string]struct {
		Kind    string
		Devices [][]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(data, &file))
	devices, kind = map[string][]DeviceInfo{}, map[string]string{}
	for name, c := range file {
		kind[name] = c.Kind
		for _, f := range c.Devices {
			var d DeviceInfo
			for i, dst := range []any{&d.ID, &d.Process, &d.Slice, &d.Coords, &d.Core} {
				require.NoError(t, json.Unmarshal(f[i], dst))
			}
			devices[name] = append(devices[name], d)
		}
	}
	return devices, kind
}

// The table of chips agrees with libtpu on numbers of devices and hosts.
func TestTopologyAgainstLibtpu(t *testing.T) {
	devices, kind := realDevices(t)
	require.Len(t, devices, 13)
	for name, ds := range devices {
		top, err := ParseTopology(name)
		require.NoError(t, err)
		require.Equal(t, len(ds), top.Devices(), name)
		hosts := map[int]bool{}
		for _, d := range ds {
			hosts[d.Process] = true
		}
		require.Equal(t, len(hosts), top.Hosts(), name)
		c, err := ChipOf(kind[name])
		require.NoError(t, err, name)
		require.Equal(t, top.Kind, c.Kind, name)
	}
}

// hops counts the links between two chips of a slice.
func hops(a, b DeviceInfo, tor *torus) int {
	n := 0
	for i := range a.Coords {
		d := max(a.Coords[i]-b.Coords[i], b.Coords[i]-a.Coords[i])
		if tor.wraps[i+1] {
			d = min(d, tor.extent[i+1]-d)
		}
		n += d
	}
	return n
}

func layout(t *testing.T, devices []DeviceInfo, axes ...Axis) *Mesh {
	t.Helper()
	m, err := ForTopology(axes, devices)
	require.NoError(t, err)
	return m
}

func crossing(t *testing.T, m *Mesh, axis string) Network {
	t.Helper()
	n, err := m.Crossing(axis)
	require.NoError(t, err)
	return n
}

func TestForTopologyV5e(t *testing.T) {
	devices, _ := realDevices(t)
	// Two hosts of 2×2 chips: four devices closest to each other are one host.
	m := layout(t, devices["v5e:2x4"], Axis{"dp", 2}, Axis{"tp", 4})
	require.Equal(t, []int{0, 1, 3, 2, 4, 5, 7, 6}, m.IDs(), "rings of neighbours")
	require.Equal(t, IntraHost, crossing(t, m, "tp"))
	require.Equal(t, ICI, crossing(t, m, "dp"))
	hosts, err := m.Hosts()
	require.NoError(t, err)
	require.Equal(t, []Host{
		{Process: 0, Positions: []int{0, 1, 2, 3}},
		{Process: 1, Positions: []int{4, 5, 6, 7}},
	}, hosts)

	// One axis over everything is a ring through all chips.
	m = layout(t, devices["v5e:2x4"], Axis{"dp", 8})
	require.Equal(t, []int{0, 1, 3, 5, 7, 6, 4, 2}, m.IDs(), "up one column and down the other")
	require.Equal(t, ICI, crossing(t, m, "dp"))

	// On 16×16 the sides are closed rings; they are not cut for an axis of 16.
	m = layout(t, devices["v6e:16x16"], Axis{"dp", 16}, Axis{"tp", 16})
	first, _ := m.Device(0)
	for p := range 16 {
		d, _ := m.Device(p)
		require.Equal(t, first.Coords[1], d.Coords[1], "tp lies along one side")
	}

	// 8×16: only the long side closes.
	m = layout(t, devices["v5e:8x16"], Axis{"dp", 8}, Axis{"tp", 16})
	for p := range 16 {
		d, _ := m.Device(p)
		require.Equal(t, []int{0, p, 0}, d.Coords)
	}
}

func TestForTopologyCores(t *testing.T) {
	devices, _ := realDevices(t)
	m := layout(t, devices["tpu7x:4x4x4"], Axis{"dp", 64}, Axis{"tp", 2})
	groups, err := m.Groups("tp")
	require.NoError(t, err)
	for _, g := range groups {
		a, _ := m.Device(g[0])
		b, _ := m.Device(g[1])
		require.Equal(t, a.Coords, b.Coords, "the last axis takes the cores of a chip")
		require.NotEqual(t, a.Core, b.Core)
	}
	require.Equal(t, IntraHost, crossing(t, m, "tp"))
	require.Equal(t, ICI, crossing(t, m, "dp"))

	// A whole plane beats a line: 16 chips of 4×4×4 are one of its faces.
	m = layout(t, devices["v5p:4x4x4"], Axis{"dp", 4}, Axis{"tp", 16})
	for p := range 16 {
		d, _ := m.Device(p)
		require.Zero(t, d.Coords[2])
	}
	// A ring of four is not cut for an axis of four.
	m = layout(t, devices["v5p:4x4x4"], Axis{"dp", 16}, Axis{"tp", 4})
	for p := range 4 {
		d, _ := m.Device(p)
		require.Equal(t, []int{p, 0, 0}, d.Coords)
	}
}

func TestForTopologySlices(t *testing.T) {
	devices, _ := realDevices(t)
	ds := devices["tpu7x:2x2x2*2"] // two slices of 16 devices
	m := layout(t, ds, Axis{"dp_replicate", 2}, Axis{"dp_shard", 8}, Axis{"tp", 2})
	require.Equal(t, DCN, crossing(t, m, "dp_replicate"))
	require.Equal(t, ICI, crossing(t, m, "dp_shard"))
	require.Equal(t, IntraHost, crossing(t, m, "tp"))
	require.GreaterOrEqual(t, m.IDs()[0], 100000)
	require.Less(t, m.IDs()[15], 200000)
	require.GreaterOrEqual(t, m.IDs()[16], 200000)
	hosts, err := m.Hosts()
	require.NoError(t, err)
	require.Len(t, hosts, 4)
	for i, h := range hosts {
		require.Equal(t, i, h.Process)
		require.Equal(t, i/2, h.Slice)
		require.Len(t, h.Positions, 8)
	}

	// Leading axes of size 1 are neither here nor there.
	m = layout(t, ds, Axis{"pp", 1}, Axis{"dp_replicate", 2}, Axis{"ep", 1}, Axis{"dp_shard", 16})
	require.Equal(t, NoNetwork, crossing(t, m, "pp"))
	require.Equal(t, DCN, crossing(t, m, "dp_replicate"))

	// The same place in every slice: replicas meet their likes.
	groups, err := m.Groups("dp_replicate")
	require.NoError(t, err)
	for _, g := range groups {
		a, _ := m.Device(g[0])
		b, _ := m.Device(g[1])
		require.Equal(t, a.Coords, b.Coords)
		require.Equal(t, a.Core, b.Core)
	}

	_, err = ForTopology([]Axis{{"dp_shard", 32}}, ds, "pp", "dp_replicate")
	require.ErrorContains(t, err, "only pp and dp_replicate may lie across slices: there is none of them")
	_, err = ForTopology([]Axis{{"dp_replicate", 1}, {"dp_shard", 32}}, ds, "pp", "dp_replicate")
	require.ErrorContains(t, err, "dp_replicate=1 is no multiple of 2")
	_, err = ForTopology([]Axis{{"dp", 16}}, ds)
	require.ErrorContains(t, err, "dp=16 needs 16 devices, there are 32")
	_, err = ForTopology([]Axis{{"dp", 31}}, ds[1:])
	require.ErrorContains(t, err, "slice 0 has 15 devices, slice 1 has 16")
	_, err = ForTopology(nil, ds)
	require.Error(t, err)
}

func TestForTopologyManySlices(t *testing.T) {
	devices, _ := realDevices(t)
	var ds []DeviceInfo
	for s := range 6 {
		for _, d := range devices["v5e:2x2"] {
			d.ID, d.Slice, d.Process = d.ID+100*s, s, s
			ds = append(ds, d)
		}
	}
	m := layout(t, ds, Axis{"pp", 3}, Axis{"dp", 2}, Axis{"tp", 4})
	require.Equal(t, DCN, crossing(t, m, "pp"))
	require.Equal(t, DCN, crossing(t, m, "dp"))
	require.Equal(t, IntraHost, crossing(t, m, "tp"))
	_, err := ForTopology([]Axis{{"pp", 2}, {"dp", 12}}, ds, "pp")
	require.ErrorContains(t, err, "6 slices share only the data-centre network, and only pp may lie across slices: pp=2 is no multiple of 6")
}

// An axis may lie partly across slices and partly inside: its first coordinates
// count slices, and whatever lies inside is at the same place in every slice.
func TestForTopologyPartlyAcross(t *testing.T) {
	top := Topology{Kind: "v5e", Shape: []int{2, 4}, Slices: 4}
	ds := top.DeviceInfos()
	m := layout(t, ds, Axis{"pp", 2}, Axis{"dp_replicate", 4}, Axis{"dp_shard", 2}, Axis{"tp", 2})
	places := map[int][]DeviceInfo{}
	for p := range m.Size() {
		c := m.Coords(p)
		d, _ := m.Device(p)
		require.Equal(t, 2*c[0]+c[1]/2, d.Slice, "pp counts pairs of slices, the halves of dp_replicate the slices of a pair")
		inside := c[1]%2*4 + c[2]*2 + c[3]
		places[inside] = append(places[inside], d)
	}
	require.Len(t, places, 8)
	for _, same := range places {
		for _, d := range same {
			require.Equal(t, same[0].Coords, d.Coords)
		}
	}
	require.Equal(t, DCN, crossing(t, m, "pp"))
	require.Equal(t, DCN, crossing(t, m, "dp_replicate"))
	require.Equal(t, IntraHost, crossing(t, m, "tp"))

	// Random sizes: the mesh is made exactly if outer axes count the slices, and
	// no other axis crosses slices then.
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		count := 1 + r.IntN(6)
		var ds []DeviceInfo
		axes := []Axis{{"pp", 1 + r.IntN(6)}, {"dp_replicate", 1 + r.IntN(6)}, {"dp_shard", 1 + r.IntN(4)}, {"tp", 1 + r.IntN(4)}}
		n := axes[0].Size * axes[1].Size * axes[2].Size * axes[3].Size
		if n%count != 0 {
			continue
		}
		for id := range n {
			ds = append(ds, DeviceInfo{ID: id, Process: id * count / n, Slice: id * count / n})
		}
		m, err := ForTopology(axes, ds, "pp", "dp_replicate")
		if axes[0].Size*axes[1].Size%count != 0 {
			require.Error(t, err, "%v on %d slices", axes, count)
			continue
		}
		require.NoError(t, err)
		ids := m.IDs()
		sort.Ints(ids)
		for id, got := range ids {
			require.Equal(t, id, got)
		}
		require.LessOrEqual(t, crossing(t, m, "dp_shard"), IntraHost)
		require.LessOrEqual(t, crossing(t, m, "tp"), IntraHost)
	}
}

// Devices without coordinates (CPU, GPU) keep trailing axes inside a process.
func TestForTopologyWithoutCoordinates(t *testing.T) {
	var ds []DeviceInfo
	for id := range 16 {
		ds = append(ds, DeviceInfo{ID: id, Process: id % 2})
	}
	m := layout(t, ds, Axis{"dp", 2}, Axis{"tp", 8})
	require.Equal(t, []int{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}, m.IDs())
	require.Equal(t, IntraHost, crossing(t, m, "tp"))
	require.Equal(t, DCN, crossing(t, m, "dp"))
}

// A part of a slice that leaves holes in the torus is still laid out.
func TestForTopologyHoles(t *testing.T) {
	devices, _ := realDevices(t)
	ds := slices.Clone(devices["v5p:2x4x4"])
	ds = append(ds[:5], ds[9:]...)
	m := layout(t, ds, Axis{"dp", 7}, Axis{"tp", 4})
	require.Equal(t, 28, m.Size())
	twice := slices.Clone(devices["v5e:2x2"])
	twice[1].Coords = twice[0].Coords
	layout(t, twice, Axis{"dp", 4})
	twice[1].Coords = []int{0}
	layout(t, twice, Axis{"dp", 4})
	twice[1].ID = twice[0].ID
	_, err := ForTopology([]Axis{{"dp", 4}}, twice)
	require.ErrorContains(t, err, "device id 0 stands at position")
}

// However the devices are divided, every one has its place, neighbours on the
// last axis are neighbours on the torus, and the order in which the runtime
// lists them does not matter.
func TestForTopologyProperties(t *testing.T) {
	devices, _ := realDevices(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		ds := devices[name]
		bySlice, err := splitSlices(ds)
		require.NoError(t, err)
		tor, ok := newTorus(bySlice[0])
		require.True(t, ok, name)
		for range 20 {
			axes := []Axis{{"slices", len(bySlice)}}
			for left := len(bySlice[0]); left > 1; {
				size := 1 + r.IntN(left)
				if left%size != 0 || size == 1 {
					continue
				}
				axes = append(axes, Axis{string(rune('a' + len(axes))), size})
				left /= size
			}
			m := layout(t, ds, axes...)
			ids := m.IDs()
			slices.Sort(ids)
			var want []int
			for _, d := range ds {
				want = append(want, d.ID)
			}
			slices.Sort(want)
			require.Equal(t, want, ids)

			last := axes[len(axes)-1]
			groups, err := m.Groups(last.Name)
			require.NoError(t, err)
			for _, g := range groups {
				for k := 1; k < len(g); k++ {
					a, _ := m.Device(g[k-1])
					b, _ := m.Device(g[k])
					if last.Name != "slices" {
						require.LessOrEqual(t, hops(a, b, tor), 1, "%s %v", name, m)
						require.Equal(t, a.Slice, b.Slice)
					}
				}
			}
			shuffled := slices.Clone(ds)
			r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			require.True(t, m.Equal(layout(t, shuffled, axes...)))
		}
	}
}

func TestWithDevices(t *testing.T) {
	m := newMesh(t, []int{3, 1}, Axis{"dp", 2})
	_, err := m.Hosts()
	require.ErrorContains(t, err, "ForTopology or WithDevices")
	_, err = m.Crossing("dp")
	require.ErrorContains(t, err, "ForTopology or WithDevices")
	_, err = m.WithDevices([]DeviceInfo{{ID: 3}, {ID: 2}})
	require.ErrorContains(t, err, "device 1 at position 1 is not among the 2 devices")
	_, err = m.WithDevices([]DeviceInfo{{ID: 3}, {ID: 3}})
	require.ErrorContains(t, err, "device 3 is described twice")
	p, err := m.WithDevices([]DeviceInfo{{ID: 1, Process: 1}, {ID: 2}, {ID: 3, Process: 4}})
	require.NoError(t, err)
	require.True(t, p.Equal(m))
	hosts, err := p.Hosts()
	require.NoError(t, err)
	require.Equal(t, []Host{{Process: 1, Positions: []int{1}}, {Process: 4, Positions: []int{0}}}, hosts)
	_, err = p.Crossing("tp")
	require.ErrorContains(t, err, `no axis "tp"`)
	_, ok := m.Device(0)
	require.False(t, ok, "the first mesh is unchanged")
	d, ok := p.Device(0)
	require.True(t, ok)
	require.Equal(t, 4, d.Process)
}

func TestNetworkString(t *testing.T) {
	require.Equal(t, "none intra-host ICI DCN", NoNetwork.String()+" "+IntraHost.String()+" "+ICI.String()+" "+DCN.String())
	require.Equal(t, "network 9", Network(9).String())
}

func TestReflected(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		radix := make([]int, 1+r.IntN(4))
		for i := range radix {
			radix[i] = 1 + r.IntN(4)
		}
		codes := reflected(radix)
		require.Len(t, codes, product(radix))
		seen := map[int]bool{}
		for k, c := range codes {
			n, changed := 0, 0
			for i, d := range c {
				require.Less(t, d, radix[i])
				n = n*radix[i] + d
				if k > 0 {
					changed += max(d-codes[k-1][i], codes[k-1][i]-d)
				}
			}
			require.False(t, seen[n])
			seen[n] = true
			if k > 0 {
				require.Equal(t, 1, changed)
			}
		}
	}
}
