// Package chrometrace writes timelines in the trace event format that Perfetto
// (ui.perfetto.dev) and chrome://tracing show.
//
//	t := chrometrace.New()
//	end := t.Span("trainer", "wait", map[string]any{"step": 7})
//	…
//	end()
//	t.WriteTo(file)
//
// Format: "Trace Event Format" of the Chromium project, complete events ("X") and
// names of processes and threads ("M"); times in microseconds.
package chrometrace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"
)

// Event is something that took a while.
type Event struct {
	Process string // a group of tracks
	Track   string
	Name    string
	Start   time.Time
	Length  time.Duration
	Args    map[string]any
}

// Trace collects events, from any goroutine. A nil one takes everything and keeps
// nothing.
type Trace struct {
	mu     sync.Mutex
	events []Event
}

// New returns an empty trace.
func New() *Trace { return &Trace{} }

// Add adds events.
func (t *Trace) Add(events ...Event) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, events...)
}

// Span begins an event, which lasts until end is called.
func (t *Trace) Span(process, track, name string, args map[string]any) (end func()) {
	if t == nil {
		return func() {}
	}
	start := time.Now()
	return func() { t.Add(Event{process, track, name, start, time.Since(start), args}) }
}

// Events returns the events so far, by start.
func (t *Trace) Events() []Event {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	out := slices.Clone(t.events)
	t.mu.Unlock()
	slices.SortStableFunc(out, func(a, b Event) int { return a.Start.Compare(b.Start) })
	return out
}

// entry is an event as it is written.
type entry struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"` // µs since the first event
	Dur   float64        `json:"dur"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteTo writes the document. Processes and tracks are in the order of their first
// events.
func (t *Trace) WriteTo(w io.Writer) (int64, error) {
	c := &counter{w: w}
	b := bufio.NewWriter(c)
	events := t.Events()
	type place struct{ process, track string }
	pids, tids := map[string]int{}, map[place]int{}
	var entries []entry
	name := func(kind string, pid, tid int, name string) {
		entries = append(entries, entry{Name: kind, Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": name}})
	}
	for _, e := range events {
		pid, tid := pids[e.Process], tids[place{e.Process, e.Track}]
		if pid == 0 {
			pid = len(pids) + 1
			pids[e.Process] = pid
			name("process_name", pid, 0, e.Process)
		}
		if tid == 0 {
			tid = len(tids) + 1
			tids[place{e.Process, e.Track}] = tid
			name("thread_name", pid, tid, e.Track)
		}
		entries = append(entries, entry{
			Name: e.Name, Phase: "X", PID: pid, TID: tid, Args: e.Args,
			Time: micros(e.Start.Sub(events[0].Start)), Dur: micros(e.Length),
		})
	}
	_, err := b.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	for i, e := range entries {
		raw, jerr := json.Marshal(e)
		if i > 0 {
			raw = append([]byte(",\n"), raw...)
		}
		_, werr := b.Write(raw)
		err = cmp.Or(err, jerr, werr)
	}
	_, werr := b.WriteString("]}\n")
	return c.n, cmp.Or(err, werr, b.Flush())
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
