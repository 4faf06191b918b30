package pjrt

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"titan/internal/plural"
)

// kind says what a plugin object is, for LiveObjects and for messages.
type kind uint8

const (
	kindClient kind = iota
	kindTopology
	kindExecutable
	kindLoaded
	kindBuffer
	kindEvent
	kindCall // a call in progress
	numKinds
)

var kindNames = [numKinds]string{"client", "topology", "executable", "loaded executable", "buffer", "event", "call"}

func (k kind) String() string { return kindNames[k] }

var live [numKinds]atomic.Int64

// LiveObjects counts the plugin objects of this process that are not destroyed
// yet, by kind: "client", "topology", "executable", "loaded executable",
// "buffer" and "event". Kinds without objects are left out. It is for leak
// tests.
func LiveObjects() map[string]int {
	m := map[string]int{}
	for k := range live {
		if n := live[k].Load(); n != 0 {
			m[kind(k).String()] = int(n)
		}
	}
	return m
}

// ref guards one plugin handle. A call that passes the handle to the plugin
// holds the ref meanwhile; close marks it, and whoever lets go last destroys
// the handle. So a handle never dangles under a running call.
type ref struct {
	state   atomic.Int64 // 2*holders + 1 if closed
	h       uintptr
	p       *Plugin
	family  *family // accounts for the object at its owner
	kind    kind
	destroy *slot[handleArgs]
}

// newRef takes over h. Its place in fam must have been reserved before.
func newRef(p *Plugin, fam *family, k kind, destroy *slot[handleArgs], h uintptr) *ref {
	live[k].Add(1)
	return &ref{h: h, p: p, family: fam, kind: k, destroy: destroy}
}

// errNeverOpened is what the zero value of a type answers.
var errNeverOpened = errors.New("pjrt: use of an object that was not made by this package")

// hold keeps the handle alive until drop.
func (r *ref) hold() error {
	if r == nil {
		return errNeverOpened
	}
	for {
		s := r.state.Load()
		if s&1 != 0 {
			return closedError(r.kind)
		}
		if r.state.CompareAndSwap(s, s+2) {
			return nil
		}
	}
}

func (r *ref) drop() {
	if r.state.Add(-2) == 1 {
		r.free()
	}
}

func (r *ref) closed() bool { return r.state.Load()&1 != 0 }

// close is idempotent. The error of a destruction that has to wait for a
// running call is not reported.
func (r *ref) close() error {
	switch old := r.state.Or(1); {
	case old&1 != 0:
		return nil
	case old == 0:
		return r.free()
	}
	return nil
}

func (r *ref) free() error {
	err := r.destroy.call(r.p, &handleArgs{obj: r.h})
	live[r.kind].Add(-1)
	r.family.leave(r.kind)
	return err
}

// family accounts for the live children of a client or topology.
type family struct {
	mu     sync.Mutex
	closed bool
	owner  kind
	n      [numKinds]int
}

// join reserves a place for a child of kind k, or fails after Close.
func (f *family) join(k kind) error { return f.joinMany(k, 1) }

func (f *family) joinMany(k kind, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return closedError(f.owner)
	}
	f.n[k] += n
	return nil
}

func (f *family) leave(k kind) { f.leaveMany(k, 1) }

func (f *family) leaveMany(k kind, n int) {
	f.mu.Lock()
	f.n[k] -= n
	f.mu.Unlock()
}

// dissolve marks the family closed, unless children are left. Events and calls
// are waited for: they end by themselves.
func (f *family) dissolve() (already bool, err error) {
	for end := time.Now().Add(closeWait); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return true, nil
		}
		children := f.children()
		busy := f.n[kindEvent] + f.n[kindCall]
		if children == "" && busy == 0 {
			f.closed = true
			f.mu.Unlock()
			return false, nil
		}
		f.mu.Unlock()
		if children != "" {
			return false, fmt.Errorf("pjrt: Close of a %s that still has %s: close them first", f.owner, children)
		}
		if time.Now().After(end) {
			return false, fmt.Errorf("pjrt: Close of a %s with %s still running after %v", f.owner, plural.Of(busy, "operation"), closeWait)
		}
	}
}

// closeWait bounds how long Close waits for operations in flight.
const closeWait = 30 * time.Second

func (f *family) children() string {
	var s []string
	for k, n := range f.n {
		if n > 0 && kind(k) != kindEvent && kind(k) != kindCall {
			s = append(s, plural.Of(n, kind(k).String()))
		}
	}
	return strings.Join(s, ", ")
}

// collected counts the objects that closeIfLost has closed.
var collected atomic.Int64

// CollectedObjects counts the objects that were forgotten without Close and
// closed by the garbage collector. It is for leak tests.
func CollectedObjects() int { return int(collected.Load()) }

// closeIfLost closes r if its owner becomes unreachable without a Close, so that
// a forgotten object does not hold device memory for ever. Programs should not
// rely on it: the collector does not know how large the object is.
func closeIfLost[T any](owner *T, r *ref) { runtime.AddCleanup(owner, (*ref).reclaim, r) }

func (r *ref) reclaim() {
	if r.state.Load()&1 == 0 {
		collected.Add(1)
		_ = r.close() // nobody is left to tell
	}
}
