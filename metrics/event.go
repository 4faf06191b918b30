package metrics

import (
	"maps"
	"math"
	"slices"
	"time"
)

// EventKind says what an event is about.
type EventKind string

const (
	StartEvent      EventKind = "start" // of a process that trains: Step is the last step before it
	TrainEvent      EventKind = "train"
	ValidationEvent EventKind = "validation"
	SummaryEvent    EventKind = "summary"
)

// Scalar is a named figure.
type Scalar struct {
	Name  string
	Value float64
}

// Event is what sinks record.
type Event struct {
	Kind    EventKind
	Step    int64
	Time    time.Time
	Scalars []Scalar
	Counts  []Counts
	Lists   []List
}

// List is a named list of figures. JSON lines have it as an array; TensorBoard has
// no place for it.
type List struct {
	Name   string
	Values []float64
}

// StepSeconds is the list with the time of each step of a window, in seconds.
const StepSeconds = "time_metrics/steps(s)"

// Event returns the window's figures by TorchTitan's names. Those that are not
// known are left out. tflops and mfu(%) are by TorchTitan's convention; those of
// the causal one have names of their own.
func (w *Window) Event() Event {
	s := []Scalar{
		{"loss_metrics/global_avg_loss", w.Loss},
		{"grad_norm", w.GradNorm},
		{"throughput(tps)", w.TPS},
	}
	if w.TFLOPs[TorchTitan] > 0 {
		s = append(s, Scalar{"tflops", w.TFLOPs[TorchTitan]}, Scalar{"tflops_causal", w.TFLOPs[Causal]})
	}
	if w.HasMFU {
		s = append(s, Scalar{"mfu(%)", w.MFU[TorchTitan]}, Scalar{"mfu_causal(%)", w.MFU[Causal]})
	}
	s = append(s,
		Scalar{"time_metrics/end_to_end(s)", w.EndToEnd()},
		Scalar{"time_metrics/data_loading(s)", w.DataLoading()},
		Scalar{"time_metrics/data_loading(%)", w.DataShare()})
	s = append(s, w.Memory.scalars()...)
	s = append(s, Scalar{"n_tokens_seen", float64(w.TokensSeen)}, Scalar{"skipped_steps", float64(w.SkippedInAll)})
	s = append(s, w.Goodput.scalars()...)
	for _, name := range slices.Sorted(maps.Keys(w.LR)) {
		s = append(s, Scalar{"lr/" + name, w.LR[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(w.More)) {
		s = append(s, Scalar{name, w.More[name]})
	}
	e := Event{Kind: TrainEvent, Step: w.Step, Time: w.Time, Scalars: s, Counts: w.Counts}
	if len(w.StepSeconds) > 0 {
		e.Lists = []List{{StepSeconds, w.StepSeconds}}
	}
	return e
}

// Event returns the validation's figures by TorchTitan's names.
func (v *Validation) Event() Event {
	s := []Scalar{{"validation_metrics/loss", v.Loss}, {"validation_metrics/throughput(tps)", v.TPS}}
	for _, m := range v.Memory.scalars() {
		s = append(s, Scalar{"validation_metrics/" + m.Name, m.Value})
	}
	return Event{Kind: ValidationEvent, Step: v.Step, Time: v.Time, Scalars: s}
}

// Event returns the summary as a record: steps, tokens, losses, times in seconds.
func (s *Summary) Event(now time.Time) Event {
	e := Event{Kind: SummaryEvent, Step: s.LastStep, Time: now, Scalars: []Scalar{
		{"steps", float64(s.Steps)}, {"tokens", float64(s.Tokens)}, {"padding", float64(s.Padding)},
		{"first_loss", s.FirstLoss}, {"last_loss", s.LastLoss}, {"throughput(tps)", s.TPS}, {"skipped_steps", float64(s.Skipped)},
		{"time/wall(s)", s.Wall.Seconds()}, {"time/train(s)", s.Train.Seconds()}, {"time/data_wait(s)", s.DataWait.Seconds()},
		{"time/other(s)", s.Other().Seconds()},
	}}
	for _, k := range slices.Sorted(maps.Keys(s.Paused)) {
		e.Scalars = append(e.Scalars, Scalar{"time/" + string(k) + "(s)", s.Paused[k].Seconds()})
	}
	e.Scalars = append(e.Scalars, s.Goodput.scalars()...)
	e.Scalars = append(e.Scalars, Scalar{"first_compile(s)", s.Paused[Compile].Seconds()}, Scalar{"recompiles", float64(s.Recompiles)},
		Scalar{"input_stalls", float64(s.InputStalls)}, Scalar{"checkpoint_stalls", float64(s.CheckpointStalls)})
	if s.Warm.Steps > 0 {
		e.Scalars = append(e.Scalars, Scalar{"warm/steps", float64(s.Warm.Steps)}, Scalar{"warm/throughput(tps)", s.Warm.TPS},
			Scalar{"warm/step_p50(s)", s.StepTime.P50}, Scalar{"warm/step_p95(s)", s.StepTime.P95}, Scalar{"warm/step_p99(s)", s.StepTime.P99})
	}
	if s.Warm.Steps > 0 && s.Warm.HasMFU {
		e.Scalars = append(e.Scalars, Scalar{"warm/mfu(%)", s.Warm.MFU}, Scalar{"warm/mfu_causal(%)", s.Warm.MFUCausal})
	}
	return e
}

// scalars are the productive share of the time so far, and what was lost of it.
func (g Goodput) scalars() []Scalar {
	if !(g.Wall > 0) {
		return nil
	}
	s := []Scalar{{"goodput(%)", g.Percent()}}
	for _, k := range slices.Sorted(maps.Keys(g.Lost)) {
		s = append(s, Scalar{lostPrefix + string(k) + "(s)", g.Lost[k]})
	}
	return s
}

// lostPrefix is that of scalars with the time lost to a cause.
const lostPrefix = "lost/"

func (m Memory) scalars() []Scalar {
	var s []Scalar
	if m.Active > 0 {
		s = append(s, Scalar{"memory/max_active(GiB)", float64(m.Active) / gib})
	}
	if m.Reserved > 0 {
		s = append(s, Scalar{"memory/max_reserved(GiB)", float64(m.Reserved) / gib})
	}
	return s
}

// finite tells whether a figure can be written as JSON.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
