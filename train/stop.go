package train

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
)

// stopper notes the signal that ends a run.
type stopper struct {
	asked chan struct{} // closed when there is one
	quit  chan struct{}
	once  sync.Once
	sig   os.Signal // once asked is closed
}

// listen waits for a signal from stop, until close.
func listen(stop <-chan os.Signal) *stopper {
	s := &stopper{asked: make(chan struct{}), quit: make(chan struct{})}
	go func() {
		select {
		case sig, ok := <-stop:
			if ok {
				s.ask(sig)
			}
		case <-s.quit:
		}
	}()
	return s
}

// ask notes a signal; the first counts.
func (s *stopper) ask(sig os.Signal) {
	s.once.Do(func() {
		s.sig = sig
		close(s.asked)
	})
}

func (s *stopper) close() { close(s.quit) }

// signal returns the signal, nil if there was none yet.
func (s *stopper) signal() os.Signal {
	select {
	case <-s.asked:
		return s.sig
	default:
		return nil
	}
}

// context returns a context that is done when the run is to end.
func (s *stopper) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.asked:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// abandonable waits for f, which cannot be cancelled, until ctx is done: f then
// goes on by itself, and what it returns is lost.
func abandonable[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		v     T
		err   error
		panic any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.panic = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			done <- r
		}()
		r.v, r.err = f()
	}()
	select {
	case r := <-done:
		if r.panic != nil {
			panic(r.panic) // to be caught where those of this goroutine are
		}
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", errAbandoned, ctx.Err())
	}
}
