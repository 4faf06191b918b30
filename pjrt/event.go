package pjrt

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"
)

// Event is the completion of an asynchronous operation. It needs no Close and
// may be dropped: the operation goes on, and what it keeps alive is released
// when it completes. A nil *Event is complete.
type Event struct {
	done chan struct{}
	err  error // set before done is closed
	mu   sync.Mutex
	fns  []func(error)
}

// IsReady reports whether the operation has completed.
func (e *Event) IsReady() bool {
	if e == nil {
		return true
	}
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed on completion.
func (e *Event) Done() <-chan struct{} {
	if e == nil {
		return completed.done
	}
	return e.done
}

// Err returns the operation's error; nil while it has not completed.
func (e *Event) Err() error {
	if e != nil && e.IsReady() {
		return e.err
	}
	return nil
}

// Await waits for completion and returns the operation's error.
func (e *Event) Await() error {
	<-e.Done()
	return e.Err()
}

// AwaitContext is Await that gives up, with ctx's error, when ctx ends. The
// operation itself goes on.
func (e *Event) AwaitContext(ctx context.Context) error {
	select {
	case <-e.Done():
		return e.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// OnReady calls f with the operation's error on a goroutine of its own once the
// operation has completed. A panic in f is reported to [OnPanic].
func (e *Event) OnReady(f func(error)) {
	if e != nil {
		e.mu.Lock()
		if !e.IsReady() {
			e.fns = append(e.fns, f)
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
	}
	go runCallback(f, e.Err())
}

func runCallback(f func(error), err error) {
	defer reportPanic("an OnReady callback")
	f(err)
}

// OnPanic is told about panics recovered where no error can be returned. Set it
// before the first use of the package.
var OnPanic = func(where string, v any) {
	fmt.Fprintf(os.Stderr, "pjrt: panic in %s: %v\n", where, v)
}

func reportPanic(where string) {
	if v := recover(); v != nil {
		OnPanic(where, v)
	}
}

func newPendingEvent() *Event { return &Event{done: make(chan struct{})} }

var completed = func() *Event {
	e := newPendingEvent()
	close(e.done)
	return e
}()

func (e *Event) complete(err error) {
	e.mu.Lock()
	fns := e.fns
	e.fns, e.err = nil, err
	close(e.done)
	e.mu.Unlock()
	for _, f := range fns {
		go runCallback(f, err)
	}
}

// handles maps ids, which C code may keep, to Go values.
var handles = struct {
	sync.Map
	next atomic.Uintptr
}{}

func newHandle(v any) uintptr {
	id := handles.next.Add(1)
	handles.Store(id, v)
	return id
}

// watch is a plugin event that is going to be called back.
type watch struct {
	p      *Plugin
	family *family
	h      uintptr
	fn     func(error)
	left   atomic.Int32 // the callback, and the call that registered it
}

// watchEvent takes over the plugin event h, for which family has reserved a
// place, and arranges for fn to be called once with its outcome, usually on a
// thread of the plugin and possibly before watchEvent returns. fn must not
// block. Consuming events at once, instead of when the caller waits for them,
// makes it harmless to drop one: nothing pinned is forgotten.
func watchEvent(p *Plugin, fam *family, h uintptr, fn func(error)) {
	if h == 0 {
		fam.leave(kindEvent)
		fn(nil)
		return
	}
	live[kindEvent].Add(1)
	w := &watch{p: p, family: fam, h: h, fn: fn}
	w.left.Store(2)
	id := newHandle(w)
	err := sEventOnReady.call(p, &onReadyArgs{event: h, callback: readyTrampoline(), user: id})
	if err != nil { // not registered: wait on a thread instead
		handles.Delete(id)
		w.left.Store(1)
		go func() {
			err := sEventAwait.call(p, &handleArgs{obj: h})
			w.leave()
			fn(err)
		}()
		return
	}
	w.leave()
}

// leave destroys the event once neither the callback nor the registering call
// can still touch it.
func (w *watch) leave() {
	if w.left.Add(-1) == 0 {
		_ = sEventDestroy.call(w.p, &handleArgs{obj: w.h}) // nothing can be done
		live[kindEvent].Add(-1)
		w.family.leave(kindEvent)
	}
}

var readyTrampoline = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(errHandle, user uintptr) {
		defer reportPanic("the event trampoline")
		x, ok := handles.LoadAndDelete(user)
		if !ok {
			panic(fmt.Sprintf("unknown event %d", user))
		}
		w := x.(*watch)
		err := w.p.takeError(errHandle, "Event_OnReady")
		w.leave()
		w.fn(err)
	})
})
