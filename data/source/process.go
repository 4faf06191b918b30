package source

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// Process reads the files and runs work on their chunks, on as many goroutines
// at once as workers says (0: one a core), and passes the results to collect one
// by one in the order of the chunks. Each goroutine has its own worker number.
// The first error in that order ends everything and is returned; so does ctx.
// No goroutine is left when Process returns.
func Process[T any](ctx context.Context, files []File, o Options, workers int,
	work func(worker int, c *Chunk) (T, error), collect func(T) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		v   T
		err error
	}
	type job struct {
		c    *Chunk
		done chan result
	}
	jobs := make(chan job)
	// The queue bounds what is read ahead of the slowest chunk.
	queue := make(chan job, 2*workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	wg.Add(1)
	go func() {
		defer wg.Done()
		defer close(queue)
		defer close(jobs)
		err := guard(func() error {
			return read(ctx, files, &o, func(c *Chunk) error {
				j := job{c, make(chan result, 1)}
				for _, ch := range []chan job{queue, jobs} {
					select {
					case ch <- j:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			})
		})
		if err != nil {
			j := job{done: make(chan result, 1)}
			j.done <- result{err: err}
			select {
			case queue <- j:
			case <-ctx.Done():
			}
		}
	}()
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range jobs {
				var r result
				r.err = guard(func() (err error) {
					r.v, err = work(w, j.c)
					return err
				})
				j.done <- r
			}
		}()
	}
	for j := range queue {
		select {
		case r := <-j.done:
			if r.err != nil {
				return r.err
			}
			if err := collect(r.v); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// guard turns a panic, such as a reader's on a damaged file, into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error while reading: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
