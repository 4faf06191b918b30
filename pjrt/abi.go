package pjrt

import (
	"reflect"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// header starts every argument struct of the C API.
type header struct {
	size uintptr
	ext  uintptr
}

// extension is a node of the plugin's linked list of API extensions.
type extension struct {
	size uintptr
	kind int32
	next *extension
}

// extFFI is the extension kind that registers custom-call handlers.
const extFFI = 5

// apiTable is the fixed head of the table returned by GetPjrtApi. Function
// pointers ("slots") follow it, one word each, in an order that only grows.
type apiTable struct {
	header
	versionHeader header
	major, minor  int32
}

// slot describes one entry point: its position in the function table and the
// type of its argument struct.
type slot[T any] struct {
	index int
	name  string
	size  uintptr
}

func newSlot[T any](index int, name string) slot[T] {
	return slot[T]{index, name, cSize(reflect.TypeFor[T]())}
}

// cSize is the size the C API reports for a struct: the end of its last field,
// without trailing padding. Padding must not be counted, since a later version
// of the struct may put a new field there.
func cSize(t reflect.Type) uintptr {
	f := t.Field(t.NumField() - 1)
	if f.Type.Kind() == reflect.Struct {
		return f.Offset + cSize(f.Type)
	}
	return f.Offset + f.Type.Size()
}

// call invokes the entry point with a. The struct size is filled in here.
func (s slot[T]) call(p *Plugin, a *T) error {
	r, err := s.raw(p, a)
	if err != nil {
		return err
	}
	return p.takeError(r, s.name)
}

// raw invokes the entry point and returns the raw result word.
func (s slot[T]) raw(p *Plugin, a *T) (uintptr, error) {
	if s.index >= len(p.fns) || p.fns[s.index] == 0 {
		return 0, &Error{Code: Unimplemented, Message: "this plugin does not provide it", Op: s.name}
	}
	*(*uintptr)(unsafe.Pointer(a)) = s.size
	var pin runtime.Pinner
	pin.Pin(a)
	r, _, _ := purego.SyscallN(p.fns[s.index], uintptr(unsafe.Pointer(a)))
	pin.Unpin()
	return r, nil
}

// arena pins Go memory that argument structs point to. Release with free once
// the plugin no longer uses the memory.
type arena struct{ pin runtime.Pinner }

func (m *arena) bytes(b []byte) *byte {
	if len(b) == 0 {
		return nil
	}
	m.pin.Pin(unsafe.SliceData(b))
	return unsafe.SliceData(b)
}

func (m *arena) str(s string) *byte {
	if s == "" {
		return nil
	}
	m.pin.Pin(unsafe.StringData(s))
	return unsafe.StringData(s)
}

func (m *arena) free() { m.pin.Unpin() }

// pinned allocates a zero T that stays pinned until m.free.
func pinned[T any](m *arena) *T {
	v := new(T)
	m.pin.Pin(v)
	return v
}

// cString copies n bytes of C memory.
func cString(p *byte, n uintptr) string {
	if p == nil || n == 0 {
		return ""
	}
	return string(unsafe.Slice(p, n))
}

func getWord(p *Plugin, s slot[handleOutArgs], h uintptr) (uintptr, error) {
	a := &handleOutArgs{obj: h}
	err := s.call(p, a)
	return a.out, err
}

func getInt(p *Plugin, s slot[intArgs], h uintptr) (int, error) {
	a := &intArgs{obj: h}
	err := s.call(p, a)
	return int(a.out), err
}

func getString(p *Plugin, s slot[stringArgs], h uintptr) (string, error) {
	a := &stringArgs{obj: h}
	err := s.call(p, a)
	return cString(a.str, a.len), err
}

func getList(p *Plugin, s slot[handleListArgs], h uintptr) ([]uintptr, error) {
	a := &handleListArgs{obj: h}
	err := s.call(p, a)
	if err != nil {
		return nil, err
	}
	return append([]uintptr(nil), unsafe.Slice(a.list, a.n)...), nil
}
