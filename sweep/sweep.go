// Package sweep plans or trains one recipe many times, over chip counts, meshes or
// any of its keys, and keeps what came out in a folder:
//
//	s, err := sweep.New(spec)                        // the points, none of them done
//	err = sweep.Execute(ctx, dir, s, sweep.Options{…}) // each in a process of its own
//	s, warnings, err := sweep.Open(dir)              // later, for tables and reports
//
// In weak mode the work of a device stays the same and that of a step grows with
// the devices; in strong mode the work of a step stays the same.
package sweep

import (
	"fmt"
	"strings"
	"time"

	"titan/plan"
)

// Schema is the version of the format of FileName.
const Schema = 1

// FileName holds a [Sweep] in its folder.
const FileName = "sweep.json"

// Mode says what stays the same while devices are added.
type Mode string

// Modes of a sweep.
const (
	NoMode Mode = ""       // nothing is adapted: each point is the recipe with its values
	Weak   Mode = "weak"   // the work of a device: the batch of a step grows
	Strong Mode = "strong" // the batch of a step
)

// Source says where the figures of a point are from.
type Source string

// Sources of figures.
const (
	Run          Source = "run"          // measured
	Plan         Source = "plan"         // predicted from the compiled step
	Extrapolated Source = "extrapolated" // computed from smaller points, by Point.Rule
)

// Status says how far a point is.
type Status string

// Statuses of a point.
const (
	Pending    Status = "pending"    // not begun; also of a point whose process was killed
	Running    Status = "running"    // begun and not ended: under way, or the sweep was killed
	OK         Status = "ok"         // has figures
	Failed     Status = "failed"     // was tried; Point.Error says what happened
	Impossible Status = "impossible" // was not tried; Point.Error says why
)

// Failure says what sort of failure ended a point.
type Failure string

// Failures of a point.
const (
	NotFailed   Failure = ""
	OutOfMemory Failure = "memory"  // the step does not fit
	TimedOut    Failure = "timeout" // it took longer than it was given
	Crashed     Failure = "error"   // the process ended with an error
	Killed      Failure = "killed"  // something else killed the process
)

// Sweep is a recipe at many points.
type Sweep struct {
	Schema int    `json:"schema"`
	Name   string `json:"name"`
	Mode   Mode   `json:"mode"`
	Source Source `json:"source"` // Run or Plan
	// Recipe is as it was given, Set what was set over it for all points, and Hash
	// that of both.
	Recipe string   `json:"recipe"`
	Set    []string `json:"set,omitempty"`
	Hash   string   `json:"recipe_hash"`
	Model  string   `json:"model"` // name and flavor
	SeqLen int      `json:"seq_len"`
	Kind   string   `json:"kind"` // of the chips, or "cpu"
	// Precision is the element type of products: "bfloat16", "float32", or
	// "float8" where some are in narrower types.
	Precision string `json:"precision"`
	// Quick says that plans were compiled with little effort.
	Quick bool `json:"quick,omitempty"`
	// Steps are those of a run, of which the first Warmup are not counted.
	Steps  int `json:"steps,omitempty"`
	Warmup int `json:"warmup,omitempty"`
	// Extrapolate says that points of more than MaxCompileChips chips are not
	// compiled but computed from smaller ones; 0: all that can be are compiled.
	Extrapolate     bool `json:"extrapolate,omitempty"`
	MaxCompileChips int  `json:"max_compile_chips,omitempty"`
	// Keys are those that are varied, besides what fits the recipe to its machines.
	Keys    []string  `json:"keys,omitempty"`
	Started time.Time `json:"started"`
	Updated time.Time `json:"updated"`
	Points  []Point   `json:"points"`
}

// Value is a key of the recipe with the value that a point has for it.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// String returns "key=value".
func (v Value) String() string { return v.Key + "=" + v.Value }

// Axis is one axis of a mesh with its number of devices.
type Axis struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// Versions say what made the figures.
type Versions struct {
	Titan  string `json:"titan,omitempty"`
	Plugin string `json:"plugin,omitempty"` // what the plugin says of itself
}

