package optim

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// GroupInfo says what one group of parameters is trained with, for the log.
type GroupInfo struct {
	// Name is the pattern, or the optimizer for the parameters that no pattern
	// matches; where a pattern has parameters of both optimizers it is followed by
	// the optimizer in parentheses.
	Name      string
	Pattern   string // "" for the parameters that no pattern matches
	Optimizer string // AdamW or Muon
	// Beta1, Beta2 and Eps are AdamW's, Momentum is Muon's; 0 for the other.
	LR, Beta1, Beta2, Eps, Momentum, WeightDecay float64
	Params                                       []string
}

// group is the parameters with the same settings and the same optimizer.
type group struct {
	name, pattern string
	muon          bool
	settings
}

func (g group) optimizer() string {
	if g.muon {
		return Muon
	}
	return AdamW
}

// arrange puts each parameter into a group. The first group is AdamW's outside
// all patterns, with parameters or not; every other has some.
func (o *Optimizer) arrange(cfg Config) error {
	table, err := assign(cfg.ParamGroups, o.params) // 1 + position in ParamGroups, or 0
	if err != nil {
		return err
	}
	muon, err := choose(cfg, o.params, table)
	if err != nil {
		return err
	}
	o.group = make([]int, len(o.params))
	o.groups = []group{{name: AdamW, settings: cfg.settings(false)}}
	var errs []error
	for k := range len(cfg.ParamGroups) + 1 {
		var with [2]bool // AdamW, Muon
		for i, t := range table {
			if t == k {
				with[at(muon[i])] = true
			}
		}
		for _, m := range []bool{false, true} {
			if !with[at(m)] {
				continue
			}
			g := group{muon: m, settings: cfg.settings(m)}
			g.name = g.optimizer()
			if k > 0 {
				c := cfg.ParamGroups[k-1]
				g.pattern, g.settings = c.Pattern, c.over(g.settings)
				if g.name = c.Pattern; with[0] && with[1] {
					g.name += " (" + g.optimizer() + ")"
				}
			}
			place := len(o.groups)
			if k == 0 && !m {
				place = 0
			} else {
				o.groups = append(o.groups, g)
			}
			for i, t := range table {
				if t == k && muon[i] == m {
					o.group[i] = place
				}
			}
		}
		if k > 0 {
			errs = append(errs, idle(cfg.ParamGroups[k-1], fmt.Sprintf("optimizer.param_groups[%d].", k-1), with[0], with[1])...)
		}
	}
	return errors.Join(errs...)
}

func at(muon bool) int {
	if muon {
		return 1
	}
	return 0
}

// idle returns an error for each key of a group that none of its parameters
// reads.
func idle(g Group, prefix string, adamw, muon bool) []error {
	var errs []error
	for _, k := range []struct {
		key  string
		set  bool
		read bool
		of   string
	}{{"beta1", g.Beta1 != nil, adamw, AdamW}, {"beta2", g.Beta2 != nil, adamw, AdamW}, {"eps", g.Eps != nil, adamw, AdamW},
		{"muon_momentum", g.MuonMomentum != nil, muon, Muon}} {
		if k.set && !k.read {
			errs = append(errs, recipekey.Errorf(prefix+k.key, "has no effect: it is a setting of %s, which updates none of the parameters that %q has", k.of, g.Pattern))
		}
	}
	return errs
}

// choose says which parameters Muon updates; table gives each parameter's group.
func choose(cfg Config, params []Param, table []int) ([]bool, error) {
	muon := make([]bool, len(params))
	for i, p := range params {
		want, key := cfg.Name, ""
		if k := table[i]; k > 0 && cfg.ParamGroups[k-1].Optimizer != "" {
			want, key = cfg.ParamGroups[k-1].Optimizer, fmt.Sprintf("optimizer.param_groups[%d].optimizer", k-1)
		}
		if want != Muon {
			continue
		}
		if len(p.Axes) != len(p.Shape) {
			return nil, fmt.Errorf("optim: Muon must know the logical axes of parameter %s, one for each dimension of %v; it has %d", p.Name, p.Shape, len(p.Axes))
		}
		_, matrix := p.matrices()
		if key != "" && !matrix {
			return nil, recipekey.Errorf(key, "is %q, which updates matrices only, and the pattern %q also has %s with axes %q; narrow the pattern", Muon, cfg.ParamGroups[table[i]-1].Pattern, p.Name, p.Axes)
		}
		muon[i] = matrix && (key != "" || p.hidden())
	}
	if cfg.Name == Muon && len(params) > 0 && !slices.Contains(muon, true) {
		return nil, recipekey.Errorf("optimizer.name", "is %q, but it updates no parameter: none is a matrix of a layer that no group gives to %s", Muon, AdamW)
	}
	return muon, nil
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

// Groups describes the groups that have parameters, the rest first: in the order
// of [Optimizer.Rates], which begins with a rate more if AdamW has no parameter
// outside the patterns.
func (o *Optimizer) Groups() []GroupInfo {
	var out []GroupInfo
	for i, g := range o.groups {
		info := GroupInfo{Name: g.name, Pattern: g.pattern, Optimizer: g.optimizer(), LR: g.lr, WeightDecay: g.decay}
		if g.muon {
			info.Momentum = g.momentum
		} else {
			info.Beta1, info.Beta2, info.Eps = g.beta1, g.beta2, g.eps
		}
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
