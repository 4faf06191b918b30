package pjrt

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"
	"google.golang.org/protobuf/encoding/protowire"
)

// extProfiler is the extension kind that offers a profiler.
const extProfiler = 1

// profilerExtension is the plugin's extension with its profiler.
type profilerExtension struct {
	extension
	api *profilerAPI
}

// profilerAPI is a function table of its own: errors are the profiler's, too.
type profilerAPI struct {
	size, priv                                uintptr
	errorDestroy, errorMessage, errorCode     uintptr
	create, destroy, start, stop, collectData uintptr
}

type (
	profilerErrorArgs struct{ size, priv, err uintptr }

	profilerMessageArgs struct {
		profilerErrorArgs
		str *byte
		len uintptr
	}

	profilerCodeArgs struct {
		profilerErrorArgs
		code int32
	}

	profilerCreateArgs struct {
		size       uintptr
		options    *byte
		optionsLen uintptr
		out        uintptr
	}

	profilerArgs struct{ size, profiler uintptr }

	profilerCollectArgs struct {
		profilerArgs
		buffer    *byte
		bufferLen uintptr
	}
)

// Profiler records what a plugin and its devices do between Start and Stop. A process
// can have one at a time. Close it.
type Profiler struct {
	p      *Plugin
	api    *profilerAPI
	handle uintptr
}

// NewProfiler makes a profiler; the error is Unimplemented where the plugin has none.
func (p *Plugin) NewProfiler() (*Profiler, error) {
	x := (*profilerExtension)(unsafe.Pointer(p.exts[extProfiler]))
	if x == nil || x.size < unsafe.Sizeof(*x) || x.api == nil || x.api.size < unsafe.Sizeof(*x.api) {
		return nil, &Error{Code: Unimplemented, Op: "NewProfiler", Message: p.String() + " has no profiler"}
	}
	r := &Profiler{p: p, api: x.api}
	// tensorflow.ProfileOptions: version, and the levels that XLA's own sessions take.
	var options []byte
	for _, o := range []struct {
		field protowire.Number
		value uint64
	}{{5, 1}, {2, 2}, {3, 1}, {7, 1}} { // version, host, device, with the programs
		options = protowire.AppendVarint(protowire.AppendTag(options, o.field, protowire.VarintType), o.value)
	}
	var m arena
	defer m.free()
	a := pinned[profilerCreateArgs](&m)
	*a = profilerCreateArgs{size: unsafe.Sizeof(*a), options: m.bytes(options), optionsLen: uintptr(len(options))}
	if err := r.call(x.api.create, unsafe.Pointer(a), "Profiler_Create"); err != nil {
		return nil, err
	}
	r.handle = a.out
	return r, nil
}

// Start begins recording.
func (r *Profiler) Start() error { return r.on(r.api.start, "Profiler_Start") }

// Stop ends recording and returns it: an XSpace message, see package xspace.
func (r *Profiler) Stop() ([]byte, error) {
	if err := r.on(r.api.stop, "Profiler_Stop"); err != nil {
		return nil, err
	}
	var m arena
	defer m.free()
	a := pinned[profilerCollectArgs](&m)
	*a = profilerCollectArgs{profilerArgs: profilerArgs{unsafe.Sizeof(*a), r.handle}}
	if err := r.call(r.api.collectData, unsafe.Pointer(a), "Profiler_CollectData"); err != nil {
		return nil, err
	}
	if a.bufferLen == 0 {
		return nil, nil
	}
	if a.buffer != nil { // the profiler's memory
		return message(slices.Clone(unsafe.Slice(a.buffer, a.bufferLen))), nil
	}
	out := make([]byte, a.bufferLen)
	a.buffer = m.bytes(out)
	err := r.call(r.api.collectData, unsafe.Pointer(a), "Profiler_CollectData")
	return message(out), err
}

// message drops what is behind a message: some profilers give it with a byte more.
func message(raw []byte) []byte {
	whole := func(b []byte) bool {
		for len(b) > 0 {
			_, _, n := protowire.ConsumeField(b)
			if n < 0 {
				return false
			}
			b = b[n:]
		}
		return true
	}
	if n := len(raw); n > 0 && raw[n-1] == 0 && !whole(raw) && whole(raw[:n-1]) {
		return raw[:n-1]
	}
	return raw
}

// Close frees the profiler. Later calls do nothing.
func (r *Profiler) Close() error {
	if r == nil || r.handle == 0 {
		return nil
	}
	err := r.on(r.api.destroy, "Profiler_Destroy")
	r.handle = 0
	return err
}

// on calls a function that takes the profiler alone.
func (r *Profiler) on(fn uintptr, op string) error {
	if r.handle == 0 {
		return fmt.Errorf("pjrt: %s: the profiler is closed", op)
	}
	var m arena
	defer m.free()
	a := pinned[profilerArgs](&m)
	*a = profilerArgs{unsafe.Sizeof(*a), r.handle}
	return r.call(fn, unsafe.Pointer(a), op)
}

// call calls a function of the profiler with pinned arguments.
func (r *Profiler) call(fn uintptr, args unsafe.Pointer, op string) error {
	if fn == 0 {
		return &Error{Code: Unimplemented, Op: op, Message: "this plugin does not provide it"}
	}
	h, _, _ := purego.SyscallN(fn, uintptr(args))
	if h == 0 {
		return nil
	}
	e := &Error{Op: op, Code: Unknown}
	var m arena
	defer m.free()
	text := pinned[profilerMessageArgs](&m)
	*text = profilerMessageArgs{profilerErrorArgs: profilerErrorArgs{unsafe.Sizeof(*text), r.api.priv, h}}
	if r.api.errorMessage != 0 {
		purego.SyscallN(r.api.errorMessage, uintptr(unsafe.Pointer(text)))
		e.Message = cString(text.str, text.len)
	}
	code := pinned[profilerCodeArgs](&m)
	*code = profilerCodeArgs{profilerErrorArgs: profilerErrorArgs{cSizeOfCode, r.api.priv, h}}
	if r.api.errorCode != 0 {
		if failed, _, _ := purego.SyscallN(r.api.errorCode, uintptr(unsafe.Pointer(code))); failed == 0 {
			e.Code = Code(code.code)
		}
	}
	if r.api.errorDestroy != 0 {
		gone := pinned[profilerErrorArgs](&m)
		*gone = profilerErrorArgs{unsafe.Sizeof(*gone), r.api.priv, h}
		purego.SyscallN(r.api.errorDestroy, uintptr(unsafe.Pointer(gone)))
	}
	return e
}

const cSizeOfCode = unsafe.Offsetof(profilerCodeArgs{}.code) + 4
