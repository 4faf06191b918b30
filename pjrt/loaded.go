package pjrt

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"titan/dtype"
)

// LoadedExecutable is a program ready to run on devices of a client.
type LoadedExecutable struct {
	*Executable
	c       *Client
	loaded  *ref
	devices []*Device
	outputs []ArrayType
}

// ArrayType is the element type and shape of an argument or output on one
// device.
type ArrayType struct {
	DType dtype.DType // Invalid for types Go does not know, such as tokens
	Dims  []int
}

func (a ArrayType) String() string { return fmt.Sprintf("%v%v", a.DType, a.Dims) }

// Devices returns the local devices the program runs on, in the order of the
// arguments of Execute. The slice must not be changed.
func (x *LoadedExecutable) Devices() []*Device { return x.devices }

// Client returns the client the program is loaded on.
func (x *LoadedExecutable) Client() *Client { return x.c }

// Close unloads the program. Runs that were started go on.
func (x *LoadedExecutable) Close() error {
	return errors.Join(x.Executable.Close(), x.loaded.close())
}

// Outputs returns the types of the outputs on one device.
func (e *Executable) Outputs() ([]ArrayType, error) {
	if err := e.hold(); err != nil {
		return nil, err
	}
	defer e.drop()
	t := &typesArgs{obj: e.h}
	if err := sExecOutTypes.call(e.p, t); err != nil {
		return nil, err
	}
	d := &outDimsArgs{obj: e.h}
	if err := sExecOutDims.call(e.p, d); err != nil {
		return nil, err
	}
	if t.n != d.n {
		return nil, fmt.Errorf("pjrt: %s: the plugin reports %d output types and %d output shapes", e.name, t.n, d.n)
	}
	var sizes []uintptr
	if d.n > 0 {
		sizes = unsafe.Slice(d.ranks, d.n)
	}
	total := uintptr(0)
	for _, r := range sizes {
		total += r
	}
	dims := slices.Clone(unsafe.Slice(d.dims, total))
	outs := make([]ArrayType, t.n)
	for i, c := range unsafe.Slice(t.types, t.n) {
		outs[i] = ArrayType{DType: fromCType[c], Dims: make([]int, sizes[i])}
		for j := range outs[i].Dims {
			outs[i].Dims[j] = int(dims[j])
		}
		dims = dims[sizes[i]:]
	}
	return outs, nil
}
