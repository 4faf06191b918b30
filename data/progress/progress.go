// Package progress shows how far long work is: a bar on a terminal, a line now
// and then elsewhere, so that a log file stays readable.
//
//	bar := progress.New(os.Stderr, "preparing", progress.Bytes)
//	defer bar.Done()
//	bar.Set(done, total, "12 documents")
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/mattn/go-isatty"
)

// Unit says what is counted.
type Unit uint8

const (
	Count Unit = iota
	Bytes
)

// interval is the time between two plain lines. Work that is done within the
// first one says nothing.
const interval = 10 * time.Second

// A Bar shows the progress of one piece of work. It belongs to one goroutine.
type Bar struct {
	out   io.Writer
	label string
	unit  Unit
	now   func() time.Time

	bar   *pb.ProgressBar // nil where out is no terminal
	ended bool
	start time.Time
	last  time.Time
}

// New returns a bar on f. Nothing is drawn before the first Set.
func New(f *os.File, label string, unit Unit) *Bar {
	b := newPlain(f, label, unit, time.Now)
	if isatty.IsTerminal(f.Fd()) {
		b.bar = pb.New64(0).Set(pb.Bytes, unit == Bytes).Set("prefix", label+" ").SetWriter(f)
	}
	return b
}

func newPlain(out io.Writer, label string, unit Unit, now func() time.Time) *Bar {
	t := now()
	return &Bar{out: out, label: label, unit: unit, now: now, start: t, last: t}
}

// Set tells how much is done, with a note that stands behind it. The total may
// be 0 where it is not known.
func (b *Bar) Set(done, total int64, note string) {
	if b.bar != nil {
		if !b.bar.IsStarted() {
			b.bar.SetTotal(total).Start()
		}
		b.bar.SetTotal(total).Set("suffix", " "+note).SetCurrent(done)
		return
	}
	now := b.now()
	if now.Sub(b.last) < interval {
		return
	}
	b.last = now
	fmt.Fprintln(b.out, b.line(done, total, note, now.Sub(b.start)))
}

// line spells the progress in words.
func (b *Bar) line(done, total int64, note string, spent time.Duration) string {
	s := fmt.Sprintf("%s: %s", b.label, b.amount(done))
	if total > 0 {
		s += fmt.Sprintf(" of %s (%.0f%%)", b.amount(total), 100*float64(done)/float64(total))
	}
	if note != "" {
		s += ", " + note
	}
	s += fmt.Sprintf(", %s", spent.Round(time.Second))
	if done > 0 && done < total {
		left := time.Duration(float64(spent) * float64(total-done) / float64(done))
		s += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	return s
}

func (b *Bar) amount(n int64) string {
	if b.unit == Bytes {
		return FormatBytes(n)
	}
	return fmt.Sprint(n)
}

// Done ends the bar; the terminal's line is free again. A second call does
// nothing.
func (b *Bar) Done() {
	if b.bar != nil && b.bar.IsStarted() && !b.ended {
		b.ended = true
		b.bar.Finish()
	}
}

// FormatBytes writes a size with a decimal prefix: 12.3 MB.
func FormatBytes(n int64) string {
	f, unit := float64(n), 0
	for f >= 1000 && unit < 4 {
		f, unit = f/1000, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, [...]string{"", "kB", "MB", "GB", "TB"}[unit])
}
