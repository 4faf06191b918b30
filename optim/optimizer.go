package optim

import (
	"errors"
	"math"
	"slices"

	"titan/dtype"
	"titan/internal/recipekey"
)

// Param is a parameter to be optimized.
type Param struct {
	Name  string
	Shape []int
	// Axes names each dimension ("layer", "embed", "heads", "head_dim", …), as the
	// rules of sharding do. Muon reads from it what the matrices are: leading axes
	// "layer" and "expert" count them, "head_dim" belongs to the axis before it,
	// "vocab" marks what stays with AdamW. Without Muon it may be nil.
	Axes []string
}

// StateVar is an array that the optimizer carries from step to step. All begin
// as zeros.
type StateVar struct {
	// Name is "optim.m.<parameter>": AdamW's first moment or Muon's momentum, both a
	// decaying mean of gradients; "optim.v.<parameter>": AdamW's second moment;
	// "optim.step" or "optim.skipped".
	Name string
	// Param is the position of the parameter that a moment belongs to, and so is
	// split like; -1 for the counters.
	Param int
	DType dtype.DType
	Shape []int // the parameter's; empty for counters
}

// SecondMoment is what the names of AdamW's second moments begin with.
const SecondMoment = "optim.v."

// The counters, s32 scalars: updates applied, which bias correction follows,
// and updates skipped.
const (
	StepName    = "optim.step"
	SkippedName = "optim.skipped"
)

// Optimizer updates a fixed list of parameters.
type Optimizer struct {
	params  []Param
	group   []int // by parameter, its position in groups
	groups  []group
	state   []StateVar
	curve   Curve
	notes   []string
	maxNorm float64
	skip    bool
	second  []int // by parameter, the position of its second moment in state; -1 for none
	muon    muon
}

// New resolves a recipe's sections for a model. steps is training.steps, which
// the schedule covers unless it states its own length; gradients are clipped to
// the global norm maxNorm, 0 for no clipping.
//
// The first group whose pattern is found in a parameter's name has the
// parameter. A group that gets none is an error.
func New(cfg Config, sched Schedule, steps int, maxNorm float64, params []Param) (*Optimizer, error) {
	errs := []error{cfg.Validate(), sched.Validate()}
	if steps < 0 {
		errs = append(errs, recipekey.Errorf("training.steps", "is %d and must be zero or positive", steps))
	}
	if !(maxNorm >= 0 && finite(maxNorm)) {
		errs = append(errs, recipekey.Errorf("training.max_norm", "is %g and must be positive, or 0 for no clipping", maxNorm))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	moment, err := floatType("optimizer.state_dtype", cfg.StateDType)
	if err != nil {
		return nil, err
	}
	o := &Optimizer{params: slices.Clone(params), maxNorm: maxNorm, skip: cfg.SkipNonfinite}
	o.curve, o.notes = sched.Curve(steps)
	if o.muon, err = newMuon(cfg); err != nil {
		return nil, err
	}
	if err := o.arrange(cfg); err != nil {
		return nil, err
	}
	for i, p := range params {
		o.state = append(o.state, StateVar{"optim.m." + p.Name, i, moment, slices.Clone(p.Shape)})
	}
	o.second = make([]int, len(params))
	for i, p := range params {
		if o.second[i] = -1; !o.groups[o.group[i]].muon {
			o.second[i] = len(o.state)
			o.state = append(o.state, StateVar{SecondMoment + p.Name, i, moment, slices.Clone(p.Shape)})
		}
	}
	o.state = append(o.state,
		StateVar{StepName, -1, dtype.S32, []int{}},
		StateVar{SkippedName, -1, dtype.S32, []int{}})
	return o, nil
}

// State lists the arrays that Update takes and returns, in order: the first
// moments and momenta, the second moments, the counters of steps and of skipped
// steps.
func (o *Optimizer) State() []StateVar { return slices.Clone(o.state) }

// Curve is the schedule.
func (o *Optimizer) Curve() Curve { return o.curve }

// Notes are remarks on the recipe for the log, such as a warm-up that was cut.
func (o *Optimizer) Notes() []string { return slices.Clone(o.notes) }

// LR is [optimizer] lr as scheduled for a step, counted from 0: what the log
// reports.
func (o *Optimizer) LR(step int) float64 { return o.groups[0].lr * o.curve.Factor(step) }

// Rates are the learning rates of a step, counted from 0: the argument lr of
// Update, one for each group: first AdamW's outside all patterns, with
// parameters or not, then those of [Optimizer.Groups].
//
// They are computed here, in float64 and rounded once, and not on the device:
// so they are the same bits on every platform and mesh, whatever the device's
// cosine; skipped updates cannot disturb them; and a run with another learning
// rate, schedule or length is the same program, which the compile cache has.
func (o *Optimizer) Rates(step int) []float32 {
	f := o.curve.Factor(step)
	out := make([]float32, len(o.groups))
	for i, g := range o.groups {
		out[i] = float32(min(g.lr*f, math.MaxFloat32))
	}
	return out
}
