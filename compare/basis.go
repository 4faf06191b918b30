package compare

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"titan/internal/human"
)

// Aspect is something that a figure was measured on.
type Aspect string

// Aspects.
const (
	Evidence   Aspect = "evidence"    // measured, predicted or extrapolated
	Effort     Aspect = "compiler"    // quick or default
	Platform   Aspect = "platform"    // cpu, tpu, …
	Machine    Aspect = "machine"     // the host of virtual devices
	Model      Aspect = "model"       // family and flavor, and what differs from it
	SeqLen     Aspect = "seq_len"     // tokens
	Flops      Aspect = "flops"       // of a token, by the causal convention
	Convention Aspect = "convention"  // by which MFU is known
	Packing    Aspect = "packing"     // whether attention keeps to documents, which labels count
	Padding    Aspect = "padding"     // percent of the positions
	Precision  Aspect = "precision"   // element type of products
	Routing    Aspect = "routing"     // forced balance of experts
	Peak       Aspect = "peak"        // that MFU is of, if the recipe gives it
	Data       Aspect = "data"        // datasets
	StepTokens Aspect = "step_tokens" // tokens of a step
	PerChip    Aspect = "per_chip"    // devices of a chip
	Currency   Aspect = "currency"    // of costs
	Quality    Aspect = "quality"     // the loss a target is compared with
	Warm       Aspect = "warm"        // whether enough steps were timed
)

// Basis says what figures were measured on, by aspect. An aspect that is missing is
// not known.
type Basis map[Aspect]string

// Group is figures that the same aspects bear on.
type Group int

// Groups of figures.
const (
	Speed Group = iota
	Device
	StepTime
	MFU
	Memory
	Loss
	Time // loss by time, time to a loss
	Target
	Cost
	numGroups
)

// rule says what a difference in an aspect does.
type rule struct {
	aspect Aspect
	what   string // that differs
	spoils []Group
	// optional aspects do not matter where a side does not know them.
	optional bool
	same     func(a, b string) bool     // nil: equality
	when     func(r, base *Result) bool // nil: always
}

var all = []Group{Speed, Device, StepTime, MFU, Memory, Loss, Time, Target, Cost}

var timing = []Group{Speed, Device, StepTime, MFU, Time, Cost}

// rules, in the order in which reasons are given.
var rules = []rule{
	{aspect: Model, what: "another model", spoils: all},
	{aspect: SeqLen, what: "another sequence length", spoils: all},
	{aspect: Platform, what: "another platform", spoils: append([]Group{Memory}, timing...)},
	{aspect: Evidence, what: "a figure of another kind", spoils: append([]Group{Memory}, timing...), same: sameEvidence},
	{aspect: Effort, what: "compiled with another effort", spoils: append([]Group{Memory}, timing...)},
	{aspect: Precision, what: "another precision", spoils: all},
	{aspect: Packing, what: "other packing of documents", spoils: all},
	{aspect: Padding, what: "another share of padding", spoils: append([]Group{Loss, Target}, timing...), same: samePadding},
	{aspect: Routing, what: "other routing of tokens", spoils: append([]Group{Loss, Target}, timing...)},
	{aspect: Flops, what: "another count of FLOPs for a token", spoils: []Group{MFU}, optional: true, same: sameCount},
	{aspect: Convention, what: "MFU by another convention", spoils: []Group{MFU}, same: overlap},
	{aspect: Peak, what: "MFU of another peak", spoils: []Group{MFU}},
	{aspect: Machine, what: "another host", when: bothVirtual, spoils: append([]Group{Memory}, timing...)},
	{aspect: StepTokens, what: "another number of tokens a step", spoils: []Group{StepTime}},
	{aspect: PerChip, what: "chips of other devices", spoils: []Group{Device}},
	{aspect: Data, what: "other data", spoils: []Group{Loss, Time, Target}},
	{aspect: Quality, what: "the loss is another one", spoils: []Group{Target}},
	{aspect: Currency, what: "another currency", spoils: []Group{Cost, Target}, optional: true},
}

// Mark is a reason why figures of a result cannot be compared with the base's.
type Mark struct {
	Aspect Aspect  `json:"aspect"`
	Here   string  `json:"here"` // "" is not known
	Base   string  `json:"base"`
	What   string  `json:"what"`
	Spoils []Group `json:"-"`
}

