package pjrt

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"titan/dtype"
	"titan/pjrt/hlo"
)

// ArrayType is the element type and shape of an argument or output on one
// device.
type ArrayType struct {
	DType dtype.DType // Invalid for types without a DType, such as tokens
	Dims  []int
}

func (a ArrayType) String() string { return fmt.Sprintf("%v%v", a.DType, a.Dims) }

func (a ArrayType) equal(dt dtype.DType, dims []int) bool {
	return a.DType == dt && slices.Equal(a.Dims, dims)
}

// Parameter is an argument that a program expects on each device.
type Parameter struct {
	ArrayType
	// Donated says that a run uses up the argument's contents.
	Donated bool
}

// signature is read once, when it is first needed.
type signature struct {
	once   sync.Once
	params []Parameter
	known  bool
	err    error
}

// OptimizedHLO returns the compiled module.
func (e *Executable) OptimizedHLO() (*hlo.Module, error) {
	blob, err := e.hloBlob()
	if err != nil {
		return nil, err
	}
	return hlo.Parse(blob)
}

func (e *Executable) hloBlob() ([]byte, error) {
	format, blob, err := e.OptimizedProgram()
	if err != nil {
		return nil, err
	}
	if format != "hlo" && format != "hlo_with_config" {
		return nil, &Error{Code: Unimplemented, Op: "Executable_OptimizedProgram", Message: fmt.Sprintf("the plugin returns the program as %q, not as HLO", format)}
	}
	return blob, nil
}

// Parameters returns what a run takes on each device. It fails with a code for
// which [IsUnimplemented] holds if the plugin does not tell.
func (e *Executable) Parameters() ([]Parameter, error) {
	s := &e.sig
	s.once.Do(func() {
		var blob []byte
		if blob, s.err = e.hloBlob(); s.err != nil {
			return
		}
		var m *hlo.Module
		if m, s.err = hlo.ParseSignature(blob); s.err != nil {
			return
		}
		donated := m.Donated()
		s.params = make([]Parameter, len(m.Parameters))
		for i, p := range m.Parameters {
			s.params[i] = Parameter{ArrayType{p.Type.DType(), p.Dims}, donated[i]}
		}
		s.known = true
	})
	return s.params, s.err
}

// Outputs returns the types of the outputs on each device.
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
	var ranks []uintptr
	if d.n > 0 {
		ranks = unsafe.Slice(d.ranks, d.n)
	}
	outs := make([]ArrayType, t.n)
	at := uintptr(0)
	for i, c := range unsafe.Slice(t.types, t.n) {
		outs[i] = ArrayType{DType: fromCType[c], Dims: make([]int, ranks[i])}
		for j := range outs[i].Dims {
			outs[i].Dims[j] = int(*(*int64)(unsafe.Add(unsafe.Pointer(d.dims), 8*at)))
			at++
		}
	}
	return outs, nil
}

// OutputMemoryKinds returns the kind of memory each output is put in, such as
// "device" or "pinned_host".
func (e *Executable) OutputMemoryKinds() ([]string, error) {
	if err := e.hold(); err != nil {
		return nil, err
	}
	defer e.drop()
	a := &memoryKindsArgs{obj: e.h}
	if err := sExecOutKinds.call(e.p, a); err != nil {
		return nil, err
	}
	kinds := make([]string, a.n)
	if a.n > 0 {
		sizes := unsafe.Slice(a.sizes, a.n)
		for i, p := range unsafe.Slice(a.kinds, a.n) {
			kinds[i] = cString(p, sizes[i])
		}
	}
	return kinds, nil
}
