package optim

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"titan/dtype"
	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// Param is a parameter to be optimized.
type Param struct {
	Name  string
	Shape []int
}

// StateVar is an array that the optimizer carries from step to step. All begin
// as zeros.
type StateVar struct {
	Name string // "optim.m.<parameter>", "optim.v.<parameter>", "optim.step", "optim.skipped"
	// Param is the position of the parameter that a moment belongs to, and so is
	// split like; -1 for the counters.
	Param int
	DType dtype.DType
	Shape []int // the parameter's; empty for counters
}

// The counters, s32 scalars: updates applied, which bias correction follows,
// and updates skipped.
const (
	StepName    = "optim.step"
	SkippedName = "optim.skipped"
)

// GroupInfo says what one group of parameters is trained with, for the log.
type GroupInfo struct {
	Pattern                            string // "" for the parameters that no pattern matches
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Params                             []string
}

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
}

type group struct {
	pattern string
	settings
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
	moment, err := stateDType(cfg.StateDType)
	if err != nil {
		return nil, err
	}
	o := &Optimizer{params: slices.Clone(params), maxNorm: maxNorm, skip: cfg.SkipNonfinite}
	o.curve, o.notes = sched.Curve(steps)
	if o.group, err = assign(cfg.ParamGroups, params); err != nil {
		return nil, err
	}
	base := settings{lr: cfg.LR, beta1: cfg.Beta1, beta2: cfg.Beta2, eps: cfg.Eps, decay: cfg.WeightDecay}
	o.groups = []group{{"", base}}
	for _, g := range cfg.ParamGroups {
		o.groups = append(o.groups, group{g.Pattern, g.over(base)})
	}
	for _, kind := range []string{"m", "v"} {
		for i, p := range params {
			o.state = append(o.state, StateVar{"optim." + kind + "." + p.Name, i, moment, slices.Clone(p.Shape)})
		}
	}
	o.state = append(o.state,
		StateVar{StepName, -1, dtype.S32, []int{}},
		StateVar{SkippedName, -1, dtype.S32, []int{}})
	return o, nil
}

// assign returns for each parameter 1 + the position of its group, or 0.
func assign(groups []Group, params []Param) ([]int, error) {
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.Name
	}
	out := make([]int, len(params))
	var errs []error
	for i, g := range groups {
		key := fmt.Sprintf("optimizer.param_groups[%d].pattern", i)
		re, err := regexp.Compile(g.Pattern)
		if err != nil {
			return nil, recipekey.Errorf(key, "%q: %v", g.Pattern, err)
		}
		matched, taken := 0, 0
		for j, name := range names {
			if !re.MatchString(name) {
				continue
			}
			matched++
			if out[j] != 0 {
				taken = out[j]
				continue
			}
			out[j] = i + 1
		}
		switch {
		case matched == 0:
			errs = append(errs, recipekey.Errorf(key, "%q matches no parameter%s", g.Pattern, nearest.Hint(g.Pattern, names)))
		case !slices.Contains(out, i+1):
			errs = append(errs, recipekey.Errorf(key, "%q has no parameter left: the first group that matches counts, and %q (param_groups[%d]) comes before; put the narrower pattern first",
				g.Pattern, groups[taken-1].Pattern, taken-1))
		}
	}
	return out, errors.Join(errs...)
}

// State lists the arrays that Update takes and returns, in order: the first
// moments, the second moments, the counters of steps and of skipped steps.
func (o *Optimizer) State() []StateVar { return slices.Clone(o.state) }

// Curve is the schedule.
func (o *Optimizer) Curve() Curve { return o.curve }

// Notes are remarks on the recipe for the log, such as a warm-up that was cut.
func (o *Optimizer) Notes() []string { return slices.Clone(o.notes) }

// Groups describes the groups that have parameters, the rest first.
func (o *Optimizer) Groups() []GroupInfo {
	var out []GroupInfo
	for i, g := range o.groups {
		info := GroupInfo{g.pattern, g.lr, g.beta1, g.beta2, g.eps, g.decay, nil}
		for j, p := range o.params {
			if o.group[j] == i {
				info.Params = append(info.Params, p.Name)
			}
		}
		if info.Params != nil {
			out = append(out, info)
		}
	}
	return out
}

// LR is [optimizer] lr as scheduled for a step, counted from 0: what the log
// reports.
func (o *Optimizer) LR(step int) float64 { return o.groups[0].lr * o.curve.Factor(step) }

// Rates are the learning rates of a step, counted from 0: the argument lr of
// Update, one for each group, the parameters that no pattern matches first.
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