// String gives the reason in words.
func (m Mark) String() string {
	say := func(a Aspect, s string) string {
		if s == "" {
			return "not stated"
		}
		if a == Flops || a == SeqLen || a == StepTokens {
			if x, err := strconv.ParseFloat(s, 64); err == nil {
				return human.Count(x)
			}
		}
		return s
	}
	switch {
	case m.Aspect == Warm:
		return m.What
	case m.Aspect == StepTokens && m.Base != "":
		return fmt.Sprintf("%s than the base's %s", m.What, say(m.Aspect, m.Base))
	case m.Here == "" && m.Base == "":
		return fmt.Sprintf("%s is not stated for either", m.Aspect)
	}
	return fmt.Sprintf("%s: %s, the base's is %s", m.What, say(m.Aspect, m.Here), say(m.Aspect, m.Base))
}

// marks lists what keeps r from being compared with the base.
func marks(r, base *Result) []Mark {
	if r == base {
		return nil
	}
	var out []Mark
	for _, rule := range rules {
		if rule.when != nil && !rule.when(r, base) {
			continue
		}
		here, knownHere := r.Basis[rule.aspect]
		there, knownThere := base.Basis[rule.aspect]
		switch {
		case knownHere && knownThere:
			if here == there || rule.same != nil && rule.same(here, there) {
				continue
			}
		case rule.optional, !knownHere && !knownThere && r.Path == base.Path:
			continue // of the same series
		}
		if !matters(rule, r, base) {
			continue
		}
		out = append(out, Mark{rule.aspect, here, there, rule.what, rule.spoils})
	}
	return out
}

// matters reports whether both have a figure that the rule would spoil: a plan has
// no loss, so that its data do not matter.
func matters(rule rule, r, base *Result) bool {
	for _, row := range Rows {
		if !row.in(rule.spoils) {
			continue
		}
		if row.Derived {
			if len(r.Curve) > 0 && len(base.Curve) > 0 {
				return true
			}
			continue
		}
		_, here := r.Figures[row.Key]
		_, there := base.Figures[row.Key]
		if here && there {
			return true
		}
	}
	// MFU by one convention here and the other there is worth a word.
	return rule.aspect == Convention && r.Basis[Convention] != "" && base.Basis[Convention] != ""
}

// bothVirtual: the speed of virtual devices is that of their host.
func bothVirtual(r, base *Result) bool {
	return r.Basis[Platform] == cpu && base.Basis[Platform] == cpu
}

// sameEvidence: what others measured is measured.
func sameEvidence(a, b string) bool {
	measured := func(s string) bool { return s == string(measuredHere) || s == string(measuredElsewhere) }
	return measured(a) && measured(b)
}

type evidence string

const (
	measuredHere      evidence = "measured"
	measuredElsewhere evidence = "published"
	predicted         evidence = "predicted"
	extrapolated      evidence = "extrapolated"
)

// samePadding: a difference of one percent of the positions is no other work.
func samePadding(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && math.Abs(x-y) <= 1
}

// sameCount: counts that agree to a millionth are the same count, rounded.
func sameCount(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && math.Abs(x-y) <= 1e-6*math.Abs(y)
}

// overlap: a convention that both have can be compared.
func overlap(a, b string) bool {
	for _, x := range strings.Split(a, ", ") {
		for _, y := range strings.Split(b, ", ") {
			if x == y {
				return true
			}
		}
	}
	return false
}

// Conventions of MFU as a basis names them.
const (
	torchTitan = "torchtitan"
	causal     = "causal"
)

// conventions notes by which conventions MFU is known.
func (r *Result) conventions() {
	var names []string
	if _, ok := r.Figures[MFUTorchTitan]; ok {
		names = append(names, torchTitan)
	}
	if _, ok := r.Figures[MFUCausal]; ok {
		names = append(names, causal)
	}
	if len(names) > 0 {
		r.Basis[Convention] = strings.Join(names, ", ")
	}
}

// fewSteps is how few timed steps say little: a percentile of fewer is the largest.
const fewSteps = 5

// defects are what makes a result's own figures worthless for a comparison.
func defects(r *Result) []Mark {
	n, ok := r.Figures[WarmSteps]
	if r.Kind != Run || ok && n >= fewSteps {
		return nil
	}
	if _, timed := r.Figures[TPSDevice]; !timed {
		return nil
	}
	return []Mark{{Aspect: Warm, Here: strconv.Itoa(int(n)), What: fmt.Sprintf("%d steps were timed after the warm-up, less than %d", int(n), fewSteps), Spoils: timing}}
}

func finite(x float64) bool { return human.Finite(x) }
