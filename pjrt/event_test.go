package pjrt_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

func isClosed(err error) bool { return errors.Is(err, pjrt.ErrClosed) }

// TestEvents waits for the same events in every way, hundreds of times.
func TestEvents(t *testing.T) {
	c := xlatest.CPU(t)
	exe := compile(t, c, donateModule, sharded8)
	busyCollector(t)
	var panics atomic.Int32
	defer func(f func(string, any)) { pjrt.OnPanic = f }(pjrt.OnPanic)
	pjrt.OnPanic = func(string, any) { panics.Add(1) }
	args := donateArgs(t, c)
	steps := 200
	for i := range steps {
		outs, done, err := exe.Execute(args, pjrt.ExecuteOptions{})
		require.NoError(t, err)
		called := make(chan error, 2)
		done.OnReady(func(err error) { called <- err; stackAndHeap(50); panic(i) })
		ready, err := outs[3][0].Ready()
		require.NoError(t, err)
		require.NoError(t, ready.AwaitContext(t.Context()))
		require.NoError(t, done.Await())
		require.True(t, done.IsReady())
		require.NoError(t, done.Err())
		<-done.Done()
		done.OnReady(func(err error) { called <- err }) // after the fact
		require.NoError(t, <-called)
		require.NoError(t, <-called)
		for d := range args {
			require.NoError(t, args[d][0].Close())
			args[d][0] = outs[d][0]
		}
	}
	closeAll(t, args)
	for range 500 {
		if int(panics.Load()) == steps {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.EqualValues(t, steps, panics.Load(), "panics of callbacks are reported, not passed on")
}

func TestNilEvent(t *testing.T) {
	var e *pjrt.Event
	require.True(t, e.IsReady())
	require.NoError(t, e.Await())
	require.NoError(t, e.Err())
	<-e.Done()
	called := make(chan error)
	e.OnReady(func(err error) { called <- err })
	require.NoError(t, <-called)
}

// TestAwaitContext gives up on an event that does not come: that of a zero-copy
// transfer, while the buffer is in use.
func TestAwaitContext(t *testing.T) {
	b, done, err := xlatest.CPU(t).FromHost(aligned(4096), dtype.U8, []int{4096}, xlatest.CPU(t).LocalDevices()[0], pjrt.ZeroCopy)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, done.AwaitContext(ctx), context.Canceled)
	require.False(t, done.IsReady())
	require.NoError(t, done.Err(), "no error before completion")
	require.NoError(t, b.Close())
	require.NoError(t, done.AwaitContext(t.Context()))
}

// TestEventError: the error of an operation reaches everybody who waits.
func TestEventError(t *testing.T) {
	c := xlatest.CPU(t)
	register(t, c, "test_fail", func(*pjrt.CustomCall) error {
		return &pjrt.Error{Code: pjrt.DataLoss, Message: "lost on purpose"}
	})
	exe := compile(t, c, `module @fail { sdy.mesh @mesh = <["d"=8]>
func.func public @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
 %r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"d"}]>] out_shardings=[<@mesh, [{"d"}]>] manual_axes={"d"} (%l: tensor<1xf32>) {
  %x = stablehlo.custom_call @test_fail(%l) {api_version = 4 : i32, has_side_effect = true} : (tensor<1xf32>) -> tensor<1xf32>
  sdy.return %x : tensor<1xf32> } : (tensor<8xf32>) -> tensor<8xf32>
 return %r : tensor<8xf32> } }`, sharded8)
	args := make([][]*pjrt.Buffer, 8)
	for d := range args {
		args[d] = []*pjrt.Buffer{put(t, c, d, []float32{1}, 1)}
	}
	outs, done, err := exe.Execute(args, pjrt.ExecuteOptions{})
	require.NoError(t, err, "the call itself is asynchronous")
	called := make(chan error, 1)
	done.OnReady(func(err error) { called <- err })
	for _, err := range []error{done.Await(), <-called, done.Err()} {
		var e *pjrt.Error
		require.True(t, errors.As(err, &e), "%v", err)
		require.Equal(t, pjrt.DataLoss, e.Code)
		require.Contains(t, e.Message, "lost on purpose")
	}
	_, err = outs[0][0].Bytes()
	require.ErrorContains(t, err, "lost on purpose", "outputs carry the error on")
	closeAll(t, outs, args)
}
