package metrics

import (
	"maps"
	"time"
)

// MeterOptions say what rates are made of. Devices and LogFreq are required.
type MeterOptions struct {
	Devices int     // that train
	LogFreq int     // steps between two windows; step 1 closes one always
	Flops   Flops   // of a token; zero: no FLOP rates
	Peak    float64 // FLOP/s of one device in bf16; 0: unknown, and so is the MFU
	// PartialAttention tells that attention covers less than the whole row, as
	// where it keeps to a document: Flops then counts more than is computed, and
	// the summary says so.
	PartialAttention bool
	// Quantized tells that products are not all in bf16, the type of Peak: there is
	// then no one peak to compare with, and no MFU.
	Quantized bool
	// Warmup is how many first steps of the process are left out of the warm
	// throughput and of the distribution of step times.
	Warmup int
	// Steps is the last step of the run, for the time left; 0: unknown.
	Steps int64
	Start time.Time        // of the run, for the summary; zero: now
	Now   func() time.Time // nil: time.Now
}

// Step is what the trainer knows of a finished step.
type Step struct {
	Step int64 // 1 is the first of training
	// End is when the step's results were there; zero: now. Steps are reported in
	// order, but may be reported late.
	End time.Time
	// Tokens of the global batch, without padding, and Padding: rows × length is
	// their sum. Rates count Tokens alone.
	Tokens, Padding int64
	DataWait        time.Duration // that the trainer waited for the batch
	// Stall is how long the devices had nothing to do because of it: at most DataWait.
	Stall          time.Duration
	Loss, GradNorm float64
	LR             map[string]float64 // by parameter group
	Skipped        bool               // the update was not applied: something was not finite
	Memory         Memory
	More           map[string]float64 // further scalars by their full name
	Counts         []Counts
}

// Window is what happened since the window before: the content of a log line.
type Window struct {
	Step       int64 // the last of the window
	Time       time.Time
	Steps      int   // really in the window
	Tokens     int64 // in the window, without padding
	Padding    int64
	TokensSeen int64 // since the first step of training

	Loss, GradNorm float64 // of the last step
	LR             map[string]float64
	More           map[string]float64
	Counts         []Counts // of the last step
	Skipped        int64    // steps of the window without an update
	SkippedInAll   int64    // since this process started

	Seconds     float64   // that training took, without pauses
	DataSeconds float64   // of these, waiting for batches
	StepSeconds []float64 // of each step
	Memory      Memory
	// Of the run: see Meter.Goodput. Left is about how long the steps to come take, with
	// pauses as they were so far, and Done the share of steps that are done; 0: unknown.
	Goodput Goodput
	Left    time.Duration
	Done    float64
	Rates
}

// EndToEnd is the time of a step in seconds.
func (w *Window) EndToEnd() float64 { return w.Seconds / float64(max(w.Steps, 1)) }

// DataLoading is the time that a step waited for its batch, in seconds.
func (w *Window) DataLoading() float64 { return w.DataSeconds / float64(max(w.Steps, 1)) }

// DataShare is DataLoading in percent of EndToEnd.
func (w *Window) DataShare() float64 { return percent(w.DataSeconds, w.Seconds) }

func percent(part, whole float64) float64 {
	if !(whole > 0) {
		return 0
	}
	return 100 * part / whole
}

// Rates are throughputs. Of TFLOPs and MFU, the index is the Convention.
type Rates struct {
	TPS    float64    // tokens a second and device
	TFLOPs [2]float64 // TFLOP/s a device; 0 where the cost of a token is unknown
	MFU    [2]float64 // percent; 0 where HasMFU is false
	HasMFU bool       // the device's peak and the cost of a token are known, and nothing is quantized
}

func (m *Meter) rates(tokens int64, seconds float64) Rates {
	var r Rates
	if !(seconds > 0) {
		return r // a clock that stands still measures nothing
	}
	r.TPS = float64(tokens) / seconds / float64(max(m.o.Devices, 1))
	for c := range r.TFLOPs {
		r.TFLOPs[c] = m.o.Flops.TFLOPs(Convention(c), r.TPS)
		if r.HasMFU = m.o.Peak > 0 && m.o.Flops != (Flops{}) && !m.o.Quantized; r.HasMFU {
			r.MFU[c] = m.o.Flops.Utilization(Convention(c), r.TPS, m.o.Peak).Percent
		}
	}
	return r
}

