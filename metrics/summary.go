package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Summary is what a run did, from the start of the process to now.
type Summary struct {
	FirstStep, LastStep int64
	Steps               int
	Tokens, Padding     int64 // of these steps
	TokensSeen          int64 // since the first step of training
	FirstLoss, LastLoss float64
	Validation          *Validation // the last, or nil
	Skipped             int64
	Memory              Memory

	Wall     time.Duration
	Train    time.Duration // in steps, without waiting for data
	DataWait time.Duration
	Paused   map[Kind]time.Duration
	Rates    // over all steps
	// All is the same as Rates; Warm leaves the first MeterOptions.Warmup steps out,
	// and StepTime has the times of the others.
	All, Warm Throughput
	StepTime  StepTimes
	Warmup    int
	// Recompiles counts programs made after the first step; InputStalls the steps
	// before which devices waited for a batch, CheckpointStalls the saves that
	// training waited for.
	Recompiles, CheckpointStalls int
	InputStalls                  int64
	Goodput                      Goodput
	// PartialAttention and Quantized: see MeterOptions.
	PartialAttention bool
	Quantized        bool
	// Lost tells of sinks that could not write everything; see Recorder.Close.
	Lost []Loss
}

// Summary sums the run up; it may be asked for at any time.
func (m *Meter) Summary() *Summary {
	t := &m.total
	s := &Summary{
		FirstStep: m.firstStep, LastStep: t.Step, Steps: t.Steps, Tokens: t.Tokens, Padding: t.Padding, TokensSeen: m.seen,
		FirstLoss: m.first, LastLoss: m.last, Validation: m.validation, Skipped: t.Skipped, Memory: t.Memory,
		Wall:   m.now().Sub(m.start),
		Paused: maps.Clone(m.pauses.total()), Rates: m.rates(t.Tokens, t.Seconds),
		PartialAttention: m.o.PartialAttention, Quantized: m.o.Quantized,
	}
	s.All, s.Warm = throughput(t, s.Rates), throughput(&m.warm, m.rates(m.warm.Tokens, m.warm.Seconds))
	s.StepTime, s.Warmup = TimesOf(m.warm.StepSeconds), m.o.Warmup
	s.Recompiles, s.CheckpointStalls, s.InputStalls = m.pauses.count[Recompile], m.pauses.count[Checkpoint], m.stalls
	s.Goodput = m.Goodput()
	s.DataWait = time.Duration(t.DataSeconds * 1e9)
	s.Train = time.Duration(t.Seconds*1e9) - s.DataWait
	return s
}

// Other is the time that no kind accounts for: setting up, and what the steps
// in flight had not given back yet.
func (s *Summary) Other() time.Duration {
	rest := s.Wall - s.Train - s.DataWait
	for _, d := range s.Paused {
		rest -= d
	}
	return max(rest, 0)
}

// String lays the summary out for reading.
func (s *Summary) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	if s.Steps == 0 {
		row("steps", "none")
	} else {
		row("steps", "%s (%d to %d)", thousands(float64(s.Steps), 0), s.FirstStep, s.LastStep)
		row("loss", "%s at step %d, %s at step %d", decimals(s.FirstLoss, 0, 5), s.FirstStep, decimals(s.LastLoss, 0, 5), s.LastStep)
	}
	if v := s.Validation; v != nil {
		row("validation loss", "%s at step %d", decimals(v.Loss, 0, 4), v.Step)
	}
	if s.Steps > 0 {
		padding := ""
		if s.Padding > 0 {
			padding = fmt.Sprintf("; %.2f%% of the positions were padding", percent(float64(s.Padding), float64(s.Padding+s.Tokens)))
		}
		row("tokens", "%s, %s since step 1%s", thousands(float64(s.Tokens), 0), thousands(float64(s.TokensSeen), 0), padding)
		row("tps", "%s tokens a second and device", thousands(s.TPS, 0))
		s.warmRows(row)
	}
	s.flopRows(row)
	row("memory", "%s", strings.TrimSpace(s.Memory.String()))
	row("first compile", "%s", round(s.Paused[Compile]))
	if s.Recompiles > 0 {
		row("recompiles", "%d after the first step, %s: a shape had changed", s.Recompiles, round(s.Paused[Recompile]))
	}
	row("goodput", "%s", s.Goodput)
	row("skipped steps", "%d", s.Skipped)
	for _, l := range s.Lost {
		row("LOST", "%s", l)
	}
	w.Flush()
	return b.String()
}

func (s *Summary) flopRows(row func(name, format string, args ...any)) {
	if s.TFLOPs[TorchTitan] == 0 {
		return
	}
	both := func(f func(c Convention) string) string {
		return fmt.Sprintf("%s (%v: all of attention's square), %s (%v: the half below its diagonal)", f(TorchTitan), TorchTitan, f(Causal), Causal)
	}
	row("tflops", "%s", both(func(c Convention) string { return thousands(s.TFLOPs[c], 2) }))
	switch {
	case s.HasMFU:
		row("mfu", "%s", both(s.mfu))
	case s.Quantized:
		row("mfu", "N/A: products are partly in 8-bit floats, which the peak rate is not of")
	default:
		row("mfu", "N/A: the device's peak rate is not known (metrics.peak_tflops)")
	}
	if s.PartialAttention {
		row("", "attention is counted over whole rows, but keeps to the documents in them")
	}
}

// warmRows tell of the steps without the first ones.
func (s *Summary) warmRows(row func(name, format string, args ...any)) {
	if s.Warm.Steps == 0 {
		row("warm", "N/A: the first %d steps after a start are warm-up (metrics.cold_steps)", s.Warmup)
		return
	}
	mfu := ""
	if s.Warm.HasMFU {
		mfu = fmt.Sprintf(", mfu %.2f%% (%v), %.2f%% (%v)", s.Warm.MFU, TorchTitan, s.Warm.MFUCausal, Causal)
	}
	row("warm", "%s tokens a second and device over %s steps%s", thousands(s.Warm.TPS, 0), thousands(float64(s.Warm.Steps), 0), mfu)
	t := s.StepTime
	row("step time", "mean %s, p50 %s, p95 %s, p99 %s, longest %s", of(t.Mean), of(t.P50), of(t.P95), of(t.P99), of(t.Max))
	row("stalls", "%d steps waited for input, %d saves held training up", s.InputStalls, s.CheckpointStalls)
}

// of spells seconds.
func of(seconds float64) string { return round(time.Duration(seconds * 1e9)) }

// String gives the productive share and what was lost, the most first.
func (g Goodput) String() string {
	causes := slices.SortedFunc(maps.Keys(g.Lost), func(a, b Kind) int {
		return cmp.Or(cmp.Compare(g.Lost[b], g.Lost[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, k := range causes {
		parts = append(parts, fmt.Sprintf("%s %s (%.1f%%)", k, of(g.Lost[k]), percent(g.Lost[k], g.Wall)))
	}
	s := fmt.Sprintf("%.1f%% of %s", g.Percent(), of(g.Wall))
	if len(parts) > 0 {
		s += "; lost to " + strings.Join(parts, ", ")
	}
	return s
}

// round drops what nobody reads.
func round(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
