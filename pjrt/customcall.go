package pjrt

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"titan/dtype"
)

// CustomCall is one invocation of a custom call. It and the memory it shows
// belong to the plugin and are valid only until the handler returns.
type CustomCall struct {
	f *ffiFrame
	// Args and Results are the operands and the outputs to fill.
	Args, Results []CustomCallArray
}

// CustomCallArray is an operand or result: a dense row-major array in host
// memory.
type CustomCallArray struct {
	DType dtype.DType
	Dims  []int
	Data  []byte
}

// CustomCallHandler is the body of a custom call. It runs on the plugin's
// threads, at once for several devices. An error or panic fails the execution.
type CustomCallHandler func(*CustomCall) error

// RegisterCustomCall makes a Go function available to programs as
// stablehlo.custom_call @name {api_version = 4}, with attributes in
// backend_config, on plugins whose devices compute in host memory. A
// registration lasts for the life of the process, names cannot be registered
// again, and a process has room for fewer than 2000: register few handlers and
// tell uses apart by attributes.
func (p *Plugin) RegisterCustomCall(name string, h CustomCallHandler) error {
	if name == "" || h == nil {
		return errors.New("pjrt: custom call: no name or no handler")
	}
	x := (*ffiExtension)(unsafe.Pointer(p.exts[extFFI]))
	if x == nil || x.register == 0 {
		return &Error{Code: Unimplemented, Op: "RegisterCustomCall", Message: p.String() + " has no custom calls (no FFI extension)"}
	}
	p.callsMu.Lock()
	defer p.callsMu.Unlock()
	if p.calls[name] {
		return fmt.Errorf("pjrt: a custom call %q is registered already", name)
	}
	cb, err := newCallback(func(f *ffiFrame) uintptr { return serveCustomCall(name, h, f) })
	if err != nil {
		return err
	}
	const platform = "Host"
	var m arena
	defer m.free()
	a := pinned[ffiRegisterArgs](&m)
	*a = ffiRegisterArgs{size: cFFIRegister, name: m.str(name), nameLen: uintptr(len(name)), handler: cb, platform: m.str(platform), platformLen: uintptr(len(platform))}
	r, _, _ := purego.SyscallN(x.register, uintptr(unsafe.Pointer(a)))
	if err := p.takeError(r, "FFI_RegisterHandler"); err != nil {
		return err
	}
	if p.calls == nil {
		p.calls = map[string]bool{}
	}
	p.calls[name] = true
	return nil
}

// serveCustomCall runs on a thread of the plugin. It returns an FFI error or 0.
func serveCustomCall(name string, h CustomCallHandler, f *ffiFrame) (ret uintptr) {
	defer func() {
		if v := recover(); v != nil { // must not unwind through C++ frames
			ret = f.fail(&Error{Code: Internal, Message: fmt.Sprintf("panic in custom call %s: %v", name, v)})
		}
	}()
	if ext := *(**extension)(unsafe.Pointer(&f.ext)); ext != nil && ext.kind == ffiMetadata {
		m := (*ffiMetadataExt)(unsafe.Pointer(ext)).metadata
		m.major, m.minor = f.api.major, f.api.minor
		return 0
	}
	if f.stage != ffiStageExecute {
		return 0
	}
	c := &CustomCall{f: f}
	var err error
	if c.Args, err = f.args.arrays(); err == nil {
		c.Results, err = f.rets.arrays()
	}
	if err == nil {
		err = h(c)
	}
	if err != nil {
		return f.fail(err)
	}
	return 0
}

// newCallback makes a C function pointer of fn. It fails once purego's table is
// full.
func newCallback(fn any) (p uintptr, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Code: ResourceExhausted, Op: "RegisterCustomCall", Message: fmt.Sprint("no room for another callback: ", v)}
		}
	}()
	return purego.NewCallback(fn), nil
}

// Slice views the array as elements of type T, whose size must be the element
// size.
func Slice[T Scalar](a CustomCallArray) []T {
	var z T
	size := int(unsafe.Sizeof(z))
	if len(a.Data) == 0 || size != a.DType.Size() {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&a.Data[0])), len(a.Data)/size)
}