// Meter makes windows of steps and a summary of a run. It belongs to one
// goroutine.
//
//	m := metrics.NewMeter(metrics.MeterOptions{…})
//	resume := m.Pause(metrics.Compile); …; resume()
//	m.Begin(0)
//	for … {
//		if w := m.Step(metrics.Step{…}); w != nil {
//			fmt.Println(w.Line(colour))
//		}
//	}
//	fmt.Print(m.Summary())
type Meter struct {
	o      MeterOptions
	now    func() time.Time
	start  time.Time
	begin  time.Time // of the first step; zero: not yet
	pauses pauses

	mark   time.Time // the end of the last step reported, or Begin
	window Window    // the one being filled
	seen   int64     // tokens since the first step of training

	total       Window  // of all steps
	warm        Window  // of those after the first Warmup; StepSeconds has all of theirs
	stall       float64 // seconds that devices waited for batches
	wasted      float64 // seconds, without stalls, of steps that changed nothing
	stalls      int64   // steps with a stall that counts
	first, last float64
	firstStep   int64
	firstEnd    time.Time
	validation  *Validation // the last
}

// NewMeter starts the clock of the run.
func NewMeter(o MeterOptions) *Meter {
	m := &Meter{o: o, now: o.Now, start: o.Start}
	if m.now == nil {
		m.now = time.Now
	}
	if m.start.IsZero() {
		m.start = m.now()
	}
	m.pauses = pauses{now: m.now, spent: map[Kind]time.Duration{}, count: map[Kind]int{}}
	m.mark = m.now()
	return m
}

// Begin tells that the next step is what comes now: setting up has ended. A run
// that goes on says how many tokens were seen before.
func (m *Meter) Begin(tokensSeen int64) {
	m.mark, m.seen = m.now(), tokensSeen
	if m.begin.IsZero() {
		m.begin, m.pauses.begun, m.pauses.setup = m.mark, true, m.pauses.sum()
	}
	m.pauses.drop(m.mark)
}

// Pause tells that the devices do no training from now on, until resume is
// called: that time counts for its kind and not for any step. Pauses may be
// nested; the inner time then counts for the inner kind. A second call of resume
// does nothing.
func (m *Meter) Pause(k Kind) (resume func()) { return m.pauses.begin(k) }

// Step takes a finished step. It returns the window that the step closes, every
// LogFreq steps and at step 1, else nil.
func (m *Meter) Step(s Step) *Window {
	end := s.End
	if end.IsZero() {
		end = m.now()
	}
	if end.Before(m.mark) {
		end = m.mark
	}
	seconds := (end.Sub(m.mark) - m.pauses.within(m.mark, end)).Seconds()
	m.mark = end
	m.pauses.drop(end)
	m.seen += s.Tokens
	if m.total.Steps == 0 {
		m.first, m.firstStep, m.firstEnd = s.Loss, s.Step, end
	}
	m.last = s.Loss
	m.account(&s, seconds)
	for _, w := range []*Window{&m.window, &m.total} {
		w.add(&s, seconds)
		w.Time, w.TokensSeen = end, m.seen
	}
	m.window.StepSeconds = append(m.window.StepSeconds, seconds)
	if m.total.Steps > m.o.Warmup {
		m.warm.add(&s, seconds)
		m.warm.StepSeconds = append(m.warm.StepSeconds, seconds)
	}
	if s.Step != 1 && s.Step%int64(max(m.o.LogFreq, 1)) != 0 {
		return nil
	}
	w := m.window
	m.window = Window{}
	w.SkippedInAll = m.total.Skipped
	w.LR, w.More, w.Counts = maps.Clone(s.LR), maps.Clone(s.More), s.Counts
	w.Rates = m.rates(w.Tokens, w.Seconds)
	w.Goodput = m.Goodput()
	w.Left, w.Done = m.left(s.Step)
	return &w
}

func (w *Window) add(s *Step, seconds float64) {
	w.Step, w.Loss, w.GradNorm = s.Step, s.Loss, s.GradNorm
	w.Steps++
	w.Tokens += s.Tokens
	w.Padding += s.Padding
	w.Seconds += seconds
	// More than the step took, where pauses hid the waiting.
	w.DataSeconds += min(s.DataWait.Seconds(), seconds)
	if s.Skipped {
		w.Skipped++
	}
	w.Memory = w.Memory.max(s.Memory)
}

// Validation is the result of a pass over validation data.
type Validation struct {
	Step    int64 // of training before it
	Time    time.Time
	Loss    float64
	Tokens  int64 // labels that counted
	Seconds float64
	TPS     float64 // tokens a second and device
	Memory  Memory
}

// Validated makes the record of a pass that took seconds for so many tokens of
// the global batches.
func (m *Meter) Validated(step int64, loss float64, tokens int64, seconds float64, mem Memory) *Validation {
	v := &Validation{Step: step, Time: m.now(), Loss: loss, Tokens: tokens, Seconds: seconds, Memory: mem}
	v.TPS = m.rates(tokens, seconds).TPS
	m.validation = v
	return v
}
