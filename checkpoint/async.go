package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// ErrSaverClosed is returned by a Saver that was closed.
var ErrSaverClosed = errors.New("checkpoint: the saver is closed")

// Saver saves in the background, one snapshot at a time. A snapshot that comes
// while another is being saved waits for it: at most one is ever held.
//
// A failure is returned by the next call: Save, Wait or Close.
type Saver struct {
	save   func(context.Context, Snapshot) (*Saved, error)
	ctx    context.Context
	cancel context.CancelFunc
	work   chan Snapshot
	done   chan struct{} // closed when the goroutine has ended
	turn   chan struct{} // holds a token while no snapshot is in hand
	report func(*Saved, error)

	mu     sync.Mutex
	err    error // of a save, not yet returned
	closed bool
}

// NewSaver starts a saver. When ctx is done the save in progress is given up. If
// report is not nil it is called after every save, from the saver's goroutine.
func (s *Store) NewSaver(ctx context.Context, report func(*Saved, error)) *Saver {
	return newSaver(ctx, s.Save, report)
}

func newSaver(ctx context.Context, save func(context.Context, Snapshot) (*Saved, error), report func(*Saved, error)) *Saver {
	a := &Saver{save: save, work: make(chan Snapshot), done: make(chan struct{}), turn: make(chan struct{}, 1), report: report}
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.turn <- struct{}{}
	go a.run()
	return a
}

func (a *Saver) run() {
	defer close(a.done)
	for snap := range a.work {
		saved, err := a.save(a.ctx, snap)
		if err != nil {
			a.mu.Lock()
			a.err = errors.Join(a.err, err)
			a.mu.Unlock()
		}
		if a.report != nil {
			a.report(saved, err)
		}
		a.turn <- struct{}{}
	}
}

// take returns and forgets the error of an earlier save.
func (a *Saver) take() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.err
	a.err = nil
	return err
}

// Save hands a snapshot over and returns as soon as the saver has it. While an
// earlier one is being saved it waits, at most until ctx is done.
//
// If it returns an error the snapshot was not taken and Release not called: the
// error is that of an earlier save, of ctx, of encoding the state, or
// ErrSaverClosed. After the error of an earlier save, calling again hands the
// snapshot over.
func (a *Saver) Save(ctx context.Context, snap Snapshot) error {
	// The state is encoded now: it goes on changing while we save.
	state, err := snap.encodeState()
	if err != nil {
		return err
	}
	snap.State = make(map[string]any, len(state))
	for k, v := range state {
		snap.State[k] = json.RawMessage(v)
	}
	if err := a.wait(ctx); err != nil {
		return err
	}
	if err := a.take(); err != nil {
		a.turn <- struct{}{}
		return err
	}
	a.work <- snap // the goroutine is idle
	return nil
}

// wait takes the turn: nothing is being saved, and nobody else starts.
func (a *Saver) wait(ctx context.Context) error {
	select {
	case <-a.turn:
	case <-ctx.Done():
		return fmt.Errorf("checkpoint: waiting for the save in progress: %w", ctx.Err())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		a.turn <- struct{}{}
		return ErrSaverClosed
	}
	return nil
}

// Wait returns when nothing is being saved, with the error of an earlier save.
func (a *Saver) Wait(ctx context.Context) error {
	if err := a.wait(ctx); err != nil {
		return err
	}
	a.turn <- struct{}{}
	return a.take()
}

// Close waits for the save in progress and ends the saver. It returns the error
// of a save that no other call has returned.
func (a *Saver) Close() error {
	if err := a.wait(context.Background()); err != nil {
		return a.take() // closed before
	}
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	close(a.work)
	<-a.done
	a.cancel()
	a.turn <- struct{}{}
	return a.take()
}
