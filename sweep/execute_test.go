package sweep

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// execute tries a sweep and returns it as it is kept.
func execute(t *testing.T, dir string, spec Spec, o Options) *Sweep {
	t.Helper()
	s, err := New(spec)
	require.NoError(t, err)
	require.NoError(t, Execute(context.Background(), dir, s, o))
	kept, warnings, err := Open(dir)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, s.Points, kept.Points)
	return kept
}

// Warm throughput is that of the steps behind the warm-up, and efficiency that by
// the smallest point.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	s := execute(t, dir, onDevices(1, 2, 4), fakeOptions(""))
	for i, n := range []float64{1, 2, 4} {
		p := s.Points[i]
		seconds := 1 + 0.1*(n-1)
		require.Equal(t, OK, p.Status, p.Error)
		require.InDelta(t, seconds, p.StepSeconds, 1e-9)
		require.InDelta(t, 256/seconds, p.TPSDevice, 1e-9)
		require.InDelta(t, n*256/seconds, p.TPS, 1e-9)
		require.InDelta(t, 1/seconds, p.Efficiency, 1e-9)
		require.InDelta(t, 2.56/seconds, p.MFU.Full, 1e-9)
		require.InDelta(t, 1.28/seconds, p.MFU.Causal, 1e-9)
		require.InDelta(t, 0.01, p.Breakdown["waiting for data"], 1e-9)
		require.EqualValues(t, 2<<30, p.Memory)
		require.InDelta(t, 6, *p.Loss, 1e-9)
		require.Equal(t, "devices-1", p.Baseline)
		require.Equal(t, Versions{"test", "none"}, p.Versions)
		require.FileExists(t, filepath.Join(dir, p.RunDir, metricsFile))
		require.FileExists(t, filepath.Join(dir, p.Log))
	}
}

// Points that fail are kept with what they said, and the others tried.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	o := fakeOptions("1=fails,2=killed,4=silent,5=empty,6=memory")
	spec := onDevices(1, 2, 4, 5, 6)
	s := execute(t, dir, spec, o)
	for i, want := range []struct {
		failure Failure
		says    string
	}{
		{Crashed, "the recipe has 2 mistakes: one; two"}, {Killed, "the process was killed: killed"},
		{Crashed, "exit status 9"}, {Crashed, "no such file"}, {OutOfMemory, "Out of memory while"},
	} {
		p := s.Points[i]
		require.Equal(t, Failed, p.Status)
		require.Equal(t, want.failure, p.Failure, p.Error)
		require.Contains(t, p.Error, want.says)
		require.Zero(t, p.Efficiency)
	}

	// They are not tried again unless that is asked for.
	o = fakeOptions("")
	again := execute(t, dir, spec, o)
	require.Equal(t, s.Points, again.Points)
	o.Again = FailedPoints
	mended := execute(t, dir, spec, o)
	for _, p := range mended.Points {
		require.Equal(t, OK, p.Status, p.Error)
		require.Empty(t, p.Failure)
		require.Empty(t, p.Error)
	}
	tried, _ := attempts(t, dir)
	require.Len(t, tried, 10)
	o.Again = All
	execute(t, dir, spec, o)
	tried, _ = attempts(t, dir)
	require.Len(t, tried, 15)
}

// A point that takes too long is ended, even if it does not listen.
func TestTimeout(t *testing.T) {
	o := fakeOptions("2=hangs")
	o.Timeout = 50 * time.Millisecond
	p := execute(t, t.TempDir(), onDevices(2), o).Points[0]
	require.Equal(t, Failed, p.Status)
	require.Equal(t, TimedOut, p.Failure)
	require.Equal(t, "took longer than 50.0 ms", p.Error)
}

// What is done stays, and a larger sweep of the same name adds to it.
func TestGoOn(t *testing.T) {
	dir := t.TempDir()
	first := execute(t, dir, onDevices(2, 1), fakeOptions(""))
	more := execute(t, dir, onDevices(4, 2), fakeOptions(""))
	tried, _ := attempts(t, dir)
	require.Equal(t, []string{"devices-1", "devices-2", "devices-4"}, tried)
	require.Equal(t, []string{"devices-2", "devices-4", "devices-1"}, []string{more.Points[0].ID, more.Points[1].ID, more.Points[2].ID})
	require.Equal(t, first.Points[0], more.Points[2])
	require.Equal(t, "devices-1", more.Points[1].Baseline)
	require.Equal(t, first.Started, more.Started)

	// Another sweep does not mix with it.
	for _, change := range []func(*Spec){
		func(s *Spec) { s.Mode = Strong }, func(s *Spec) { s.Steps = 5 }, func(s *Spec) { s.Set = []string{"training.seq_len=128", "validation.seq_len=128"} },
		func(s *Spec) { s.Recipe = "qwen3_debug" },
	} {
		spec := onDevices(1)
		change(&spec)
		s, err := New(spec)
		require.NoError(t, err)
		require.ErrorContains(t, Execute(context.Background(), dir, s, fakeOptions("")), "give this one another name")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), []byte("no sweep"), 0o666))
	s, err := New(onDevices(1))
	require.NoError(t, err)
	require.ErrorContains(t, Execute(context.Background(), dir, s, fakeOptions("")), "this is no sweep")
}

// A sweep that is asked to end leaves the point under way to be repeated.
func TestStop(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := New(onDevices(1, 2, 4))
	require.NoError(t, err)
	o := fakeOptions("2=waits")
	done := make(chan error)
	go func() { done <- Execute(ctx, dir, s, o) }()
	waitFor(t, func() bool { ids, _ := attempts(t, dir); return len(ids) == 2 })
	_, hung := attempts(t, dir)

	other, err := New(onDevices(1, 2, 4))
	require.NoError(t, err)
	require.ErrorContains(t, Execute(context.Background(), dir, other, o), "another titan sweep is at work there")

	cancel()
	err = <-done
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "sweep: stopped at devices-2; the same command goes on from there")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, syscall.Kill(hung, 0), syscall.ESRCH)
	kept, warnings, err := Open(dir)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, []Status{OK, Pending, Pending}, []Status{kept.Points[0].Status, kept.Points[1].Status, kept.Points[2].Status})
	execute(t, dir, onDevices(1, 2, 4), fakeOptions(""))
	ids, _ := attempts(t, dir)
	require.Equal(t, []string{"devices-1", "devices-2", "devices-2", "devices-4"}, ids)
}

// A sweep that is killed takes the point under way with it, which is repeated.
func TestKilledSweep(t *testing.T) {
	dir := t.TempDir()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), folderVar+"="+dir)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	waitFor(t, func() bool { ids, _ := attempts(t, dir); return len(ids) == 2 })
	_, hung := attempts(t, dir)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	waitFor(t, func() bool { return gone(hung) })
	kept, warnings, err := Open(dir)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, Running, kept.Points[1].Status)
	s := execute(t, dir, onDevices(1, 2, 4), fakeOptions(""))
	ids, _ := attempts(t, dir)
	require.Equal(t, []string{"devices-1", "devices-2", "devices-2", "devices-4"}, ids)
	for _, p := range s.Points {
		require.Equal(t, OK, p.Status)
	}
}

// zombie is the state of a process that has ended.
var zombie = regexp.MustCompile(`\) Z `)

// gone says whether a process has ended; nobody may have asked for its status yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || len(stat) > 0 && zombie.Match(stat)
}

func waitFor(t *testing.T, ready func() bool) {
	t.Helper()
	for range 2000 {
		if ready() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nothing happened for 10 s")
}
