package pjrt

import (
	"errors"
	"fmt"
)

// Device is one device of a Client or of a Topology.
type Device struct {
	p     *Plugin
	fam   *family // of the owner
	c     *Client // nil for devices of a Topology
	h     uintptr // 0 for devices of a Topology
	desc  uintptr
	local int // index among the local devices, or -1

	memories []*Memory // the default one first; local devices only

	ID      int    // global id, unique in the client or topology
	Process int    // index of the owning process
	Kind    string // for instance "cpu" or "TPU v5 lite"
	// LocalHardwareID is the number of the device on its host; -1 if the plugin
	// does not say, and for devices of a Topology.
	LocalHardwareID int
}

func newDevice(p *Plugin, fam *family, desc uintptr) (*Device, error) {
	d := &Device{desc: desc, p: p, fam: fam, local: -1, LocalHardwareID: -1}
	var e1, e2, e3 error
	d.ID, e1 = getInt(p, sDescID, desc)
	d.Process, e2 = getInt(p, sDescProcess, desc)
	d.Kind, e3 = getString(p, sDescKind, desc)
	return d, errors.Join(e1, e2, e3)
}

// IsLocal reports whether this process can address d.
func (d *Device) IsLocal() bool { return d.local >= 0 }

// Attributes returns plugin-specific facts, such as "coords" or
// "device_memory_bytes_limit" of TPUs: int64, string, bool, float32 or []int64
// by name.
func (d *Device) Attributes() (map[string]any, error) {
	if err := d.fam.join(kindCall); err != nil {
		return nil, err
	}
	defer d.fam.leave(kindCall)
	a := &descAttrsArgs{obj: d.desc}
	if err := sDescAttrs.call(d.p, a); err != nil {
		return nil, err
	}
	return decodeValues(a.list, a.n), nil
}

// Memories returns the memories a local device can address, its default memory
// first; nil for other devices. The slice must not be changed.
func (d *Device) Memories() []*Memory { return d.memories }

// Memory returns the device's memory of a kind, such as "pinned_host".
func (d *Device) Memory(kind string) (*Memory, error) {
	var kinds []string
	for _, m := range d.memories {
		if m.Kind == kind {
			return m, nil
		}
		kinds = append(kinds, m.Kind)
	}
	return nil, fmt.Errorf("pjrt: %v has no memory of kind %q; it has %q", d, kind, kinds)
}

// DeviceMemoryStats tells how much of a device's memory is used, in bytes. What
// the plugin does not know is -1.
type DeviceMemoryStats struct {
	InUse, Peak                    int64
	Limit                          int64 // what users can allocate
	Allocations, LargestAllocation int64
	LargestFree                    int64 // the largest free block
	Reserved, PeakReserved         int64
	ReservableLimit                int64
	Pool, PeakPool                 int64 // held by the allocator
}

// MemoryStats asks the allocator of a local device. Plugins may lack it: see
// [IsUnimplemented].
func (d *Device) MemoryStats() (DeviceMemoryStats, error) {
	var s DeviceMemoryStats
	if d.h == 0 || !d.IsLocal() {
		return s, fmt.Errorf("pjrt: memory statistics of %v, which is not a device of this process", d)
	}
	if err := d.fam.join(kindCall); err != nil {
		return s, err
	}
	defer d.fam.leave(kindCall)
	a := &deviceStatsArgs{device: d.h}
	if err := sDeviceStats.call(d.p, a); err != nil {
		return s, err
	}
	get := func(o optionalInt) int64 {
		if !o.known {
			return -1
		}
		return o.value
	}
	return DeviceMemoryStats{
		InUse: a.inUse, Peak: get(a.peak), Limit: get(a.limit),
		Allocations: get(a.allocations), LargestAllocation: get(a.largestAllocation), LargestFree: get(a.largestFree),
		Reserved: get(a.reserved), PeakReserved: get(a.peakReserved), ReservableLimit: get(a.reservableLimit),
		Pool: get(a.pool), PeakPool: get(a.peakPool),
	}, nil
}

func (d *Device) String() string { return fmt.Sprintf("%s device %d", d.Kind, d.ID) }

func (d *Device) place() (*Client, *Device, *Memory) { return d.c, d, nil }
