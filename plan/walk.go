package plan

import (
	"math"
	"path"
	"strings"

	"titan/mesh"
	"titan/pjrt/hlo"
	"titan/pjrt/llo"
)

// Basis is what the time of instructions is taken from.
type Basis string

// The bases.
const (
	// Cycles are the compiler's own estimates for the code it made.
	Cycles Basis = "cycles"
	// Roofline goes by arithmetic and memory traffic, for programs compiled with
	// little effort, whose code is not what a run would use.
	Roofline Basis = "roofline"
)

// Transfer is the collectives of one kind over the same axes.
type Transfer struct {
	Kind  string   `json:"kind"`
	Axes  []string `json:"axes"` // nil: the program does not say which devices
	Count int64    `json:"count"`
	// Bytes is the larger of operand and result on a device, Wire what a device
	// sends, in a step.
	Bytes float64 `json:"bytes"`
	Wire  float64 `json:"wire_bytes"`
	// Seconds is how long the links are busy with them in a step, Exposed how long
	// devices wait for them.
	Seconds float64 `json:"seconds"`
	Exposed float64 `json:"exposed_seconds"`
	// Network is the slowest that the devices meet over.
	Network string `json:"network"`
}

// walker goes through a scheduled program and adds up its time.
type walker struct {
	machine machine
	basis   Basis
	routes  func(op *hlo.Instruction) (axes []string, r mesh.Route)
	mesh    *mesh.Mesh // with placed devices; nil: collectives take the best way there is

	begins, whole, ends map[*hlo.Instruction][]hlo.Collective
	code                map[*hlo.Instruction]llo.Grid
	traffic             *traffic
	out                 *timing
	line                *Timeline // of the block that was walked last
}

// timing is the time of a step, by what it goes to.
type timing struct {
	parts     [numParts]float64
	transfers map[string]*Transfer
	order     []string
	flops     [numParts]float64 // arithmetic of contractions
	kernels   float64           // seconds of tile kernels
	byCode    float64           // of these, of those priced by their code
	calls     map[string]*KernelCalls
	unpriced  map[string]bool // kernels that have code and no price by it, and why
	estimated float64         // seconds of instructions without cycles
	cycles    float64         // that the compiler estimates
	loops     []string
	hostBytes float64
	memory    float64 // bytes to and from the device's memory
}

func newTiming() *timing {
	return &timing{transfers: map[string]*Transfer{}, calls: map[string]*KernelCalls{}, unpriced: map[string]bool{}}
}

func (t timing) seconds() float64 { return sum(t.parts[:]) }

func sum(xs []float64) float64 {
	s := 0.0
	for _, x := range xs {
		s += x
	}
	return s
}

func newWalker(m *hlo.Module, mc machine, basis Basis, routes func(*hlo.Instruction) ([]string, mesh.Route)) *walker {
	w := &walker{machine: mc, basis: basis, routes: routes, traffic: newTraffic(), out: newTiming(),
		begins: map[*hlo.Instruction][]hlo.Collective{}, whole: map[*hlo.Instruction][]hlo.Collective{}, ends: map[*hlo.Instruction][]hlo.Collective{}}
	for _, c := range m.Collectives() {
		if c.Done == nil {
			w.whole[c.Start] = append(w.whole[c.Start], c)
			continue
		}
		w.begins[c.Start] = append(w.begins[c.Start], c)
		w.ends[c.Done] = append(w.ends[c.Done], c)
	}
	return w
}

// lane is a unit that works beside the compute unit, one thing after another.
type lane int

const (
	laneLinks lane = iota
	laneMemory
	laneHost
	laneSparse
	numLanes
)

// pending is what a lane will have done at some time.
type pending struct {
	at   float64
	lane lane
	note *Transfer
}

// block is one execution of a computation under way.
type block struct {
	now   float64
	lanes [numLanes]float64
	open  map[*hlo.Instruction][]pending // by what waits for it
	times float64
	trips int64 // of the loop it is the body of
	line  *Timeline
}

// begin puts work on a lane and returns when it is done.
func (b *block) begin(l lane, seconds float64) float64 {
	b.lanes[l] = max(b.now, b.lanes[l]) + seconds
	return b.lanes[l]
}

