// Package compare puts results side by side: runs, plans, points of sweeps and
// published series.
//
//	in, warnings, err := compare.Load("outputs/a")
//	c := compare.New(results, compare.Options{TargetLoss: 3})
//	fmt.Print(c.Text(80))
//
// Every result carries what it was measured on, its [Basis]. Where that differs from
// the first result's in a way that makes a figure mean something else, the figure is
// marked with the reason and never ranked: docs/results.md has the rules.
package compare

import (
	"titan/plan"
	"titan/runs"
	"titan/sweep"
)

// Kind is what a result is.
type Kind string

// Kinds of results.
const (
	Run          Kind = "run"          // measured
	Plan         Kind = "plan"         // predicted from the compiled step
	Extrapolated Kind = "extrapolated" // computed from smaller points of a sweep
	Published    Kind = "published"    // measured by others
)

// Result is a run, a plan, a point of a sweep or a published one. What is not
// known is left out.
type Result struct {
	Name string `json:"name"`
	// Path is what was opened; results of one sweep or series share it.
	Path  string `json:"path"`
	Kind  Kind   `json:"kind"`
	State string `json:"state,omitempty"` // of a run: finished, running, killed, …
	Basis Basis  `json:"basis"`
	// Chips are 1 for virtual devices, which share a host.
	Chips   int    `json:"chips"`
	Devices int    `json:"devices"`
	Mesh    string `json:"mesh,omitempty"`
	// Figures are by the keys of [Rows].
	Figures map[string]float64 `json:"figures"`
	// Price is that of a chip for an hour, in Currency; 0: unknown.
	Price    float64  `json:"price_per_chip_hour,omitempty"`
	Currency string   `json:"currency,omitempty"`
	Notes    []string `json:"notes,omitempty"`

	// Recipe has the values of the recipe by their full keys; nil: unknown.
	Recipe map[string]any `json:"-"`
	// Curve is a run's way, by ascending step; Validation its losses on held-out
	// data.
	Curve      []Point `json:"-"`
	Validation []Point `json:"-"`
}

// Point is a moment of a run. What is not known is NaN.
type Point struct {
	Step    int64
	Tokens  float64 // seen since the first step of training
	Seconds float64 // of the run's processes since the first one's start
	Loss    float64
	Values  map[string]float64 // all figures by their names in metrics.jsonl
}

// Input is what was opened under one path: one of the pointers, and the results
// that it holds.
type Input struct {
	Path    string
	Run     *runs.Run
	Plan    *plan.Report
	Sweep   *sweep.Sweep
	Series  *sweep.Series
	Results []*Result
}

// Noun says what the input is.
func (in *Input) Noun() string {
	switch {
	case in.Run != nil:
		return "run"
	case in.Plan != nil:
		return "plan"
	case in.Sweep != nil:
		return "sweep"
	}
	return "published series"
}

// set notes a figure, if it is one.
func (r *Result) set(key string, value float64) {
	if finite(value) && value > 0 {
		r.Figures[key] = value
	}
}

func (r *Result) note(s string) {
	if s != "" {
		r.Notes = append(r.Notes, s)
	}
}
