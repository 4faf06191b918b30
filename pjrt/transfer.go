package pjrt

import (
	"fmt"
	"slices"
	"unsafe"

	"titan/dtype"
)

// Semantics says how long the plugin may read the host memory of a transfer to
// a device.
type Semantics int32

const (
	// DuringCall: the memory is copied before the call returns.
	DuringCall Semantics = iota
	// UntilDone: the memory must stay unchanged until the event completes.
	UntilDone
	// ZeroCopy: the buffer may alias the memory, which must stay unchanged
	// until the event completes. Where it does alias, that is after the buffer
	// is closed. Memory that the plugin cannot alias, such as misaligned
	// memory, is copied. If a program takes the buffer as a donation it gets a
	// copy.
	ZeroCopy
	// MutableZeroCopy is ZeroCopy where a donation writes to the memory.
	MutableZeroCopy
)

// FromHost starts the transfer of data, a dense row-major array of the given
// type and shape, to a device or memory. The memory of data stays pinned until the
// returned event completes; what the caller may do with it meanwhile is up to
// sem.
func (c *Client) FromHost(data []byte, dt dtype.DType, dims []int, at Place, sem Semantics) (*Buffer, *Event, error) {
	ct, err := toCType(dt)
	if err != nil {
		return nil, nil, err
	}
	dev, mem, err := c.checkPlace(at)
	if err != nil {
		return nil, nil, err
	}
	if sem < DuringCall || sem > MutableZeroCopy {
		return nil, nil, fmt.Errorf("pjrt: unknown host buffer semantics %d", sem)
	}
	n, err := sizeOf(dt, dims)
	if err != nil {
		return nil, nil, err
	}
	if n != len(data) {
		return nil, nil, fmt.Errorf("pjrt: %v%v takes %d bytes, got %d", dt, dims, n, len(data))
	}
	if err := c.fam.join(kindBuffer); err != nil {
		return nil, nil, err
	}
	if err := c.fam.join(kindEvent); err != nil {
		c.fam.leave(kindBuffer)
		return nil, nil, err
	}
	var call arena
	defer call.free()
	hold := new(arena)
	a := &fromHostArgs{client: c.h, data: hold.bytes(data), dtype: ct, numDims: uintptr(len(dims)), semantics: int32(sem), device: dev.h}
	if mem != nil {
		a.memory = mem.h
	}
	if len(dims) > 0 {
		d64 := toInt64(dims)
		call.pin.Pin(&d64[0])
		a.dims = &d64[0]
	}
	if err := sFromHost.call(c.p, a); err != nil {
		hold.free()
		c.fam.leave(kindBuffer)
		c.fam.leave(kindEvent)
		return nil, nil, err
	}
	b := newBuffer(c, a.buffer, dt, slices.Clone(dims), dev)
	e := newPendingEvent()
	watchEvent(c.p, &c.fam, a.done, func(err error) {
		hold.free()
		e.complete(err)
	})
	return b, e, nil
}

// Put copies data, a dense row-major array, to a device or memory. data may be
// reused at once.
func (c *Client) Put(data []byte, dt dtype.DType, dims []int, at Place) (*Buffer, error) {
	b, _, err := c.FromHost(data, dt, dims, at, DuringCall)
	return b, err
}

// ToHost starts the copy of b into dst as a dense row-major array. dst must have
// b.Size() bytes; it stays pinned, and must not be read or written, until the
// event completes.
func (b *Buffer) ToHost(dst []byte) (*Event, error) {
	if err := b.use(); err != nil {
		return nil, err
	}
	defer b.drop()
	if n := b.Size(); n != len(dst) {
		return nil, fmt.Errorf("pjrt: %v takes %d bytes, got %d", b, n, len(dst))
	}
	if len(dst) == 0 {
		return b.Ready()
	}
	if err := b.c.fam.join(kindEvent); err != nil {
		return nil, err
	}
	hold := new(arena)
	var call arena
	defer call.free()
	a := &toHostArgs{src: b.h, layout: call.rowMajor(len(b.dims)), dst: hold.bytes(dst), size: uintptr(len(dst))}
	if err := sBufToHost.call(b.p, a); err != nil {
		hold.free()
		b.c.fam.leave(kindEvent)
		return nil, err
	}
	e := newPendingEvent()
	watchEvent(b.p, &b.c.fam, a.event, func(err error) {
		hold.free()
		e.complete(err)
	})
	return e, nil
}

// rowMajor is the layout of dense row-major arrays. Without one, plugins return
// arrays in the order of dimensions they have on the device.
func (m *arena) rowMajor(rank int) *memoryLayout {
	if rank < 2 {
		return nil
	}
	order := make([]int64, rank)
	for i := range order {
		order[i] = int64(rank - 1 - i)
	}
	return m.layout(order)
}

// layout describes an array without tiles whose minorToMajor[0] varies fastest.
func (m *arena) layout(minorToMajor []int64) *memoryLayout {
	m.pin.Pin(&minorToMajor[0])
	l := pinned[memoryLayout](m)
	l.size, l.tiled.size = cMemoryLayout, cTiledLayout
	l.tiled.minorToMajor, l.tiled.rank = &minorToMajor[0], uintptr(len(minorToMajor))
	return l
}

// CopyTo copies b to another device or memory of the same client.
func (b *Buffer) CopyTo(at Place) (*Buffer, error) {
	dev, mem, err := b.c.checkPlace(at)
	if err != nil {
		return nil, err
	}
	if err := b.use(); err != nil {
		return nil, err
	}
	defer b.drop()
	if err := b.c.fam.join(kindBuffer); err != nil {
		return nil, err
	}
	a := &copyArgs{obj: b.h, dst: dev.h}
	s := sBufToDevice
	if mem != nil {
		a.dst, s = mem.h, sBufToMemory
	}
	if err := s.call(b.p, a); err != nil {
		b.c.fam.leave(kindBuffer)
		return nil, err
	}
	return newBuffer(b.c, a.out, b.dt, b.dims, dev), nil
}

// Bytes waits for b and returns its contents as a dense row-major array.
func (b *Buffer) Bytes() ([]byte, error) {
	out := make([]byte, b.Size())
	e, err := b.ToHost(out)
	if err != nil {
		return nil, err
	}
	return out, e.Await()
}

// Scalar is a Go type that can be viewed as raw array elements.
type Scalar interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// AsBytes returns the memory of s.
func AsBytes[T Scalar](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

func toInt64(dims []int) []int64 {
	d := make([]int64, len(dims))
	for i, n := range dims {
		d[i] = int64(n)
	}
	return d
}
