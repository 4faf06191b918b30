package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"titan/mesh"
	"titan/pjrt/hlo"
	"titan/pjrt/llo"
)

// Prediction is how fast a step is expected to be.
type Prediction struct {
	Basis Basis `json:"basis"`
	// Seconds is the time of a step, with the Low and High between which it is
	// expected.
	Seconds float64 `json:"step_seconds"`
	Low     float64 `json:"step_seconds_low"`
	High    float64 `json:"step_seconds_high"`
	// Parts is what the time goes to, largest first.
	Parts     []Share    `json:"parts"`
	Transfers []Transfer `json:"collectives"`
	// Flops is the arithmetic of contractions that one device does in a step, with
	// what is computed again.
	Flops float64 `json:"contraction_flops"`
	// MemoryBytes go to and from the device's memory in a step.
	MemoryBytes float64 `json:"memory_bytes"`
	// Cycles is what the compiler estimates for all instructions that a device executes
	// in a step; it says nothing of tile kernels, which by their prices take
	// KernelCycles, nor of collectives.
	Cycles       float64 `json:"estimated_cycles"`
	KernelCycles float64 `json:"kernel_cycles"`
	// Estimated is the part of the time that the compiler gave no cycles for, kernels
	// without; Kernels that of tile kernels.
	Estimated float64 `json:"estimated_seconds"`
	Kernels   float64 `json:"kernel_seconds"`
	// TileKernels are the kernels, those that take longest first; Unpriced says of
	// which the code is not known, and why.
	TileKernels []KernelCalls `json:"tile_kernels,omitempty"`
	Unpriced    []string      `json:"unpriced_kernels,omitempty"`
	// HostBytes go between a device and its host's memory.
	HostBytes float64 `json:"host_bytes"`
	// GuessedLoops are loops whose number of turns is not in the program.
	GuessedLoops []string `json:"guessed_loops,omitempty"`
	// Timeline is what a device does over the step, in outline.
	Timeline *Timeline `json:"timeline,omitempty"`
}

// Share is what a part of the step takes.
type Share struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Flops is the arithmetic of contractions in it.
	Flops float64 `json:"contraction_flops,omitempty"`
	part  Part
}

// PredictOptions say what a program runs on.
type PredictOptions struct {
	// Kind is the kind of the chips, as in topologies.
	Kind string
	Mesh *mesh.Mesh // with placed devices
	// Quick says that the program was compiled with little effort.
	Quick bool
	// Bubble is the share of a step in which a stage of a pipeline has nothing to do
	// but computes nevertheless.
	Bubble float64
	// Experts says that the model has experts, which are harder to predict.
	Experts bool
	// Code is the scheduled code of tile kernels, by their calls; those that are not
	// in it are priced by rooflines.
	Code map[*hlo.Instruction]llo.Grid
}

// Predict walks a scheduled program and adds up what a step takes: what the
// compiler estimates for each fusion, or a roofline where it does not say; loops as
// often as they turn; collectives by the links they use, as far as nothing is
// computed meanwhile.
func Predict(m *hlo.Module, o PredictOptions) (*Prediction, error) {
	mc, err := newMachine(o.Kind)
	if err != nil {
		return nil, err
	}
	basis := Cycles
	if o.Quick {
		basis = Roofline
	}
	w := newWalker(m, mc, basis, newGroups(o.Mesh).of)
	w.code, w.mesh = o.Code, o.Mesh
	if m.Entry != nil {
		w.run(m.Entry, 1, 1)
	}
	t := w.out
	if o.Bubble > 0 {
		for p := range t.parts {
			waste := t.parts[p] * o.Bubble
			t.parts[p] -= waste
			t.parts[Bubble] += waste
		}
	}
	p := &Prediction{Basis: basis, Seconds: t.seconds(), Flops: sum(t.flops[:]), MemoryBytes: t.memory, Estimated: t.estimated, Kernels: t.kernels, Cycles: t.cycles, KernelCycles: t.kernels * mc.pace(), HostBytes: t.hostBytes, GuessedLoops: t.loops}
	for k, s := range t.parts {
		if s > 0 {
			p.Parts = append(p.Parts, Share{Part(k).String(), s, t.flops[k], Part(k)})
		}
	}
	slices.SortStableFunc(p.Parts, func(a, b Share) int { return cmp.Compare(b.Seconds, a.Seconds) })
	for _, key := range t.order {
		p.Transfers = append(p.Transfers, *t.transfers[key])
	}
	slices.SortStableFunc(p.Transfers, func(a, b Transfer) int { return cmp.Compare(b.Wire, a.Wire) })
	p.TileKernels, p.Unpriced = t.kernelCalls(), slices.Sorted(maps.Keys(t.unpriced))
	p.spread(t, o)
	if p.Timeline = w.line; p.Timeline != nil {
		p.Timeline.outline(0)
	}
	return p, nil
}

// Relative errors of the model of time, from the steps with published times that
// it was compared with (docs/plan.md).
const (
	errorCycles   = 0.10 // dense models, by cycles
	errorRoofline = 0.15 // dense models, by rooflines
	errorExperts  = 0.30
	errorKernels  = 0.30 // of the time of tile kernels by rooflines
	errorCode     = 0.20 // of the time of tile kernels by their code
	errorHost     = 0.50 // of the time waiting for memory
	errorLoops    = 0.25 // with loops of unknown length
)

// spread sets the bounds: independent errors, added as squares.
func (p *Prediction) spread(t *timing, o PredictOptions) {
	base := errorCycles
	switch {
	case o.Experts:
		base = errorExperts
	case o.Quick:
		base = errorRoofline
	}
	e := math.Hypot(base*p.Seconds, errorKernels*(t.kernels-t.byCode))
	e = math.Hypot(e, errorCode*t.byCode)
	e = math.Hypot(e, errorHost*t.parts[Transfers])
	if len(t.loops) > 0 {
		e = math.Hypot(e, errorLoops*t.parts[Attention])
	}
	p.Low, p.High = p.Seconds-min(e, p.Seconds/2), p.Seconds+e
}

// share returns what a part takes.
func (p *Prediction) share(part Part) Share {
	for _, s := range p.Parts {
		if s.part == part {
			return s
		}
	}
	return Share{part: part}
}
