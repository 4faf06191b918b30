package metrics

import "time"

// leastStall is the share of a step, in percent, from which waiting for its batch
// counts as a stall.
const leastStall = 1

// account notes what a step's time, in seconds, was lost to.
func (m *Meter) account(s *Step, seconds float64) {
	stall := min(max(s.Stall.Seconds(), 0), seconds)
	m.stall += stall
	if stall > 0 && percent(stall, seconds) >= leastStall {
		m.stalls++
	}
	if s.Skipped {
		m.wasted += seconds - stall
	}
}

// Goodput says what became of the process's time until now. Time is productive in
// steps that changed the model, but for what the devices waited for their batches.
func (m *Meter) Goodput() Goodput {
	now := m.now()
	g := Goodput{Wall: now.Sub(m.start).Seconds(), Productive: m.total.Seconds}
	g.Lose(Input, m.stall)
	g.Lose(SkippedStep, m.wasted)
	paused := m.pauses.total()
	rest := g.Wall - m.total.Seconds
	for k, d := range paused {
		if d > 0 {
			g.add(k, d.Seconds())
			rest -= d.Seconds()
		}
	}
	startup := now.Sub(m.start) - m.pauses.sum()
	if !m.begin.IsZero() {
		startup = m.begin.Sub(m.start) - m.pauses.setup
	}
	if s := min(startup.Seconds(), rest); s > 0 {
		g.add(Startup, s)
		rest -= s
	}
	// The step under way, and what comes between steps.
	if rest > 0 {
		g.add(Unaccounted, rest)
	}
	return g
}

// left estimates the time until the last step from that of the steps so far, with
// what came between them, and the share of steps that are done. Without the first
// step, which is slower, as soon as there is another.
func (m *Meter) left(step int64) (time.Duration, float64) {
	if m.o.Steps <= 0 || step > m.o.Steps || m.begin.IsZero() {
		return 0, 0
	}
	took, steps := m.mark.Sub(m.begin), m.total.Steps
	if steps > 1 {
		took, steps = m.mark.Sub(m.firstEnd), steps-1
	}
	return time.Duration(float64(took) / float64(steps) * float64(m.o.Steps-step)), float64(step) / float64(m.o.Steps)
}

// Figures returns the summary as it is kept.
func (s *Summary) Figures() Figures {
	f := Figures{
		Steps: s.Steps, FirstStep: s.FirstStep, LastStep: s.LastStep, Tokens: s.Tokens, Padding: s.Padding, TokensSeen: s.TokensSeen,
		Skipped: s.Skipped, FirstLoss: Number(s.FirstLoss), LastLoss: Number(s.LastLoss),
		MemoryActive: s.Memory.Active, MemoryReserved: s.Memory.Reserved, MemoryLimit: s.Memory.Limit,
		All: s.All, Warm: s.Warm, StepTime: s.StepTime,
		FirstCompile: s.Paused[Compile].Seconds(), Recompiles: s.Recompiles,
		InputStalls: s.InputStalls, CheckpointStalls: s.CheckpointStalls, Goodput: s.Goodput,
	}
	if v := s.Validation; v != nil {
		f.ValidationLoss, f.ValidationStep = Number(v.Loss), v.Step
	}
	return f
}
