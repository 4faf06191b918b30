package optim

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"

	"titan/dtype"
	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// AdamW is the one optimizer there is so far.
const AdamW = "AdamW"

// Config is the recipe's section [optimizer].
type Config struct {
	Name          string  `toml:"name" doc:"AdamW"`
	LR            float64 `toml:"lr" doc:"peak learning rate, which the schedule scales"`
	Beta1         float64 `toml:"beta1" doc:"decay of the first moment"`
	Beta2         float64 `toml:"beta2" doc:"decay of the second moment"`
	Eps           float64 `toml:"eps" doc:"added to the root of the second moment after bias correction"`
	WeightDecay   float64 `toml:"weight_decay" doc:"decoupled weight decay: p -= lr·weight_decay·p, for every parameter unless a group says otherwise"`
	StateDType    string  `toml:"state_dtype" doc:"element type in which the moments are stored: float32 or bfloat16"`
	SkipNonfinite bool    `toml:"skip_nonfinite" doc:"leave parameters and moments as they are when the gradient norm or the loss is infinite or NaN"`
	ParamGroups   []Group `toml:"param_groups" doc:"other settings for the parameters whose name a pattern matches; the first group that matches counts"`
}

// Group is one table of [[optimizer.param_groups]]. What it leaves unset is as
// in [optimizer].
type Group struct {
	Pattern     string   `toml:"pattern" doc:"regular expression (RE2) found anywhere in a parameter's name, such as \"norm\" or \"^embed$\""`
	LR          *float64 `toml:"lr" doc:"peak learning rate of the group"`
	LRFactor    *float64 `toml:"lr_factor" doc:"the group's peak learning rate as a multiple of optimizer.lr; instead of lr"`
	WeightDecay *float64 `toml:"weight_decay" doc:"weight decay of the group"`
	Beta1       *float64 `toml:"beta1" doc:"decay of the first moment in the group"`
	Beta2       *float64 `toml:"beta2" doc:"decay of the second moment in the group"`
	Eps         *float64 `toml:"eps" doc:"epsilon of the group"`
}

// Defaults returns the values of [optimizer] in a recipe that does not set them.
func Defaults() Config {
	return Config{Name: AdamW, LR: 8e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1,
		StateDType: "float32", SkipNonfinite: true}
}

// Validate returns all mistakes in c, each a *recipekey.Error. That the groups'
// patterns match parameters is checked by [New].
func (c Config) Validate() error {
	var errs []error
	if c.Name != AdamW {
		errs = append(errs, recipekey.Errorf("optimizer.name", "%q is no optimizer%s", c.Name, nearest.Hint(c.Name, []string{AdamW})))
	}
	moment, err := stateDType(c.StateDType)
	if err != nil {
		errs = append(errs, err)
	}
	base := settings{lr: c.LR, beta1: c.Beta1, beta2: c.Beta2, eps: c.Eps, decay: c.WeightDecay}
	errs = append(errs, base.check("optimizer.", moment, func(string) bool { return true })...)
	for i, g := range c.ParamGroups {
		errs = append(errs, g.check(fmt.Sprintf("optimizer.param_groups[%d].", i), moment)...)
	}
	return errors.Join(errs...)
}

// stateDType resolves the name of an element type for the moments.
func stateDType(name string) (dtype.DType, error) {
	switch name {
	case "float32":
		return dtype.F32, nil
	case "bfloat16":
		return dtype.BF16, nil
	}
	return dtype.Invalid, recipekey.Errorf("optimizer.state_dtype", "%q is not possible%s", name, nearest.Hint(name, []string{"float32", "bfloat16"}))
}

func (g Group) check(prefix string, moment dtype.DType) []error {
	var errs []error
	if g.Pattern == "" {
		errs = append(errs, recipekey.Errorf(prefix+"pattern", "is missing or empty; it must be a regular expression over parameter names"))
	} else if _, err := regexp.Compile(g.Pattern); err != nil {
		errs = append(errs, recipekey.Errorf(prefix+"pattern", "%q is no regular expression: %s", g.Pattern, strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
	if g.LR != nil && g.LRFactor != nil {
		errs = append(errs, recipekey.Errorf(prefix+"lr_factor", "stands beside lr; give one of them"))
	}
	if f := g.LRFactor; f != nil && !(*f >= 0 && finite(*f)) {
		errs = append(errs, recipekey.Errorf(prefix+"lr_factor", "is %g and must be zero or positive", *f))
	}
	set := map[string]bool{"lr": g.LR != nil, "weight_decay": g.WeightDecay != nil,
		"beta1": g.Beta1 != nil, "beta2": g.Beta2 != nil, "eps": g.Eps != nil}
	return append(errs, g.over(settings{}).check(prefix, moment, func(key string) bool { return set[key] })...)
}

// settings are what may differ between groups, resolved.
type settings struct{ lr, beta1, beta2, eps, decay float64 }

// over is s with what g sets put in its place.
func (g Group) over(s settings) settings {
	for _, f := range []struct {
		to   *float64
		from *float64
	}{{&s.lr, g.LR}, {&s.beta1, g.Beta1}, {&s.beta2, g.Beta2}, {&s.eps, g.Eps}, {&s.decay, g.WeightDecay}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if g.LRFactor != nil {
		s.lr *= *g.LRFactor
	}
	return s
}

// check returns the mistakes in those of s's values for which set holds.
func (s settings) check(prefix string, moment dtype.DType, set func(key string) bool) []error {
	var errs []error
	add := func(key string, ok bool, format string, args ...any) {
		if set(key) && !ok {
			errs = append(errs, recipekey.Errorf(prefix+key, format, args...))
		}
	}
	add("lr", s.lr >= 0 && finite(s.lr), "is %g and must be zero or positive", s.lr)
	add("weight_decay", s.decay >= 0 && finite(s.decay), "is %g and must be zero or positive", s.decay)
	add("eps", s.eps >= minNormal && finite(s.eps), "is %g and must be at least %.2g, the least normal float32: where a gradient is zero it is the divisor", s.eps, minNormal)
	for _, b := range []struct {
		key string
		x   float64
	}{{"beta1", s.beta1}, {"beta2", s.beta2}} {
		ok := b.x >= 0 && b.x < 1
		add(b.key, ok, "is %g and must be at least 0 and less than 1", b.x)
		// A stored moment is rounded to 8 bits; a decay of less than half a unit
		// in the last place is rounded away, and the moment never falls again.
		if ok && moment == dtype.BF16 {
			add(b.key, 1-b.x >= 1.0/256, "is %g: a moment stored in bfloat16 would never decay; use state_dtype = \"float32\" or at most %g", b.x, 1-1.0/256)
		}
	}
	return errs
}

// minNormal is the least normal float32; accelerators flush less to zero.
const minNormal = 0x1p-126

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }
