package checkpoint

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage/faultfs"
)

func TestSaverSaves(t *testing.T) {
	fs := faultfs.New()
	s, err := NewStore(fs, testOptions(2))
	require.NoError(t, err)
	defer s.Close()
	m, tensors := smallMesh(t, 1), smallTensors()
	var reported []int
	a := s.NewSaver(ctx, func(saved *Saved, err error) {
		if err == nil {
			reported = append(reported, saved.Step)
		}
	})
	position := map[string]int{"n": 1}
	for step := range 5 {
		snap := snapshot(step, step, m, tensors)
		snap.State["position"] = position
		position["n"] = step
		require.NoError(t, a.Save(ctx, snap))
		position["n"] = -1 // the trainer goes on
	}
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.Equal(t, []int{0, 1, 2, 3, 4}, reported)
	h := history{keep: 2, tried: []save{{3, 3}, {4, 4}}, acked: []save{{3, 3}, {4, 4}}}
	require.NoError(t, h.check(fs, tensors))
	c, err := s.Open(Latest)
	require.NoError(t, err)
	var got map[string]int
	require.NoError(t, c.State("position", &got))
	require.Equal(t, map[string]int{"n": 4}, got, "the state is that of the moment of Save")
	require.ErrorIs(t, a.Save(ctx, snapshot(9, 9, m, tensors)), ErrSaverClosed)
	require.ErrorIs(t, a.Wait(ctx), ErrSaverClosed)
}

// At most one snapshot is in hand: the next waits, and gives up with its context.
func TestSaverHoldsBack(t *testing.T) {
	started, finish := make(chan int), make(chan error)
	a := newSaver(ctx, func(_ context.Context, s Snapshot) (*Saved, error) {
		started <- s.Step
		return &Saved{Step: s.Step}, <-finish
	}, nil)
	require.NoError(t, a.Save(ctx, Snapshot{Step: 1}))
	require.Equal(t, 1, <-started)

	impatient, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, a.Save(impatient, Snapshot{Step: 2}), context.Canceled)
	require.ErrorIs(t, a.Wait(impatient), context.Canceled)

	second := make(chan error, 1)
	go func() { second <- a.Save(ctx, Snapshot{Step: 2}) }()
	finish <- nil
	require.NoError(t, <-second)
	require.Equal(t, 2, <-started, "the second begins when the first is done")
	finish <- errors.New("disk full")

	// The failure comes with the next call, which can then be repeated.
	require.ErrorContains(t, a.Save(ctx, Snapshot{Step: 3}), "disk full")
	require.NoError(t, a.Save(ctx, Snapshot{Step: 3}))
	require.Equal(t, 3, <-started)
	finish <- errors.New("disk full again")
	require.ErrorContains(t, a.Wait(ctx), "disk full again")
	require.NoError(t, a.Wait(ctx))
	require.NoError(t, a.Save(ctx, Snapshot{Step: 4}))
	require.Equal(t, 4, <-started)
	finish <- errors.New("the last")
	require.ErrorContains(t, a.Close(), "the last")
	require.NoError(t, a.Close())

	require.ErrorContains(t, a.Save(ctx, Snapshot{State: map[string]any{"f": func() {}}}), "cannot be encoded")
}

// When the saver's context is done, the save in progress is taken back.
func TestSaverCancelled(t *testing.T) {
	fs := faultfs.New()
	s, err := NewStore(fs, testOptions(2))
	require.NoError(t, err)
	defer s.Close()
	cancelled, cancel := context.WithCancel(ctx)
	a := s.NewSaver(cancelled, nil)
	snap := snapshot(1, 1, smallMesh(t, 1), smallTensors())
	released := make(chan struct{})
	snap.Release = func() { close(released) }
	snap.Shard = func(ctx context.Context, _, _ int) ([]byte, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	require.NoError(t, a.Save(ctx, snap))
	<-released
	require.ErrorIs(t, a.Close(), context.Canceled)
	require.NoError(t, checkTidy(fs))
}

// Many callers at once: nothing is lost, nothing deadlocks.
func TestSaverManyCallers(t *testing.T) {
	var mu sync.Mutex
	got := map[int]bool{}
	a := newSaver(ctx, func(_ context.Context, s Snapshot) (*Saved, error) {
		mu.Lock()
		defer mu.Unlock()
		got[s.Step] = true
		return &Saved{}, nil
	}, nil)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := a.Save(ctx, Snapshot{Step: i}); err != nil {
				t.Error(err)
			}
			if i%5 == 0 {
				if err := a.Wait(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, a.Close())
	require.Len(t, got, 50)
}
