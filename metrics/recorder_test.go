package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// warnings gathers what is told.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) warn(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, fmt.Sprintf(format, args...))
}

func event(step int64, loss float64) Event {
	return Event{TrainEvent, step, time.Unix(1_800_000_000, 0), []Scalar{{"loss_metrics/global_avg_loss", loss}}, nil, nil}
}

func lines(t *testing.T, path string) []map[string]any {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(raw, []byte("\n")))
	var out []map[string]any
	for l := range strings.Lines(string(raw)) {
		m := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(l), &m), "%q", l)
		out = append(out, m)
	}
	return out
}

func TestJSONLine(t *testing.T) {
	e := window().Event()
	e.Scalars = append(e.Scalars, Scalar{`od"d`, math.NaN()}, Scalar{"inf", math.Inf(1)})
	require.Equal(t, `{"kind":"train","step":10,"time":"2027-01-15T08:00:00.5Z","loss_metrics/global_avg_loss":6.99123456,"grad_norm":1.23456,`+
		`"throughput(tps)":2059.4,"tflops":1119.25,"tflops_causal":90.5,"mfu(%)":12.0612,"mfu_causal(%)":9.15,"time_metrics/end_to_end(s)":2,`+
		`"time_metrics/data_loading(s)":0.1,"time_metrics/data_loading(%)":5,"memory/max_active(GiB)":30,"memory/max_reserved(GiB)":40,`+
		`"n_tokens_seen":16777217,"skipped_steps":0,"lr/default":0.0008,"lr/embed":0.0001,"moe/aux_loss":1.5,"od\"d":null,"inf":null}`+"\n", string(jsonLine(e)))
	v := &Validation{Step: 7, Loss: 5, TPS: 3, Memory: Memory{Reserved: 1 << 30}}
	require.Contains(t, string(jsonLine(v.Event())), `"validation_metrics/loss":5,"validation_metrics/throughput(tps)":3,"validation_metrics/memory/max_reserved(GiB)":1}`)
}

// A run that was killed while it wrote a line goes on behind the last whole one,
// wherever the kill was.
func TestJSONResume(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "metrics.jsonl")
	var w warnings
	open := func(step int64) *Recorder {
		r, err := Open(DefaultConfig(), dir, Start{Step: step}, w.warn)
		require.NoError(t, err)
		return r
	}
	r := open(0)
	for i := range int64(3) {
		r.Record(event(i+1, 5))
	}
	require.Empty(t, r.Close())
	require.Empty(t, r.Close())
	r.Record(event(9, 9)) // too late: nothing
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, lines(t, path), 4)
	last := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := last; cut < len(whole); cut++ {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o666))
		r := open(2)
		r.Record(event(3, 4))
		require.Empty(t, r.Close())
		got := lines(t, path)
		require.Len(t, got, 5, "cut at %d", cut)
		require.Equal(t, "start", got[3]["kind"])
		require.EqualValues(t, 2, got[3]["step"])
		require.EqualValues(t, 4, got[4]["loss_metrics/global_avg_loss"])
	}
	// A single begun line, longer than a block.
	require.NoError(t, os.WriteFile(path, []byte("{"+strings.Repeat("x", 200_000)), 0o666))
	require.Empty(t, open(0).Close())
	require.Len(t, lines(t, path), 1)
	require.NoError(t, os.WriteFile(path, append([]byte(`{"a":1}`+"\n{"), strings.Repeat("x", 200_000)...), 0o666))
	require.Empty(t, open(0).Close())
	require.Len(t, lines(t, path), 2)
	require.Empty(t, w.all)

	// What is not ours is not cut.
	require.NoError(t, os.WriteFile(path, []byte("my notes"), 0o666))
	_, err = Open(DefaultConfig(), dir, Start{}, w.warn)
	require.ErrorContains(t, err, "metrics.jsonl: this is no file of JSON lines; move it away, or name another in metrics.save_json_file")
	notes, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "my notes", string(notes))
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tb"), nil, 0o666))
	c := DefaultConfig()
	c.EnableTensorboard = true
	_, err := Open(c, dir, Start{}, nil)
	require.ErrorContains(t, err, filepath.Join(dir, "tb"))
	_, err = Open(DefaultConfig(), filepath.Join(dir, "tb"), Start{}, nil)
	require.ErrorContains(t, err, "metrics: ")
}

