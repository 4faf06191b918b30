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

// The optimizers.
const (
	AdamW = "AdamW"
	Muon  = "Muon"
)

var names = []string{AdamW, Muon}

// Config is the recipe's section [optimizer].
type Config struct {
	Name          string  `toml:"name" doc:"AdamW, or Muon: Muon for the layers' matrices and AdamW for everything else"`
	LR            float64 `toml:"lr" doc:"peak learning rate, which the schedule scales"`
	Beta1         float64 `toml:"beta1" doc:"AdamW: decay of the first moment"`
	Beta2         float64 `toml:"beta2" doc:"AdamW: decay of the second moment"`
	Eps           float64 `toml:"eps" doc:"AdamW: added to the root of the second moment after bias correction"`
	WeightDecay   float64 `toml:"weight_decay" doc:"decoupled weight decay: p -= lr·weight_decay·p, for every parameter unless a group says otherwise"`
	StateDType    string  `toml:"state_dtype" doc:"element type in which the moments and Muon's momentum are stored: float32 or bfloat16"`
	SkipNonfinite bool    `toml:"skip_nonfinite" doc:"leave parameters and moments as they are when the gradient norm or the loss is infinite or NaN"`

	MuonLR       *float64 `toml:"muon_lr" doc:"Muon: peak learning rate of its matrices; unset: lr, which suits muon_adjust_lr = \"match_rms_adamw\""`
	MuonMomentum float64  `toml:"muon_momentum" doc:"Muon: decay of the momentum"`
	MuonNesterov bool     `toml:"muon_nesterov" doc:"Muon: look one step ahead along the momentum (Nesterov)"`
	MuonNSSteps  int      `toml:"muon_ns_steps" doc:"Muon: Newton-Schulz iterations that make an update orthogonal"`
	MuonNSDType  string   `toml:"muon_ns_dtype" doc:"Muon: element type of these iterations and of the matrices on their way between devices: bfloat16 or float32"`
	MuonEps      float64  `toml:"muon_eps" doc:"Muon: least Frobenius norm by which an update is divided before these iterations"`
	MuonAdjustLR string   `toml:"muon_adjust_lr" doc:"Muon: factor on the learning rate by a matrix's shape: match_rms_adamw, 0.2·sqrt(max(fan_in, fan_out)), so that AdamW's learning rate and weight decay suit; or original, sqrt(max(1, fan_out/fan_in))"`

	ParamGroups []Group `toml:"param_groups" doc:"other settings for the parameters whose name a pattern matches; the first group that matches counts"`
}

// Group is one table of [[optimizer.param_groups]]. What it leaves unset is as
// in [optimizer].
type Group struct {
	Pattern      string   `toml:"pattern" doc:"regular expression (RE2) found anywhere in a parameter's name, such as \"norm\" or \"^embed$\""`
	Optimizer    string   `toml:"optimizer" doc:"AdamW or Muon for all parameters of the group; Muon takes matrices only"`
	LR           *float64 `toml:"lr" doc:"peak learning rate of the group"`
	LRFactor     *float64 `toml:"lr_factor" doc:"the group's peak learning rate as a multiple of optimizer.lr (of optimizer.muon_lr where Muon updates); instead of lr"`
	WeightDecay  *float64 `toml:"weight_decay" doc:"weight decay of the group"`
	Beta1        *float64 `toml:"beta1" doc:"AdamW: decay of the first moment in the group"`
	Beta2        *float64 `toml:"beta2" doc:"AdamW: decay of the second moment in the group"`
	Eps          *float64 `toml:"eps" doc:"AdamW: epsilon of the group"`
	MuonMomentum *float64 `toml:"muon_momentum" doc:"Muon: decay of the momentum in the group"`
}

// Defaults returns the values of [optimizer] in a recipe that does not set them.
func Defaults() Config {
	return Config{Name: AdamW, LR: 8e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1,
		StateDType: "float32", SkipNonfinite: true,
		MuonMomentum: 0.95, MuonNesterov: true, MuonNSSteps: 5, MuonNSDType: "bfloat16", MuonEps: 1e-7, MuonAdjustLR: MatchRMSAdamW}
}

// maxNSSteps bounds the program, in which the iterations stand one after the
// other. From about ten on the result no longer depends on their number.
const maxNSSteps = 32

