package train

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"titan/internal/human"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
)

// RematTrial is what is known of a step under one policy of activation
// checkpointing; bytes are those of one device.
type RematTrial struct {
	Policy decoder.ActivationCheckpoint
	// Flops is what a device computes in a step, Estimate the memory in use, both by
	// the program's own counts, of which State are the arguments.
	Flops           float64
	Estimate, State int64
	// Compiled is the memory in use by the compiler's account: 0 if the step was not
	// compiled, math.MaxInt64 if it found no room for the step and did not say how
	// much it needs.
	Compiled int64
}

// Fit is a step that fits into a memory budget.
type Fit[T any] struct {
	Options StepOptions
	Step    *Step
	Program T
	Chosen  RematTrial
	Trials  []RematTrial // those that were weighed, least arithmetic first
	Budget  int64
	Least   float64 // Flops of a step that computes nothing again
}

// Trial is a compiled step.
type Trial[T any] struct {
	Program T
	InUse   int64 // bytes on a device; see pjrt.MemoryStats.InUse
	Close   func()
}

// BudgetError says that no policy fits.
type BudgetError struct {
	Budget int64
	Best   RematTrial // of the least memory
	Trials []RematTrial
	Advice []string // changes to the recipe that would fit, by estimate
}

// needs is what the step of least memory takes, and who says so.
func (e *BudgetError) needs() (bytes int64, by string) {
	if c := e.Best.Compiled; c > 0 && c < math.MaxInt64 {
		return c, "as compiled"
	}
	return e.Best.Estimate, "by estimate"
}

func (e *BudgetError) Error() string {
	needs, by := e.needs()
	s := fmt.Sprintf("train: no policy of activation checkpointing fits into %s a device: the least, %v, takes %s %s", human.Memory(e.Budget), e.Best.Policy, human.Memory(needs), by)
	if needs > e.Budget {
		s += fmt.Sprintf(", %s too much", human.Memory(needs-e.Budget))
	}
	if e.Best.State > e.Budget {
		s += fmt.Sprintf(" (parameters and optimizer state alone take %s)", human.Memory(e.Best.State))
	}
	if len(e.Advice) > 0 {
		s += "; what would fit: " + strings.Join(e.Advice, ", or ")
	}
	return s
}

// FitStep builds and compiles the step under the policy that computes least again
// of all that need at most budget bytes a device. o.Options.Remat has mode
// memory_budget. Policies are weighed by the program's own counts first; the
// compiler has the last word, and what it says of one policy corrects the estimates
// of the others. host says whether devices can keep values in their host's memory.
// The error is a *BudgetError if nothing fits.
func FitStep[T any](o StepOptions, budget int64, host bool, compile func(*Step) (Trial[T], error)) (*Fit[T], error) {
	s := &fitting[T]{options: o, budget: budget, host: host, compile: compile, compiled: map[int]Trial[T]{}}
	if err := s.weigh(); err != nil {
		return nil, err
	}
	chosen := -1
	defer func() {
		for i, c := range s.compiled {
			if i != chosen {
				c.Close()
			}
		}
	}()
	for {
		i := s.next(chosen)
		if i < 0 {
			break
		}
		fits, err := s.try(i)
		if err != nil {
			return nil, err
		}
		if fits {
			chosen = i
		}
	}
	if chosen < 0 {
		return nil, s.misfit()
	}
	f := &Fit[T]{Options: s.with(chosen), Program: s.compiled[chosen].Program, Chosen: s.trials[chosen], Trials: s.trials, Budget: budget, Least: s.trials[0].Flops}
	f.Step = s.steps[chosen]
	return f, nil
}

// fitting is a search for a policy.
type fitting[T any] struct {
	options  StepOptions
	budget   int64
	host     bool
	compile  func(*Step) (Trial[T], error)
	trials   []RematTrial // least arithmetic first; each needs less memory than those before
	steps    []*Step
	compiled map[int]Trial[T]
}

func (s *fitting[T]) with(i int) StepOptions {
	o := s.options
	o.Options.Remat = s.trials[i].Policy
	return o
}

// weigh traces the candidates and drops those that are worse than another in both
// respects.
func (s *fitting[T]) weigh() error {
	all := s.options.Options.Remat.Candidates(&s.options.Model)
	built := map[int]*Step{}
	var trials []RematTrial
	var order []int
	for i, policy := range all {
		if len(policy.Offload) > 0 && !s.host {
			continue
		}
		o := s.options
		o.Options.Remat = policy
		step, err := BuildStep(o)
		if err != nil {
			return err
		}
		cost, f := step.Module.Cost(), step.Module.Footprint()
		trials = append(trials, RematTrial{Policy: policy, Flops: cost.Device.Flops(), Estimate: f.InUse(), State: f.Arguments})
		built[len(trials)-1] = step
		order = append(order, i)
	}
	byCost := make([]int, len(order))
	for i := range byCost {
		byCost[i] = i
	}
	slices.SortStableFunc(byCost, func(a, b int) int {
		return cmp.Or(cmp.Compare(trials[a].Flops, trials[b].Flops), cmp.Compare(trials[a].Estimate, trials[b].Estimate))
	})
	for _, i := range byCost {
		if n := len(s.trials); n == 0 || trials[i].Estimate < s.trials[n-1].Estimate {
			s.trials, s.steps = append(s.trials, trials[i]), append(s.steps, built[i])
		}
	}
	return nil
}