// Point is one recipe of a sweep, and what came out. Figures that are not known
// are zero.
type Point struct {
	// ID names the point and its folder below points/.
	ID     string  `json:"id"`
	Values []Value `json:"values,omitempty"`
	// Set is what makes the sweep's recipe this point, as --set takes it.
	Set []string `json:"set"`

	// Asked is the number of chips that was asked for, if the nearest that pods
	// offer, Chips, is another. Chips is 0 on virtual devices.
	Asked    int    `json:"chips_asked,omitempty"`
	Chips    int    `json:"chips,omitempty"`
	Devices  int    `json:"devices"`
	Topology string `json:"topology,omitempty"`
	Mesh     []Axis `json:"mesh,omitempty"`
	// A step is GlobalBatch sequences, in Passes of LocalBatch a device that has
	// its own.
	GlobalBatch int   `json:"global_batch"`
	LocalBatch  int   `json:"local_batch"`
	Passes      int   `json:"passes"`
	Tokens      int64 `json:"tokens_per_step"`
	Parameters  int64 `json:"parameters,omitempty"`
	// Adapted says what the mode changed of the recipe, in words.
	Adapted string `json:"adapted,omitempty"`

	Source  Source  `json:"source"`
	Status  Status  `json:"status"`
	Failure Failure `json:"failure,omitempty"`
	Error   string  `json:"error,omitempty"`
	// Rule is how an extrapolated point was computed, From the points it is from.
	Rule string   `json:"rule,omitempty"`
	From []string `json:"from,omitempty"`

	// StepSeconds is the median of a run's counted steps, which lie between Low and
	// High, or the prediction, which is expected to lie between them. P95Seconds is
	// that of a run.
	StepSeconds float64 `json:"step_seconds,omitempty"`
	LowSeconds  float64 `json:"step_seconds_low,omitempty"`
	HighSeconds float64 `json:"step_seconds_high,omitempty"`
	P95Seconds  float64 `json:"step_seconds_p95,omitempty"`
	// Tokens a second: of all devices, of one, of a chip.
	TPS       float64 `json:"tokens_per_second,omitempty"`
	TPSDevice float64 `json:"tokens_per_second_device,omitempty"`
	TPSChip   float64 `json:"tokens_per_second_chip,omitempty"`
	// MFU is in percent; nil where the peak of a device is not known.
	MFU *plan.ByConvention `json:"mfu_percent,omitempty"`
	// Efficiency is tokens a second of a device by those of the smallest point
	// with the same Values, whose ID is Baseline: 1 is ideal. 0 without a mode.
	Efficiency float64 `json:"efficiency,omitempty"`
	Baseline   string  `json:"baseline,omitempty"`

	// Memory is the most in use of a device, Limit what can be, in bytes.
	Memory int64 `json:"memory_bytes,omitempty"`
	Limit  int64 `json:"memory_limit_bytes,omitempty"`
	// Exposed is communication that no computation hides, in seconds of a step; nil
	// where it is not known.
	Exposed *float64 `json:"exposed_communication_seconds,omitempty"`
	// Breakdown is what the step's time goes to, in seconds.
	Breakdown map[string]float64 `json:"breakdown_seconds,omitempty"`
	// Bottleneck is what costs most.
	Bottleneck string `json:"limit,omitempty"`
	// Loss is that of the last step of a run.
	Loss *float64 `json:"loss,omitempty"`

	// RunDir and PlanFile are relative to the sweep's folder, as Log is: what the
	// process wrote.
	RunDir   string   `json:"run_dir,omitempty"`
	PlanFile string   `json:"plan_file,omitempty"`
	Log      string   `json:"log,omitempty"`
	Wall     float64  `json:"wall_seconds,omitempty"`
	Versions Versions `json:"versions"`
}

// Done says that there is nothing more to be done for the point.
func (p *Point) Done() bool { return p.Status == OK || p.Status == Failed || p.Status == Impossible }

// Size is what points are ordered by: chips, or devices where there are none.
func (p *Point) Size() int {
	if p.Chips > 0 {
		return p.Chips
	}
	return p.Devices
}

// Fits says whether the step fits into memory, and whether that is known.
func (p *Point) Fits() (fits, known bool) {
	switch {
	case p.Failure == OutOfMemory:
		return false, true
	case p.Status == OK && p.Source != Extrapolated:
		return true, true
	}
	return false, false
}

// MeshString returns "dp_replicate=1 × dp_shard=8".
func (p *Point) MeshString() string {
	parts := make([]string, len(p.Mesh))
	for i, a := range p.Mesh {
		parts[i] = fmt.Sprintf("%s=%d", a.Name, a.Size)
	}
	return strings.Join(parts, " × ")
}

// ValuesString returns "key=value key=value", "" if nothing is varied.
func (p *Point) ValuesString() string {
	parts := make([]string, len(p.Values))
	for i, v := range p.Values {
		parts[i] = v.String()
	}
	return strings.Join(parts, " ")
}
