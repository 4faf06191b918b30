package pjrt

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The API versions this package can drive: major 0 from minMinor on. Struct
// layouts only grow within a major version, so a newer minor is fine. The CPU
// plugin of 0.106 crashes where later ones report errors and undoes
// recomputation.
const (
	wantMajor = 0
	minMinor  = 107
)

// Plugin is a loaded PJRT plugin. Plugins are never unloaded.
type Plugin struct {
	path         string
	major, minor int
	fns          []uintptr
	exts         map[int32]*extension
	attrs        map[string]any

	callsMu sync.Mutex
	calls   map[string]bool // names of registered custom calls
}

// OpenOptions configures [OpenWith].
type OpenOptions struct {
	// Env is set in the environment of the process, as C code sees it, before
	// the library is opened.
	Env map[string]string
}

var plugins struct {
	sync.Mutex
	byPath map[string]*Plugin
}

// Open loads the plugin library at path and initializes it. Opening the same
// file again returns the same Plugin.
func Open(path string) (*Plugin, error) { return OpenWith(path, OpenOptions{}) }

// OpenWith is Open with options. Options have no effect on a library that is
// loaded already.
func OpenWith(path string, o OpenOptions) (*Plugin, error) {
	if path == "" {
		return nil, errors.New("pjrt: open plugin: no path given")
	}
	key, err := filepath.EvalSymlinks(path)
	if err == nil {
		key, err = filepath.Abs(key)
	}
	if err != nil {
		return nil, fmt.Errorf("pjrt: open plugin: %w", err)
	}
	if info, err := os.Stat(key); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("pjrt: open plugin: %s is no file", path)
	}
	plugins.Lock()
	defer plugins.Unlock()
	if p := plugins.byPath[key]; p != nil {
		return p, nil
	}
	for k, v := range o.Env { // purego makes os.Setenv reach C's getenv
		if err := os.Setenv(k, v); err != nil {
			return nil, fmt.Errorf("pjrt: open plugin: %w", err)
		}
	}
	p, err := open(key)
	if err != nil {
		return nil, err
	}
	if plugins.byPath == nil {
		plugins.byPath = map[string]*Plugin{}
	}
	plugins.byPath[key] = p
	return p, nil
}

func open(path string) (*Plugin, error) {
	if _, err := libc(); err != nil {
		return nil, err
	}
	if err := checkWhole(path); err != nil {
		return nil, err
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("pjrt: %s is not a loadable library: %w", path, err)
	}
	sym, err := purego.Dlsym(h, "GetPjrtApi")
	if err != nil {
		return nil, fmt.Errorf("pjrt: %s is no PJRT plugin: it does not export GetPjrtApi", path)
	}
	var get func() *apiTable
	purego.RegisterFunc(&get, sym)
	t := get()
	if t == nil {
		return nil, fmt.Errorf("pjrt: %s: GetPjrtApi returned nothing", path)
	}
	p := &Plugin{path: path, major: int(t.major), minor: int(t.minor), exts: map[int32]*extension{}}
	if err := checkVersion(path, p.major, p.minor); err != nil {
		return nil, err
	}
	if t.size < unsafe.Sizeof(*t) || t.size > maxTable {
		return nil, fmt.Errorf("pjrt: %s is no PJRT plugin titan can use: it states a function table of %d bytes", path, t.size)
	}
	n := (t.size - unsafe.Sizeof(*t)) / unsafe.Sizeof(uintptr(0))
	p.fns = append(p.fns, unsafe.Slice((*uintptr)(unsafe.Add(unsafe.Pointer(t), unsafe.Sizeof(*t))), n)...)
	// The extension list head is the table's ext word; view it as a pointer.
	for e := *(**extension)(unsafe.Pointer(&t.ext)); e != nil; e = e.next {
		if p.exts[e.kind] == nil {
			p.exts[e.kind] = e
		}
	}
	if err := sPluginInit.call(p, new(header)); err != nil {
		return nil, fmt.Errorf("pjrt: %s: initialize: %w", path, err)
	}
	a := new(pluginAttrsArgs)
	if err := sPluginAttrs.call(p, a); err != nil && !IsUnimplemented(err) {
		return nil, fmt.Errorf("pjrt: %s: %w", path, err)
	}
	p.attrs = decodeValues(a.list, a.n)
	return p, nil
}

// maxTable is far above any function table (130 words in API 0.117).
const maxTable = 64 << 10

func checkVersion(path string, major, minor int) error {
	have := fmt.Sprintf("pjrt: %s speaks version %d.%d of the PJRT C API; this program needs %d.%d or a later %d.x",
		path, major, minor, wantMajor, minMinor, wantMajor)
	switch {
	case major > wantMajor:
		return fmt.Errorf("%s: update this program or use an older plugin", have)
	case major < wantMajor || minor < minMinor:
		return fmt.Errorf("%s: install a newer plugin", have)
	}
	return nil
}

// Path returns the library's file, symbolic links resolved.
func (p *Plugin) Path() string { return p.path }

// APIVersion returns the version of the PJRT C API the plugin implements.
func (p *Plugin) APIVersion() (major, minor int) { return p.major, p.minor }

// Attributes returns the plugin's attributes, such as "xla_version": int64,
// string, bool, float32 or []int64 by name.
func (p *Plugin) Attributes() map[string]any { return maps.Clone(p.attrs) }

func (p *Plugin) String() string {
	return fmt.Sprintf("%s (PJRT C API %d.%d)", p.path, p.major, p.minor)
}

// takeError turns an error handle into a Go error and frees it.
func (p *Plugin) takeError(h uintptr, op string) error {
	if h == 0 {
		return nil
	}
	e := &Error{Op: op, Code: Unknown}
	m := &errorMessageArgs{obj: h}
	if _, err := sErrorMessage.raw(p, m); err == nil {
		e.Message = cString(m.str, m.len)
	}
	c := &errorCodeArgs{obj: h}
	if r, err := sErrorCode.raw(p, c); err == nil && r == 0 {
		e.Code = Code(c.out)
	}
	_, _ = sErrorDestroy.raw(p, &errorArgs{obj: h}) // returns nothing
	return e.refine()
}
