package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
)

// Iterator reads batches ahead of their use, on goroutines of its own.
type Iterator struct {
	queue  chan chan fetched
	cancel context.CancelFunc
	wg     sync.WaitGroup
	err    error // what Next keeps returning
}

type fetched struct {
	b   *Batch
	err error
}

// Iterate starts reading the given rows of the steps from start on, up to ahead
// batches (at least one) before they are asked for. Next and Close belong to one
// goroutine.
func (l *Loader) Iterate(start int64, rows []int, ahead int) *Iterator {
	ctx, cancel := context.WithCancel(context.Background())
	// One more is being worked on while the queue is full.
	it := &Iterator{queue: make(chan chan fetched, max(ahead, 1)-1), cancel: cancel}
	rows = append([]int(nil), rows...)
	it.wg.Go(func() {
		defer close(it.queue)
		for step := start; !l.o.Pass || step < l.Steps(); step++ {
			done := make(chan fetched, 1)
			it.wg.Go(func() {
				defer func() {
					if p := recover(); p != nil {
						done <- fetched{err: fmt.Errorf("data: internal error: %v\n%s", p, debug.Stack())}
					}
				}()
				b, err := l.Batch(step, rows)
				done <- fetched{b, err}
			})
			select {
			case it.queue <- done:
			case <-ctx.Done():
				return
			}
		}
	})
	return it
}

// Next returns the next batch; io.EOF after the last of a Pass. After an error
// it returns that again.
func (it *Iterator) Next() (*Batch, error) {
	if it.err != nil {
		return nil, it.err
	}
	done, ok := <-it.queue
	if !ok {
		it.err = io.EOF
		return nil, it.err
	}
	f := <-done
	if f.err != nil {
		it.err = f.err
		it.cancel()
	}
	return f.b, f.err
}

// Close ends the reading; no goroutine is left when it returns.
func (it *Iterator) Close() {
	if it.err == nil {
		it.err = errors.New("data: Next after Close")
	}
	it.cancel()
	it.wg.Wait()
}
