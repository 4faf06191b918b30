package pjrt

import (
	"fmt"
	"slices"
	"sync/atomic"

	"titan/dtype"
)

// Buffer is an array on one device.
type Buffer struct {
	*ref
	c       *Client
	dt      dtype.DType
	dims    []int
	dev     *Device
	donated atomic.Pointer[donation]
	deleted atomic.Bool
}

// newBuffer takes over h, for which c's family has reserved a place.
func newBuffer(c *Client, h uintptr, dt dtype.DType, dims []int, dev *Device) *Buffer {
	b := &Buffer{ref: newRef(c.p, &c.fam, kindBuffer, &sBufDestroy, h), c: c, dt: dt, dims: dims, dev: dev}
	closeIfLost(b, b.ref)
	return b
}

// grab holds the handle of a buffer that has contents. Its error says why it has
// none.
func (b *Buffer) grab() error {
	if d := b.donated.Load(); d != nil {
		return fmt.Errorf("%v was donated to %s", b, d.program)
	}
	if b.hold() != nil {
		return fmt.Errorf("%v: %w", b, ErrClosed)
	}
	// A plugin that finds this out on one device has started on others.
	if b.deleted.Load() {
		b.drop()
		return fmt.Errorf("%v was deleted", b)
	}
	return nil
}

// use is grab for methods.
func (b *Buffer) use() error {
	if err := b.grab(); err != nil {
		return fmt.Errorf("pjrt: %w", err)
	}
	return nil
}

// Close frees the buffer; the contents if they were not donated, and the
// plugin's handle in any case. Computations that were started with it go on.
func (b *Buffer) Close() error { return b.close() }

// Client returns the client the buffer belongs to.
func (b *Buffer) Client() *Client { return b.c }

// DType returns the element type.
func (b *Buffer) DType() dtype.DType { return b.dt }

// Dims returns the shape: of the shard on this device if the array is sharded.
func (b *Buffer) Dims() []int { return slices.Clone(b.dims) }

// Device returns the device that holds the buffer.
func (b *Buffer) Device() *Device { return b.dev }

// Memory returns the memory that holds the buffer.
func (b *Buffer) Memory() (*Memory, error) {
	h, err := b.word(sBufMemory)
	if err != nil {
		return nil, err
	}
	if m := b.c.memories[h]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("pjrt: %v is in a memory unknown to the client", b)
}

// Size returns the bytes of the array in dense host memory.
func (b *Buffer) Size() int {
	n, _ := sizeOf(b.dt, b.dims) // it exists, so it is fine
	return n
}

// OnDeviceSize returns the bytes the array takes on its device, padding
// included.
func (b *Buffer) OnDeviceSize() (int, error) {
	n, err := b.word(sBufSize)
	return int(n), err
}

// UnsafePointer returns the device address, for identity checks in tests.
func (b *Buffer) UnsafePointer() (uintptr, error) { return b.word(sBufPointer) }

func (b *Buffer) word(s slot[handleOutArgs]) (uintptr, error) {
	if err := b.use(); err != nil {
		return 0, err
	}
	defer b.drop()
	return getWord(b.p, s, b.h)
}

// Delete drops the contents but keeps the handle.
func (b *Buffer) Delete() error {
	if err := b.hold(); err != nil {
		return err
	}
	defer b.drop()
	b.deleted.Store(true)
	return sBufDelete.call(b.p, &handleArgs{obj: b.h})
}

// IsDeleted reports whether the contents are gone: deleted, donated or closed.
func (b *Buffer) IsDeleted() bool {
	if b.hold() != nil {
		return true
	}
	defer b.drop()
	if b.deleted.Load() {
		return true
	}
	a := &flagArgs{obj: b.h}
	return sBufIsDeleted.call(b.p, a) != nil || a.out
}

// Ready returns an event for the computation or transfer that produces b.
func (b *Buffer) Ready() (*Event, error) {
	if err := b.use(); err != nil {
		return nil, err
	}
	defer b.drop()
	if err := b.c.fam.join(kindEvent); err != nil {
		return nil, err
	}
	h, err := getWord(b.p, sBufReady, b.h)
	if err != nil {
		b.c.fam.leave(kindEvent)
		return nil, err
	}
	e := newPendingEvent()
	watchEvent(b.p, &b.c.fam, h, e.complete)
	return e, nil
}

func (b *Buffer) String() string {
	return fmt.Sprintf("buffer %v%v on %v", b.dt, b.dims, b.dev)
}
