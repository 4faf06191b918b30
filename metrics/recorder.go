package metrics

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

// A sink writes events to one file. An error loses the event; the file stays
// whole, and the next event may succeed.
type sink interface {
	name() string
	write(Event) error
	close() error
}

// Recorder writes events to the sinks of the recipe, on a goroutine of its own:
// a slow or full disk never makes training wait or end. What is lost for it is
// told at once and counted.
type Recorder struct {
	warn  func(format string, args ...any)
	queue chan Event
	done  chan struct{} // closed when the goroutine has closed the sinks
	grace time.Duration // that Close gives the goroutine
	sinks []*recorded   // the goroutine's, until done

	mu      sync.Mutex // guards what follows, and the closing of queue
	closed  bool
	dropped int64 // the queue was full
}

// recorded is a sink with its losses.
type recorded struct {
	sink
	lost    int64
	failing bool // the last event was lost
	first   error
}

// Loss tells what a sink did not write.
type Loss struct {
	Name   string // the file
	Events int64
	Err    error // the first
}

func (l Loss) String() string {
	return fmt.Sprintf("%d metric records of %s: %v", l.Events, l.Name, l.Err)
}

// queued is how many events wait for a slow disk before they are dropped.
const queued = 1024

// Start says where a process begins.
type Start struct {
	Step    int64 // the last before it: 0, or where it resumes
	Attempt int   // its number in the run, from 1; 0: unknown
}

// Open starts the sinks that the recipe asks for, in job.dump_folder; the files of
// the run so far are continued. warn is told of events that are lost, from the
// recorder's goroutine. A file that cannot be opened is an error: then the
// recipe or the folder is wrong, and nothing has been trained yet. An address
// that cannot be served at is a warning: it may be free at the next start.
func Open(c Config, dumpFolder string, start Start, warn func(format string, args ...any)) (*Recorder, error) {
	var sinks []sink
	fail := func(err error) (*Recorder, error) {
		for _, s := range sinks {
			err = errors.Join(err, s.close())
		}
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if c.EnableJSON {
		s, err := openJSON(filepath.Join(dumpFolder, c.SaveJSONFile))
		if err != nil {
			return fail(err)
		}
		sinks = append(sinks, s)
	}
	if c.EnableTensorboard {
		s, err := openTensorBoard(filepath.Join(dumpFolder, c.SaveTBFolder), time.Now(), start.Step)
		if err != nil {
			return fail(err)
		}
		sinks = append(sinks, s)
	}
	if c.Prometheus != "" {
		if s, err := openPrometheus(c.Prometheus); err != nil {
			warn("metrics: nothing is served for Prometheus at %s: %v; training goes on; name another metrics.prometheus, or end what listens there", c.Prometheus, err)
		} else {
			sinks = append(sinks, s)
		}
	}
	r := newRecorder(warn, queued, sinks...)
	e := Event{Kind: StartEvent, Step: start.Step, Time: time.Now()}
	if start.Attempt > 0 {
		e.Scalars = []Scalar{{"attempt", float64(start.Attempt)}}
	}
	r.Record(e)
	return r, nil
}

func newRecorder(warn func(format string, args ...any), size int, sinks ...sink) *Recorder {
	r := &Recorder{warn: warn, queue: make(chan Event, size), done: make(chan struct{}), grace: 10 * time.Second}
	for _, s := range sinks {
		r.sinks = append(r.sinks, &recorded{sink: s})
	}
	go r.run()
	return r
}

// Record hands an event over; it never waits. After Close it does nothing.
func (r *Recorder) Record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	select {
	case r.queue <- e:
	default:
		if r.dropped++; r.dropped == 1 {
			r.warn("metrics: writing is slower than training: records are dropped; the disk of the metrics may hang")
		}
	}
}

func (r *Recorder) run() {
	defer close(r.done)
	for e := range r.queue {
		for _, s := range r.sinks {
			s.record(e, r.warn)
		}
	}
	for _, s := range r.sinks {
		if err := s.close(); err != nil {
			s.lost++
			s.first = errors.Join(s.first, err)
		}
	}
}

func (s *recorded) record(e Event, warn func(format string, args ...any)) {
	err := s.write(e)
	switch {
	case err == nil && s.failing:
		s.failing = false
		warn("metrics: %s is written again; %d records are lost", s.name(), s.lost)
	case err != nil:
		s.lost++
		if s.first == nil {
			s.first = err
		}
		if !s.failing {
			s.failing = true
			warn("metrics: step %d is not recorded in %s: %v; training goes on", e.Step, s.name(), err)
		}
	}
}

// Close writes what is queued, closes the files and returns what was lost. It
// waits ten seconds for a disk that hangs, and no longer: a preempted process
// has to end. A second call returns nothing.
func (r *Recorder) Close() []Loss {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	close(r.queue)
	select {
	case <-r.done:
	case <-time.After(r.grace):
		return []Loss{{"all files", r.dropped + int64(len(r.queue)), fmt.Errorf("writing still hangs after %v", r.grace)}}
	}
	var lost []Loss
	for _, s := range r.sinks {
		if s.lost > 0 {
			lost = append(lost, Loss{s.name(), s.lost, s.first})
		}
	}
	if r.dropped > 0 {
		lost = append(lost, Loss{"all files", r.dropped, errors.New("writing was slower than training")})
	}
	return lost
}
