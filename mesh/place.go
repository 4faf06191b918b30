package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// DeviceInfo is what the runtime says of where a device sits.
type DeviceInfo struct {
	ID      int
	Process int   // the host process that drives it
	Slice   int   // the slice it belongs to; slices share only the data-centre network
	Coords  []int // the chip's place on the slice's torus; nil where there is none
	Core    int   // the core on the chip
}

// Network is what carries the traffic along an axis.
type Network int

// Networks, fastest first.
const (
	NoNetwork Network = iota // the axis has one device
	IntraHost                // all devices along the axis belong to one process
	ICI                      // the links between the chips of a slice
	DCN                      // the data-centre network between hosts or slices
)

// String returns the name of the network.
func (n Network) String() string {
	switch n {
	case NoNetwork:
		return "none"
	case IntraHost:
		return "intra-host"
	case ICI:
		return "ICI"
	case DCN:
		return "DCN"
	}
	return fmt.Sprintf("network %d", int(n))
}

// Host lists the positions of a mesh that one process drives.
type Host struct {
	Process   int
	Slice     int
	Positions []int // ascending
}

// WithDevices returns the same mesh with knowledge of where its devices sit,
// which Hosts and Crossing need. Every device of the mesh must be among
// devices, by its id; further ones are ignored.
func (m *Mesh) WithDevices(devices []DeviceInfo) (*Mesh, error) {
	if m == nil {
		return nil, errors.New("mesh: there is no mesh to place devices in")
	}
	byID := make(map[int]DeviceInfo, len(devices))
	for _, d := range devices {
		if _, ok := byID[d.ID]; ok {
			return nil, fmt.Errorf("mesh: device %d is described twice", d.ID)
		}
		byID[d.ID] = d
	}
	placed := make([]DeviceInfo, len(m.ids))
	for p, id := range m.ids {
		d, ok := byID[id]
		if !ok {
			return nil, fmt.Errorf("mesh: device %d at position %d is not among the %d devices described", id, p, len(devices))
		}
		d.Coords = slices.Clone(d.Coords)
		placed[p] = d
	}
	c := *m
	c.devices = placed
	return &c, nil
}

// errNoPlace is returned where a mesh was made from ids alone.
var errNoPlace = errors.New("mesh: this mesh knows device ids but not where the devices sit; make it with ForTopology or WithDevices")

// Device returns what is known of the device at a position, and false if the
// position is not in the mesh or its devices are known by id only.
func (m *Mesh) Device(position int) (DeviceInfo, bool) {
	if m == nil || position < 0 || position >= len(m.devices) {
		return DeviceInfo{}, false
	}
	d := m.devices[position]
	d.Coords = slices.Clone(d.Coords)
	return d, true
}

// Hosts returns the processes of the mesh, ascending, with the positions each
// of them drives. It fails if the mesh was made from ids alone.
func (m *Mesh) Hosts() ([]Host, error) {
	if m == nil || m.devices == nil {
		return nil, errNoPlace
	}
	var hosts []Host
	at := map[int]int{}
	for p, d := range m.devices {
		i, ok := at[d.Process]
		if !ok {
			i = len(hosts)
			at[d.Process] = i
			hosts = append(hosts, Host{Process: d.Process, Slice: d.Slice})
		}
		hosts[i].Positions = append(hosts[i].Positions, p)
	}
	slices.SortFunc(hosts, func(a, b Host) int { return cmp.Compare(a.Process, b.Process) })
	return hosts, nil
}

// Crossing returns the slowest network that traffic along an axis meets. It
// fails if there is no such axis or the mesh was made from ids alone.
//
// Devices of different processes in one slice meet over ICI if they have torus
// coordinates, and else over the data-centre network.
func (m *Mesh) Crossing(axis string) (Network, error) {
	i := m.index(axis)
	if i < 0 {
		return NoNetwork, m.CheckAxis(axis)
	}
	if m.devices == nil {
		return NoNetwork, errNoPlace
	}
	slowest := NoNetwork
	for p, d := range m.devices {
		if m.coord(p, i) == 0 {
			continue
		}
		slowest = max(slowest, between(m.devices[p-m.stride[i]], d))
	}
	return slowest, nil
}

// between returns the network that joins two devices.
func between(a, b DeviceInfo) Network {
	switch {
	case a.Slice != b.Slice:
		return DCN
	case a.Process == b.Process:
		return IntraHost
	case a.Coords != nil && b.Coords != nil:
		return ICI
	}
	return DCN
}