// disk is a file on a disk with so many bytes left.
type disk struct {
	data []byte
	left int
}

func (d *disk) WriteAt(b []byte, at int64) (int, error) {
	n := min(len(b), d.left)
	d.left -= n
	d.data = append(d.data[:at], b[:n]...)
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}
func (d *disk) Truncate(n int64) error {
	d.left += len(d.data) - int(n)
	d.data = d.data[:n]
	return nil
}
func (d *disk) Sync() error  { return nil }
func (d *disk) Close() error { return nil }
func (d *disk) Name() string { return "metrics.jsonl" }

// A full disk is told once, costs its records and nothing else; what is written
// stays whole, and it goes on when there is room again.
func TestFullDisk(t *testing.T) {
	one := len(jsonLine(event(1, 1.5)))
	d := &disk{left: 3*one + one/2}
	var w warnings
	sink := &jsonSink{&appender{f: d}}
	s := &recorded{sink: sink}
	for i := range int64(10) {
		s.record(event(i+1, 1.5), w.warn)
	}
	require.Equal(t, 3*one, len(d.data), "whole records alone are left")
	d.left += 10 * one
	s.record(event(2, 3.5), w.warn)
	s.record(event(3, 4.5), w.warn)
	r := newRecorder(w.warn, 1, sink)
	r.sinks[0].lost, r.sinks[0].first = s.lost, s.first
	lost := r.Close()
	require.Len(t, lost, 1)
	require.EqualValues(t, 7, lost[0].Events)
	require.ErrorIs(t, lost[0].Err, syscall.ENOSPC)
	require.Equal(t, "7 metric records of metrics.jsonl: no space left on device", lost[0].String())
	require.Equal(t, []string{
		"metrics: step 4 is not recorded in metrics.jsonl: no space left on device; training goes on",
		"metrics: metrics.jsonl is written again; 7 records are lost",
	}, w.all)
	var losses []float64
	for l := range bytes.Lines(d.data) {
		var m map[string]any
		require.NoError(t, json.Unmarshal(l, &m))
		losses = append(losses, m["loss_metrics/global_avg_loss"].(float64))
	}
	require.Equal(t, []float64{1.5, 1.5, 1.5, 3.5, 4.5}, losses)
}

// callSink calls a function.
type callSink struct{ f func() }

func (s *callSink) name() string      { return "call" }
func (s *callSink) write(Event) error { s.f(); return nil }
func (s *callSink) close() error      { return errors.New("cannot close") }

// A disk that hangs does not make training wait.
func TestHangingDisk(t *testing.T) {
	var w warnings
	hang := make(chan struct{})
	r := newRecorder(w.warn, 4, &callSink{func() { <-hang }})
	for i := range int64(100) {
		r.Record(event(i, 0))
	}
	close(hang)
	lost := r.Close()
	require.Len(t, lost, 2)
	require.Contains(t, lost[0].String(), "1 metric records of call: cannot close")
	require.GreaterOrEqual(t, lost[1].Events, int64(95))
	require.Len(t, w.all, 1)
	require.Contains(t, w.all[0], "records are dropped")
}

// Nor does it keep the process from ending.
func TestDiskHangsAtTheEnd(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	entered := make(chan struct{}, 10)
	r := newRecorder((&warnings{}).warn, 4, &callSink{func() { entered <- struct{}{}; <-hang }})
	r.grace = time.Millisecond
	r.Record(event(1, 0))
	<-entered
	r.Record(event(2, 0))
	lost := r.Close()
	require.Len(t, lost, 1)
	require.Equal(t, "1 metric records of all files: writing still hangs after 1ms", lost[0].String())
}
