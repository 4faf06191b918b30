package pjrt

import (
	"errors"
	"fmt"
)

// Memory is a memory that devices of a client can address, such as a TPU's HBM
// ("device") or page-locked memory of its host ("pinned_host").
type Memory struct {
	c   *Client
	h   uintptr
	dev *Device // the first local device that addresses it

	ID   int
	Kind string
}

// Device returns a local device that can address the memory.
func (m *Memory) Device() *Device { return m.dev }

func (m *Memory) String() string { return fmt.Sprintf("%s memory %d of %v", m.Kind, m.ID, m.dev) }

func (m *Memory) place() (*Client, *Device, *Memory) { return m.c, m.dev, m }

// Place is where a buffer can be: a *Device, which stands for its default
// memory, or a *Memory.
type Place interface {
	fmt.Stringer
	place() (*Client, *Device, *Memory)
}

// checkPlace refuses places that c cannot put data in.
func (c *Client) checkPlace(at Place) (*Device, *Memory, error) {
	if d, ok := at.(*Device); at == nil || ok && d == nil {
		return nil, nil, errors.New("pjrt: no device given")
	}
	if m, ok := at.(*Memory); ok && m == nil {
		return nil, nil, errors.New("pjrt: no memory given")
	}
	owner, dev, mem := at.place()
	switch {
	case owner != c:
		return nil, nil, fmt.Errorf("pjrt: %v belongs to another client or to a topology", at)
	case !dev.IsLocal():
		return nil, nil, fmt.Errorf("pjrt: %v belongs to process %d, this is process %d", dev, dev.Process, c.process)
	}
	return dev, mem, nil
}

// describeLocal reads what only devices of this process tell.
func (c *Client) describeLocal(d *Device) error {
	id, err := getInt(c.p, sDeviceHardware, d.h)
	if err == nil {
		d.LocalHardwareID = id
	} else if !IsUnimplemented(err) {
		return err
	}
	hs, err := getList(c.p, sDeviceMemories, d.h)
	if IsUnimplemented(err) {
		return nil
	}
	if err != nil {
		return err
	}
	first, err := getWord(c.p, sDeviceDefault, d.h)
	if err != nil && !IsUnimplemented(err) {
		return err
	}
	for _, h := range hs {
		m := c.memories[h]
		if m == nil {
			var e1, e2 error
			m = &Memory{c: c, h: h, dev: d}
			m.ID, e1 = getInt(c.p, sMemoryID, h)
			m.Kind, e2 = getString(c.p, sMemoryKind, h)
			if err := errors.Join(e1, e2); err != nil {
				return err
			}
			c.memories[h] = m
		}
		if d.memories = append(d.memories, m); h == first {
			last := len(d.memories) - 1
			d.memories[0], d.memories[last] = d.memories[last], d.memories[0]
		}
	}
	return nil
}