// corrected is the estimate of trial i, given what the compiler said of the trial
// nearest to it: of what there is besides the arguments it makes the same multiple.
func (s *fitting[T]) corrected(i int) int64 {
	t := s.trials[i]
	near := -1
	for k := range s.trials {
		c := s.trials[k].Compiled
		if c > 0 && c < math.MaxInt64 && (near < 0 || abs(k-i) < abs(near-i)) {
			near = k
		}
	}
	if near < 0 {
		return t.Estimate
	}
	n := s.trials[near]
	ratio := float64(n.Compiled-n.State) / float64(max(1, n.Estimate-n.State))
	return t.State + int64(ratio*float64(t.Estimate-t.State))
}

func abs(n int) int { return max(n, -n) }

// next returns the trial to compile next: the one with least arithmetic that should
// fit, if that is less than the chosen one's; where none should fit, the one that
// needs least. -1: there is nothing left to try.
func (s *fitting[T]) next(chosen int) int {
	last := len(s.trials) - 1
	if chosen >= 0 {
		last = chosen - 1
	}
	for i := 0; i <= last; i++ {
		if s.trials[i].Compiled == 0 && s.corrected(i) <= s.budget {
			return i
		}
	}
	if chosen < 0 && s.trials[last].Compiled == 0 {
		return last
	}
	return -1
}

// try compiles trial i.
func (s *fitting[T]) try(i int) (fits bool, err error) {
	c, err := s.compile(s.steps[i])
	var oom *pjrt.OutOfMemory
	if errors.As(err, &oom) {
		if s.trials[i].Compiled = math.MaxInt64; oom.Needed > s.budget {
			s.trials[i].Compiled = oom.Needed
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.compiled[i] = c
	s.trials[i].Compiled = c.InUse
	return c.InUse <= s.budget, nil
}

// misfit says by how much the smallest trial is too large, and looks for changes
// with which it would fit.
func (s *fitting[T]) misfit() error {
	last := len(s.trials) - 1
	e := &BudgetError{Budget: s.budget, Best: s.trials[last], Trials: s.trials}
	ratio := 1.0
	if b := e.Best; b.Compiled > 0 && b.Compiled < math.MaxInt64 {
		ratio = float64(b.Compiled-b.State) / float64(max(1, b.Estimate-b.State))
	}
	fits := func(change func(o *StepOptions)) bool {
		o := s.with(last)
		change(&o)
		step, err := BuildStep(o)
		if err != nil {
			return false
		}
		f := step.Module.Footprint()
		return f.Arguments+int64(ratio*float64(f.InUse()-f.Arguments)) <= s.budget
	}
	if s.host && len(e.Best.Policy.Offload) == 0 && fits(func(o *StepOptions) { o.Options.Remat.Offload = []string{decoder.NameLayerIn} }) {
		e.Advice = append(e.Advice, fmt.Sprintf("activation_checkpoint.offload = [%q]", decoder.NameLayerIn))
	}
	devices := s.steps[last].Plan.BatchDevices()
	local := s.options.Rows / devices
	tokens, unit := s.options.SeqLen/max(1, s.options.Mesh.AxisSize(parallel.AxisContext)), s.options.Options.Float8.TokenMultiple(s.options.Model)
	for n := local - 1; n >= 1; n-- {
		if local%n != 0 || n*tokens%unit != 0 {
			continue
		}
		if fits(func(o *StepOptions) { o.Rows, o.Passes = n*devices, max(1, o.Passes)*(local/n) }) {
			e.Advice = append(e.Advice, fmt.Sprintf("training.local_batch_size = %d instead of %d, in %d times as many passes", n, local, local/n))
			break
		}
	}
	if e.Best.State > s.budget {
		e.Advice = append(e.Advice, fmt.Sprintf("parameters over at least %d times as many devices", (e.Best.State+s.budget-1)/s.budget))
	}
	return e
}

// Lines tells, for the log, what was weighed and chosen.
func (f *Fit[T]) Lines() []string {
	out := []string{fmt.Sprintf("activation checkpointing within %s a device:", human.Memory(f.Budget))}
	for _, t := range f.Trials {
		note := ""
		switch {
		case t.Compiled == math.MaxInt64:
			note = ", too much for the compiler"
		case t.Compiled > 0:
			note = ", as compiled " + human.Memory(t.Compiled)
		}
		if t.Policy.String() == f.Chosen.Policy.String() {
			note += " <- chosen"
		}
		out = append(out, fmt.Sprintf("  %v: %+.1f%% arithmetic, estimated %s%s", t.Policy, 100*(t.Flops/f.Least-1), human.Memory(t.Estimate), note))
	}
	return out
}