// Device returns the local ordinal of the device the call runs on.
func (c *CustomCall) Device() (int, error) {
	a := &ffiOrdinalArgs{ctx: c.f.ctx}
	a.size = unsafe.Offsetof(a.out) + 4
	var m arena
	defer m.free()
	m.pin.Pin(a)
	r, _, _ := purego.SyscallN(c.f.api.deviceOrdinal, uintptr(unsafe.Pointer(a)))
	if r != 0 {
		return 0, errors.New("pjrt: custom call: the plugin does not tell the device")
	}
	return int(a.out), nil
}

// Attributes returns the call's backend_config: string, bool, int64, uint64 or
// float64; slices of the numbers; or map[string]any.
func (c *CustomCall) Attributes() map[string]any { return c.f.attrs.decode() }

func (l *ffiList) arrays() ([]CustomCallArray, error) {
	out := make([]CustomCallArray, l.n)
	for i, b := range unsafe.Slice(l.bufs, l.n) {
		d := ffiTypes[b.dtype]
		if d == dtype.Invalid {
			return nil, &Error{Code: Unimplemented, Message: fmt.Sprintf("custom call array %d has XLA element type %d, which Go handlers do not support", i, b.dtype)}
		}
		a := CustomCallArray{DType: d, Dims: make([]int, b.rank)}
		n := d.Size()
		for j, k := range unsafe.Slice(b.dims, b.rank) {
			a.Dims[j] = int(k)
			n *= int(k)
		}
		a.Data = unsafe.Slice((*byte)(b.data), n)
		out[i] = a
	}
	return out, nil
}

func (t *ffiAttrs) decode() map[string]any {
	m := make(map[string]any, t.n)
	kinds, attrs := unsafe.Slice(t.kinds, t.n), unsafe.Slice(t.attrs, t.n)
	for i, n := range unsafe.Slice(t.names, t.n) {
		var x any
		switch v := attrs[i]; kinds[i] {
		case ffiAttrString:
			s := (*ffiSpan)(v)
			x = cString(s.ptr, s.len)
		case ffiAttrScalar:
			s := (*ffiScalar)(v)
			x = decodeScalar(ffiTypes[s.dtype], s.value)
		case ffiAttrArray:
			a := (*ffiArray)(v)
			x = decodeArray(ffiTypes[a.dtype], a.data, int(a.n))
		case ffiAttrDict:
			x = (*ffiAttrs)(v).decode()
		}
		m[cString(n.ptr, n.len)] = x
	}
	return m
}

// decodeScalar widens the element of type d at p; nil for unknown types.
func decodeScalar(d dtype.DType, p unsafe.Pointer) any {
	if d == dtype.Invalid {
		return nil
	}
	b := unsafe.Slice((*byte)(p), d.Size())
	switch {
	case d == dtype.Bool:
		return b[0] != 0
	case d == dtype.U64:
		return *(*uint64)(p)
	case d == dtype.S64:
		return *(*int64)(p)
	case d.IsInt() && d.IsSigned():
		return int64(dtype.Float(d, b, 0))
	case d.IsInt():
		return uint64(dtype.Float(d, b, 0))
	}
	return dtype.Float(d, b, 0)
}

func decodeArray(d dtype.DType, p unsafe.Pointer, n int) any {
	switch {
	case d.IsInt() && d.IsSigned():
		return decodeElems[int64](d, p, n)
	case d.IsInt():
		return decodeElems[uint64](d, p, n)
	case d.IsFloat():
		return decodeElems[float64](d, p, n)
	}
	return nil
}

func decodeElems[T any](d dtype.DType, p unsafe.Pointer, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = decodeScalar(d, unsafe.Add(p, i*d.Size())).(T)
	}
	return out
}

// fail builds an FFI error object. The message is copied by the plugin.
func (f *ffiFrame) fail(err error) uintptr {
	code, msg := Unknown, err.Error()
	var e *Error
	if errors.As(err, &e) {
		code, msg = e.Code, e.Message
	}
	if code == OK { // it must be an error
		code = Unknown
	}
	var m arena
	defer m.free()
	a := pinned[ffiErrorArgs](&m)
	a.msg, a.code = m.str(strings.ReplaceAll(msg, "\x00", " ")+"\x00"), int32(code)
	a.size = unsafe.Offsetof(a.code) + 4
	r, _, _ := purego.SyscallN(f.api.errorCreate, uintptr(unsafe.Pointer(a)))
	return r
}
