package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"titan/internal/nearest"
	"titan/internal/plural"
	"titan/internal/recipekey"
)

// Schedule is the recipe's section [lr_scheduler]: the learning rate rises
// linearly, stays, and decays.
type Schedule struct {
	WarmupSteps int      `toml:"warmup_steps" doc:"steps over which the learning rate rises linearly to its peak"`
	TotalSteps  int      `toml:"total_steps" doc:"length of the schedule in steps; -1: training.steps"`
	DecayRatio  *float64 `toml:"decay_ratio" doc:"fraction of the schedule spent decaying at its end; unset: decay right after warm-up"`
	DecayType   string   `toml:"decay_type" doc:"shape of the decay: linear, sqrt or cosine"`
	MinLRFactor float64  `toml:"min_lr_factor" doc:"the decay ends at this fraction of the peak"`
}

// DefaultSchedule returns the values of [lr_scheduler] in a recipe that does
// not set them.
func DefaultSchedule() Schedule {
	return Schedule{WarmupSteps: 200, TotalSteps: -1, DecayType: "linear"}
}

var decayTypes = []string{"linear", "sqrt", "cosine"}

// Validate returns all mistakes in s, each a *recipekey.Error.
func (s Schedule) Validate() error {
	var errs []error
	add := func(ok bool, key, format string, args ...any) {
		if !ok {
			errs = append(errs, recipekey.Errorf("lr_scheduler."+key, format, args...))
		}
	}
	add(s.WarmupSteps >= 0, "warmup_steps", "is %d and must be zero or positive", s.WarmupSteps)
	add(s.TotalSteps == -1 || s.TotalSteps > 0, "total_steps", "is %d and must be positive, or -1 for training.steps", s.TotalSteps)
	if r := s.DecayRatio; r != nil {
		add(*r >= 0 && *r <= 1, "decay_ratio", "is %g and must lie between 0 and 1", *r)
	}
	add(slices.Contains(decayTypes, s.DecayType), "decay_type", "%q is no shape of decay%s", s.DecayType, nearest.Hint(s.DecayType, decayTypes))
	add(s.MinLRFactor >= 0 && s.MinLRFactor <= 1, "min_lr_factor", "is %g and must lie between 0 and 1", s.MinLRFactor)
	return errors.Join(errs...)
}

// Curve is a schedule of known length.
type Curve struct {
	Warmup, Stable, Decay int // steps; Warmup + Stable + Decay is the length + 1

	shape string
	min   float64
}

// Curve lays s out over a run of the given number of steps. Where warm-up and
// decay do not fit, they are cut as TorchTitan cuts them, warm-up to the length
// and decay to what warm-up leaves; notes say so, for the log.
func (s Schedule) Curve(steps int) (c Curve, notes []string) {
	if s.TotalSteps > 0 {
		steps = s.TotalSteps
	}
	steps = max(steps, 0)
	c = Curve{Warmup: s.WarmupSteps, Decay: steps - s.WarmupSteps, shape: s.DecayType, min: s.MinLRFactor}
	if c.Warmup > steps {
		notes = append(notes, fmt.Sprintf("lr_scheduler.warmup_steps is %d, but the schedule has %s: warm-up is cut to %d", c.Warmup, plural.Of(steps, "step"), steps))
		c.Warmup, c.Decay = steps, 0
	}
	if s.DecayRatio != nil {
		c.Decay = int(math.RoundToEven(float64(steps) * *s.DecayRatio))
		if left := steps - c.Warmup; c.Decay > left {
			notes = append(notes, fmt.Sprintf("lr_scheduler: %d steps of warm-up and %d of decay exceed the schedule's %d: decay is cut to %d", c.Warmup, c.Decay, steps, left))
			c.Decay = left
		}
	}
	c.Stable = steps + 1 - c.Warmup - c.Decay // one step more, so that the last is not at the minimum
	return c, notes
}

// Factor is what the peak learning rate is multiplied by at a step, counted
// from 0: (s+1)/W in warm-up; 1; then m + (1-m)·f(p) with the minimum m and
// p = (s+1-(W+S))/D, where f(p) is 1-p (linear), 1-√p (sqrt) or (1+cos πp)/2
// (cosine). W, S and D are the steps of warm-up, stable phase and decay. The
// decay reaches its end one step after the last; from there the factor is m.
// Formula: TorchTitan 0.2.1, lr_scheduler.
func (c Curve) Factor(step int) float64 {
	before := c.Warmup + c.Stable
	switch {
	case step < 0:
		return 0
	case step < c.Warmup:
		return float64(step+1) / float64(c.Warmup)
	case step < before || c.Decay == 0:
		return 1
	}
	p := min(1, float64(step+1-before)/float64(c.Decay))
	var f float64
	switch c.shape {
	case "sqrt":
		f = 1 - math.Sqrt(p)
	case "cosine":
		f = 0.5 * (1 + math.Cos(math.Pi*p))
	default:
		f = 1 - p
	}
	return c.min + (1-c.min)*f
}
