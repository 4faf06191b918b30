package runs

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"titan/checkpoint/storage"
	"titan/configs"
)

// Options say what an attempt writes.
type Options struct {
	Dir   string // of the run, which exists and which this process alone writes to
	Files Files
	Titan string // version
	Go    string
	// Warn is told what could not be written, from a goroutine of the writer.
	Warn func(format string, args ...any)
}

// Beat is how often a running attempt writes its record anew.
const Beat = 10 * time.Second

// Writer keeps the record and the log of a run while a process trains. Files are
// written on a goroutine of its own: a slow or full disk never makes training wait
// or end; what is lost is told. A nil one writes nothing, for processes that do not
// lead their run.
type Writer struct {
	fs    storage.FS
	warn  func(format string, args ...any)
	grace time.Duration // that End gives the goroutine
	wake  chan struct{} // has room for one
	lines chan []byte
	done  chan struct{} // closed when the goroutine has ended
	log   *logFile      // the goroutine's

	mu      sync.Mutex // guards what follows, and the closing of lines
	record  Record
	closed  bool
	dropped int64 // lines of the log
}

// Begin adds an attempt to the record of a run, or begins the record. What cannot
// be written at this first time is an error: the folder is wrong, and nothing has
// been trained yet.
func Begin(o Options) (*Writer, error) {
	store, err := storage.Local(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	w := &Writer{
		fs: store, warn: o.Warn, grace: 10 * time.Second,
		wake: make(chan struct{}, 1), lines: make(chan []byte, 1024), done: make(chan struct{}),
	}
	if w.record, err = soFar(o); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	w.record.Schema, w.record.Files = Schema, o.Files
	if w.record.ID == "" {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		w.record.ID, w.record.Created = hex.EncodeToString(id[:]), now
	}
	a := &Attempt{
		Number: len(w.record.Attempts) + 1, Start: now, Titan: o.Titan, Go: o.Go,
		Programs: []Program{}, Checkpoints: []Checkpoint{}, Machine: Machine{Mesh: []Axis{}}, // not null
	}
	w.record.Attempts = append(w.record.Attempts, a)
	if err := w.save(); err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	if o.Files.Log != "" {
		if w.log, err = openLog(filepath.Join(o.Dir, filepath.FromSlash(o.Files.Log))); err != nil {
			return nil, fmt.Errorf("runs: %w", err)
		}
		_, _ = fmt.Fprintf(w, "=== attempt %d, %s, titan %s\n", a.Number, now.Format(time.RFC3339), o.Titan)
	}
	go w.run()
	return w, nil
}

// soFar is the record of the attempts before this one. A damaged one is put aside,
// and what the metrics know takes its place.
func soFar(o Options) (Record, error) {
	path := filepath.Join(o.Dir, configs.RunRecord)
	raw, err := os.ReadFile(path)
	var r Record
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return r, fmt.Errorf("runs: %w", err)
	default:
		if err := json.Unmarshal(raw, &r); err == nil && r.Schema > Schema {
			return r, fmt.Errorf("runs: %s has schema %d, of a later titan; this one knows %d: use that titan, or another job.dump_folder", path, r.Schema, Schema)
		} else if err != nil {
			o.Warn("%s is damaged: it is kept as %s.damaged, and the attempts so far are those of %s", path, configs.RunRecord, o.Files.Metrics)
			if err := os.Rename(path, path+".damaged"); err != nil {
				return r, fmt.Errorf("runs: %w", err)
			}
		}
	}
	r.Attempts = slices.DeleteFunc(r.Attempts, func(a *Attempt) bool { return a == nil })
	if n := len(r.Attempts); n > 0 && r.Attempts[n-1].Exit != nil {
		return r, nil
	}
	// Reading it with the metrics finds when a killed process was last seen. That
	// there is nothing yet is no matter.
	run, _, err := Open(o.Dir)
	if err != nil {
		return Record{}, nil
	}
	return run.Record, nil
}

// Number is the attempt's, from 1; 0 if there is no writer.
func (w *Writer) Number() int {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.record.Attempts)
}

// Update changes the attempt, or those before it, and has the record written soon. f
// must not keep the record.
func (w *Writer) Update(f func(r *Record, a *Attempt)) {
	if w == nil {
		return
	}
	w.Note(f)
	select {
	case w.wake <- struct{}{}:
	default: // is awake already
	}
}

// Note is Update for what need not be written before the record is written anyway,
// every few seconds.
func (w *Writer) Note(f func(r *Record, a *Attempt)) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		f(&w.record, w.record.Attempts[len(w.record.Attempts)-1])
	}
}

// Write adds whole lines to the log, without their colours; it never waits, and
// always says that all is written.
func (w *Writer) Write(p []byte) (int, error) {
	if w == nil {
		return len(p), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(p), nil
	}
	select {
	case w.lines <- plain(p):
	default:
		w.dropped++
	}
	return len(p), nil
}

func (w *Writer) run() {
	defer close(w.done)
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	failing := false
	save := func() {
		switch err := w.save(); {
		case err != nil && !failing:
			w.warn("%s is not written: %v; training goes on", configs.RunRecord, err)
			failing = true
		case err == nil && failing:
			w.warn("%s is written again", configs.RunRecord)
			failing = false
		}
	}
	for {
		select {
		case line, open := <-w.lines:
			if !open {
				save()
				w.log.close()
				return
			}
			if err := w.log.append(line); err != nil {
				w.warn("%s is not written any more: %v; training goes on", w.log.name(), err)
				w.log.close()
			}
		case <-w.wake:
			save()
		case <-tick.C:
			save()
		}
	}
}

// save writes the record.
func (w *Writer) save() error {
	w.mu.Lock()
	a := w.record.Attempts[len(w.record.Attempts)-1]
	if a.LastSeen = time.Now().UTC(); a.Exit != nil {
		a.LastSeen = a.Exit.Time
	}
	raw, err := json.MarshalIndent(&w.record, "", "  ")
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return storage.Replace(w.fs, configs.RunRecord, append(raw, '\n'))
}

// End records how the attempt ended, and writes what there is. It waits ten seconds
// for a disk that hangs, and no longer. Later calls do nothing.
func (w *Writer) End(e Exit) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	e.Time = time.Now().UTC()
	w.record.Attempts[len(w.record.Attempts)-1].Exit = &e
	w.closed = true
	if w.dropped > 0 && w.log != nil {
		select {
		case w.lines <- fmt.Appendf(nil, "(%d entries are missing: writing was slower than the run)\n", w.dropped):
		default:
		}
	}
	close(w.lines)
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-time.After(w.grace):
	}
}
