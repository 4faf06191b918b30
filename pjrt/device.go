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

	ID      int    // global id, unique in the client or topology
	Process int    // index of the owning process
	Kind    string // for instance "cpu" or "TPU v5 lite"
}

func newDevice(p *Plugin, fam *family, desc uintptr) (*Device, error) {
	d := &Device{desc: desc, p: p, fam: fam, local: -1}
	var e1, e2, e3 error
	d.ID, e1 = getInt(p, sDescID, desc)
	d.Process, e2 = getInt(p, sDescProcess, desc)
	d.Kind, e3 = getString(p, sDescKind, desc)
	return d, errors.Join(e1, e2, e3)
}

// IsLocal reports whether this process can address d.
func (d *Device) IsLocal() bool { return d.local >= 0 }

// Attributes returns plugin-specific facts, such as "coords" or
// "device_memory_bytes_limit" of TPUs.
func (d *Device) Attributes() (map[string]any, error) {
	if err := d.fam.join(kindEvent); err != nil {
		return nil, err
	}
	defer d.fam.leave(kindEvent)
	a := &descAttrsArgs{obj: d.desc}
	if err := sDescAttrs.call(d.p, a); err != nil {
		return nil, err
	}
	return decodeValues(a.list, a.n), nil
}

func (d *Device) String() string { return fmt.Sprintf("%s device %d", d.Kind, d.ID) }
