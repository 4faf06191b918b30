package metrics

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"titan/internal/human"
)

// Colour says whether lines on f are coloured: on a terminal, unless the recipe
// or the environment (NO_COLOR) forbids it.
func (c Config) Colour(f *os.File) bool {
	return !c.DisableColor && os.Getenv("NO_COLOR") == "" && isatty.IsTerminal(f.Fd())
}

// ANSI foreground colours.
const (
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	blue    = "\x1b[34m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	bright  = "\x1b[96m"
	orange  = "\x1b[38;5;208m"
	reset   = "\x1b[39m"
)

// line joins fields, each behind its colour.
type line struct {
	b      strings.Builder
	colour bool
}

func (l *line) field(colour, format string, args ...any) {
	if l.b.Len() > 0 {
		l.b.WriteString("  ")
	}
	if l.colour {
		l.b.WriteString(colour)
	}
	fmt.Fprintf(&l.b, format, args...)
}

func (l *line) String() string {
	if l.colour {
		l.b.WriteString(reset)
	}
	return l.b.String()
}

// Line is the log line of a window, in TorchTitan's shape. Its tflops and mfu
// are by TorchTitan's convention; mfu is N/A where the device's peak is unknown.
func (w *Window) Line(colour bool) string {
	l := line{colour: colour}
	l.field(red, "step: %2d", w.Step)
	l.field(green, "loss: %s", decimals(w.Loss, 8, 5))
	l.field(orange, "grad_norm: %s", decimals(w.GradNorm, 7, 4))
	l.field(cyan, "memory: %s", w.Memory)
	l.field(blue, "tps: %s", thousands(w.TPS, 0))
	l.field(bright, "tflops: %s", thousands(w.TFLOPs[TorchTitan], 2))
	l.field(magenta, "mfu: %s", w.mfu(TorchTitan))
	if w.Done > 0 {
		l.field(yellow, "done: %s%%", decimals(100*w.Done, 0, 1))
		if w.Left > 0 {
			l.field(yellow, "left: %s", roughly(w.Left))
		}
	}
	return l.String()
}

// roughly writes how long something may take, in at most two units.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}

// Note says what a log line has no place for, or "".
func (w *Window) Note() string {
	if w.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the last %d steps changed nothing: the loss or a gradient was not finite (%d since the start)", w.Skipped, w.Steps, w.SkippedInAll)
}

// Line is the log line of a validation.
func (v *Validation) Line(colour bool) string {
	l := line{colour: colour}
	l.field(yellow, "validate step: %2d", v.Step)
	l.field(green, "loss: %s", decimals(v.Loss, 7, 4))
	l.field(cyan, "memory: %s", v.Memory)
	l.field(blue, "tps: %s", thousands(v.TPS, 0))
	return l.String()
}

func (r *Rates) mfu(c Convention) string {
	if !r.HasMFU {
		return "N/A"
	}
	return decimals(r.MFU[c], 0, 2) + "%"
}

// String gives GiB and the share of the device's memory.
func (m Memory) String() string {
	if m.used() == 0 {
		return "N/A"
	}
	s := decimals(float64(m.used())/gib, 5, 2) + "GiB"
	if m.Limit > 0 {
		s += fmt.Sprintf("(%s%%)", decimals(percent(float64(m.used()), float64(m.Limit)), 0, 2))
	}
	return s
}

// decimals writes a number as Python's {:width.places f} does: what is not
// finite is nan, inf or -inf.
func decimals(v float64, width, places int) string {
	s := fmt.Sprintf("%.*f", places, v)
	switch {
	case math.IsNaN(v):
		s = "nan"
	case math.IsInf(v, 1):
		s = "inf"
	case math.IsInf(v, -1):
		s = "-inf"
	}
	return fmt.Sprintf("%*s", width, s)
}

// thousands writes a number with commas; what is not finite as decimals does.
func thousands(v float64, places int) string {
	if !human.Finite(v) {
		return decimals(v, 0, places)
	}
	return human.Fixed(v, places)
}
