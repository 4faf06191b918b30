package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signal that comes before there is anything to save, while the program is
// compiled or a checkpoint restored, while validating, and when all is done.
func TestSignals(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	t.Run("at the very start", func(t *testing.T) {
		r := recipe(t, data)
		var log bytes.Buffer
		res, err := Run(ctx, RunOptions{Recipe: r, Out: &log, Stop: signalled(syscall.SIGTERM)})
		require.NoError(t, err)
		require.True(t, res.Preempted())
		require.False(t, res.Saved)
		require.Zero(t, res.Step)
		require.Empty(t, steps(t, r))
	})
	t.Run("while restoring", func(t *testing.T) {
		r := recipe(t, data)
		runUntil(t, r, "saved ")
		before := steps(t, r)
		res, log := runUntil(t, r, "compiled: ")
		require.True(t, res.Preempted())
		require.Equal(t, before, steps(t, r), "%s", log)
		res, log = runUntil(t, r, "resumed from ")
		require.True(t, res.Saved)
		require.EqualValues(t, before[len(before)-1], res.Step)
		require.Equal(t, before, steps(t, r), "%s", log)
	})
	t.Run("while validating", func(t *testing.T) {
		r := recipe(t, data, "validation.enable=true", "validation.freq=2",
			"validation.dataset_path="+dataset(t, documents(9, 4000, 20, 30)...))
		res, log := runUntil(t, r, "step:  2 ")
		require.True(t, res.Preempted())
		require.EqualValues(t, 2, res.Step)
		require.Contains(t, log, "terminated: the validation after step 2 is left out")
		require.Equal(t, []int{2}, steps(t, r))
		require.Empty(t, records(t, r, "validation"))
	})
	t.Run("when all is done", func(t *testing.T) {
		r := recipe(t, data)
		run(t, r)
		res, log := run(t, r)
		require.EqualValues(t, 6, res.Step)
		require.Nil(t, res.Stopped)
		require.Contains(t, log, "nothing to do: 6 of 6 steps are done")
		require.Equal(t, []int{2, 4, 6}, steps(t, r))
	})
	t.Run("without checkpoints", func(t *testing.T) {
		r := recipe(t, data, "checkpoint.enable=false")
		res, _ := runUntil(t, r, "step:  1 ")
		require.NotNil(t, res.Stopped)
		require.False(t, res.Saved)
	})
}

// A context that ends is not a signal: nothing is saved.
func TestCancelled(t *testing.T) {
	quickly(t)
	r := recipe(t, dataset(t, documents(1, 40, 5, 60)...))
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, err := Run(ctx, RunOptions{Recipe: r, Out: &bytes.Buffer{}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAbandonable(t *testing.T) {
	v, err := abandonable(ctx, func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, v)
	_, err = abandonable(ctx, func() (int, error) { return 0, errors.New("no") })
	require.EqualError(t, err, "no")
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	block := make(chan int)
	defer close(block)
	_, err = abandonable(ctx, func() (int, error) { return <-block, nil })
	require.ErrorIs(t, err, errAbandoned)
	require.ErrorIs(t, err, context.Canceled)
	defer func() {
		p := fmt.Sprint(recover())
		require.True(t, strings.HasPrefix(p, "a bug\n"), p)
		require.Contains(t, p, "stop_test.go", "the stack is that of the goroutine")
	}()
	_, _ = abandonable(context.Background(), func() (int, error) { panic("a bug") })
}

// libtpu looks for a TPU for minutes: who has none is told what they wait for.
func TestNoTPU(t *testing.T) {
	dev := t.TempDir()
	require.Empty(t, noTPU("cpu", dev))
	require.Contains(t, noTPU("tpu", dev), "no TPU")
	require.NoError(t, os.Mkdir(filepath.Join(dev, "vfio"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dev, "vfio", "vfio"), nil, 0o666)) // there for any device
	require.Contains(t, noTPU("tpu", dev), "no TPU")
	require.NoError(t, os.WriteFile(filepath.Join(dev, "vfio", "0"), nil, 0o666))
	require.Empty(t, noTPU("tpu", dev))
	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "accel3"), nil, 0o666))
	require.Empty(t, noTPU("tpu", other))
}