// run returns the time of one execution of c, which happens times times in a
// step; what it goes to is added to w.out.
func (w *walker) run(c *hlo.Computation, times float64, trips int64) float64 {
	b := &block{open: map[*hlo.Instruction][]pending{}, times: times, trips: trips, line: &Timeline{}}
	for _, i := range c.Order() {
		w.step(b, i)
	}
	for _, waits := range b.open { // not waited for here
		w.wait(b, waits)
	}
	w.line, b.line.Seconds = b.line, b.now
	return b.now
}

// spend lets the compute unit work.
func (w *walker) spend(b *block, p Part, seconds float64) {
	b.now += seconds
	b.note(p, seconds)
	w.out.parts[p] += seconds * b.times
}

func (w *walker) wait(b *block, waits []pending) {
	for _, p := range waits {
		late := p.at - b.now
		if late <= 0 {
			continue
		}
		part := Transfers
		if p.lane == laneLinks {
			part = Communication
		}
		w.spend(b, part, late)
		if p.note != nil {
			p.note.Exposed += late * b.times
		}
	}
}

func (w *walker) step(b *block, i *hlo.Instruction) {
	if waits, ok := b.open[i]; ok {
		delete(b.open, i)
		w.wait(b, waits)
	}
	switch i.Opcode {
	case "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id", "opt-barrier", "domain", "add-dependency":
		return
	case "while":
		w.loop(b, i)
		return
	case "conditional":
		w.branches(b, i)
		return
	case "call":
		for _, c := range i.Called {
			d := w.run(c, b.times, b.trips)
			b.called(w.line)
			b.now += d
		}
		return
	}
	if cs := w.begins[i]; len(cs) > 0 {
		if i.Opcode == "fusion" {
			w.compute(b, i)
		}
		for _, c := range cs {
			seconds, note := w.collective(c, b.times)
			done := b.begin(laneLinks, seconds)
			b.link(c.Kind(), done-seconds, seconds)
			b.open[c.Done] = append(b.open[c.Done], pending{done, laneLinks, note})
		}
		return
	}
	if cs := w.whole[i]; len(cs) > 0 {
		w.synchronous(b, i, cs)
		return
	}
	switch {
	case strings.HasSuffix(i.Opcode, "-start"):
		w.asynchronous(b, i)
	case strings.HasSuffix(i.Opcode, "-done"), strings.HasSuffix(i.Opcode, "-update"), i.Opcode == "send", i.Opcode == "recv":
	default:
		w.compute(b, i)
	}
}

// synchronous is a collective that the compute unit waits for; what is fused with
// it works meanwhile.
func (w *walker) synchronous(b *block, i *hlo.Instruction, cs []hlo.Collective) {
	var own float64
	if i.Collective() == "" {
		own = w.time(i, b)
		w.spend(b, partOf(i), own)
	}
	for _, c := range cs {
		seconds, note := w.collective(c, b.times)
		start := max(b.now-own, b.lanes[laneLinks])
		b.lanes[laneLinks] = start + seconds
		b.link(c.Kind(), start, seconds)
		w.wait(b, []pending{{start + seconds, laneLinks, note}})
	}
}

func (w *walker) branches(b *block, i *hlo.Instruction) {
	// Of the branches the longest is taken.
	var longest *hlo.Computation
	most, real := -1.0, w.out
	for _, c := range i.Called {
		w.out = newTiming()
		if d := w.run(c, b.times, b.trips); d > most {
			longest, most = c, d
		}
	}
	if w.out = real; longest != nil {
		d := w.run(longest, b.times, b.trips)
		b.called(w.line)
		b.now += d
	}
}

// loop is a while loop: its turns one after another.
func (w *walker) loop(b *block, i *hlo.Instruction) {
	turns, known := i.TripCount()
	n := float64(turns)
	switch {
	case known:
	case path.Base(i.Metadata.SourceFile) == "moe_exchange.go":
		n = 0 // further exchanges of rows, of which there are none if experts are balanced
	default:
		n = 1
		// The loops of unknown length that titan writes are those of attention: over
		// as many pieces as the loop around it has turned, half of all on the mean.
		if b.trips > 1 {
			n = float64(b.trips+1) / 2
		}
		w.out.loops = append(w.out.loops, i.Name)
	}
	if body := i.Body(); body != nil && n > 0 {
		d := n * w.run(body, b.times*n, max(1, int64(math.Round(n))))
		b.looped(w.line, n)
		b.now += d
	}
}

// compute is an instruction of the compute unit.
func (w *walker) compute(b *block, i *hlo.Instruction) {
	if d := w.time(i, b); d > 0 {
		w.spend(b, partOf(i), d)
	}
}