// Validate returns all mistakes in c, each a *recipekey.Error. That the groups'
// patterns match parameters is checked by [New].
func (c Config) Validate() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(oneOf("optimizer.name", c.Name, "is no optimizer", names))
	moment, err := floatType("optimizer.state_dtype", c.StateDType)
	add(err)
	_, err = floatType("optimizer.muon_ns_dtype", c.MuonNSDType)
	add(err)
	add(oneOf("optimizer.muon_adjust_lr", c.MuonAdjustLR, "is not possible", []string{MatchRMSAdamW, Original}))
	if c.MuonNSSteps < 1 || c.MuonNSSteps > maxNSSteps {
		add(recipekey.Errorf("optimizer.muon_ns_steps", "is %d and must lie between 1 and %d; 5 is usual", c.MuonNSSteps, maxNSSteps))
	}
	if !(c.MuonEps >= minNormal && finite(c.MuonEps)) {
		add(recipekey.Errorf("optimizer.muon_eps", "is %g and must be at least %.2g, the least normal float32: where an update is zero it is the divisor", c.MuonEps, minNormal))
	}
	if lr := c.MuonLR; lr != nil && !(*lr >= 0 && finite(*lr)) {
		add(recipekey.Errorf("optimizer.muon_lr", "is %g and must be zero or positive", *lr))
	}
	errs = append(errs, c.settings(false).check("optimizer.", moment, func(string) bool { return true })...)
	for i, g := range c.ParamGroups {
		errs = append(errs, g.check(fmt.Sprintf("optimizer.param_groups[%d].", i), moment)...)
	}
	return errors.Join(errs...)
}

// oneOf returns an error that names the nearest choice unless value is one.
func oneOf(key, value, problem string, choices []string) error {
	for _, c := range choices {
		if value == c {
			return nil
		}
	}
	return recipekey.Errorf(key, "%q %s%s", value, problem, nearest.Hint(value, choices))
}

// floatType resolves the name of an element type.
func floatType(key, name string) (dtype.DType, error) {
	switch name {
	case "float32":
		return dtype.F32, nil
	case "bfloat16":
		return dtype.BF16, nil
	}
	return dtype.Invalid, oneOf(key, name, "is not possible", []string{"float32", "bfloat16"})
}

func (g Group) check(prefix string, moment dtype.DType) []error {
	var errs []error
	if g.Pattern == "" {
		errs = append(errs, recipekey.Errorf(prefix+"pattern", "is missing or empty; it must be a regular expression over parameter names"))
	} else if _, err := regexp.Compile(g.Pattern); err != nil {
		errs = append(errs, recipekey.Errorf(prefix+"pattern", "%q is no regular expression: %s", g.Pattern, strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
	if g.Optimizer != "" {
		if err := oneOf(prefix+"optimizer", g.Optimizer, "is no optimizer", names); err != nil {
			errs = append(errs, err)
		}
	}
	if g.LR != nil && g.LRFactor != nil {
		errs = append(errs, recipekey.Errorf(prefix+"lr_factor", "stands beside lr; give one of them"))
	}
	if f := g.LRFactor; f != nil && !(*f >= 0 && finite(*f)) {
		errs = append(errs, recipekey.Errorf(prefix+"lr_factor", "is %g and must be zero or positive", *f))
	}
	set := map[string]bool{"lr": g.LR != nil, "weight_decay": g.WeightDecay != nil,
		"beta1": g.Beta1 != nil, "beta2": g.Beta2 != nil, "eps": g.Eps != nil, "muon_momentum": g.MuonMomentum != nil}
	return append(errs, g.over(settings{}).check(prefix, moment, func(key string) bool { return set[key] })...)
}

// settings are what may differ between groups, resolved.
type settings struct{ lr, beta1, beta2, eps, decay, momentum float64 }

// settings are those of the parameters in no group, which Muon updates or AdamW.
func (c Config) settings(muon bool) settings {
	s := settings{lr: c.LR, beta1: c.Beta1, beta2: c.Beta2, eps: c.Eps, decay: c.WeightDecay, momentum: c.MuonMomentum}
	if muon && c.MuonLR != nil {
		s.lr = *c.MuonLR
	}
	return s
}

// over is s with what g sets put in its place.
func (g Group) over(s settings) settings {
	for _, f := range []struct {
		to   *float64
		from *float64
	}{{&s.lr, g.LR}, {&s.beta1, g.Beta1}, {&s.beta2, g.Beta2}, {&s.eps, g.Eps}, {&s.decay, g.WeightDecay}, {&s.momentum, g.MuonMomentum}} {
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
	}{{"beta1", s.beta1}, {"beta2", s.beta2}, {"muon_momentum", s.momentum}} {
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
