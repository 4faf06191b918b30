package graph

import (
	"cmp"
	"math"
	"slices"
)

// CostClass groups ops by what limits them on an accelerator.
type CostClass uint8

// The classes of ops.
const (
	CostContraction CostClass = iota // dot: the matrix unit
	CostElementwise                  // arithmetic, comparisons, conversions: the vector unit
	CostReduction                    // reductions, cumulative sums, sorts
	CostMovement                     // broadcasts, transposes, slices, concatenations, transfers to the host
	CostIndexing                     // gather and scatter
	CostCollective                   // collectives written in the program
	CostCustomCall                   // code of the plugin, as its CustomCallSpec says
	numCostClasses
)

func (c CostClass) String() string {
	return [...]string{"contraction", "elementwise", "reduction", "movement", "indexing", "collective", "custom call"}[min(c, numCostClasses-1)]
}

// Work is arithmetic and memory traffic.
type Work struct {
	// Flops counts arithmetic operations: 2·m·n·k for a product of m×k and k×n
	// matrices, one for each element that an elementwise op computes or a reduction
	// reads, transcendental functions included.
	Flops float64
	// Bytes counts what each op reads and writes when nothing is fused: its
	// operands and results once each. Of slices, gathers and updates only the
	// elements touched count; what says something to the compiler only
	// (constraints, names, barriers), reshapes and constants count nothing. It is
	// an upper bound: compilers fuse most elementwise ops.
	Bytes float64
}

func (w *Work) add(o Work, times float64) {
	w.Flops += o.Flops * times
	w.Bytes += o.Bytes * times
}

// Totals is the work of each class of ops.
type Totals [numCostClasses]Work

// Flops is the sum over the classes.
func (t Totals) Flops() (sum float64) {
	for _, w := range t {
		sum += w.Flops
	}
	return sum
}

// Bytes is the sum over the classes.
func (t Totals) Bytes() (sum float64) {
	for _, w := range t {
		sum += w.Bytes
	}
	return sum
}

// Size is the memory of some arrays: of the whole arrays, and of the parts that
// one device holds.
type Size struct{ Global, Device float64 }

// CollectiveCost is communication over some mesh axes.
type CollectiveCost struct {
	// Kind is all_reduce, all_gather, reduce_scatter, all_to_all or
	// collective_permute.
	Kind string
	// Axes are the mesh axes along which devices talk.
	Axes []string
	// Implied tells what the shardings ask of the compiler from what the program
	// says itself. Implied ones are an estimate.
	Implied bool
	// Count is how often one device takes part.
	Count float64
	// Bytes is the larger of operand and result on one device, over all times.
	Bytes float64
	// Wire is what one device sends when n devices work in a ring: 2(n-1)/n of
	// Bytes for all_reduce, all of it for collective_permute, (n-1)/n otherwise.
	Wire float64
}

// OpCost is the cost of one op of the program.
type OpCost struct {
	Op     string // such as "dot"
	Kernel string // of a custom call, the name of its kernel if it has one
	Pos    string // file:line that wrote it; ops of the backward pass have the line of theirs in the forward pass
	Result Type   // of the first result
	Class  CostClass
	Times  float64 // executions: iterations of the loops around it
	// Split names the axes over which devices share the op's work. Over the others
	// they repeat it.
	Split          []string
	Global, Device Work
	// Collectives are the op's own, and those implied by its operands' and
	// results' shardings.
	Collectives []CollectiveCost
}

// Cost is what one execution of a program costs, counted from the program alone.
type Cost struct {
	// Devices is the number of devices of the mesh.
	Devices int
	// Global counts everything that is to be computed once, whatever the mesh: the
	// ops at their global shapes. In manual regions, where every device runs the
	// same ops on its part, it counts all devices of the manual axes. Device is
	// what one device computes under the shardings; work that is not split is
	// repeated, so that Device × Devices ≥ Global.
	Global, Device Totals
	// Inputs and Outputs are the program's arguments and results. Donated is the
	// part of the outputs that lives in memory of inputs.
	Inputs, Outputs, Donated Size
	// Collectives are summed by kind and axes, most traffic first.
	Collectives []CollectiveCost
	// Ops has an entry for each op that computes, moves or sends anything, in
	// program order.
	Ops []OpCost
	// UnknownTrips lists the lines of While loops without ExpectedTrips. Their bodies
	// are counted once.
	UnknownTrips []string
}

// Cost counts the program's arithmetic, memory traffic and communication. Loop
// bodies count as often as they run, While bodies as often as is expected, or once
// (see UnknownTrips), of the branches of Cond and Switch only the one with the most
// arithmetic per device. Recomputation in the backward pass is counted like any
// other op.
//
// How values are split between the given shardings is worked out as the compiler
// would roughly do it, and what it then has to communicate is counted as implied
// collectives: partial sums of a contraction over a split dimension are
// all-reduced, or reduce-scattered where the result is split; operands are
// gathered where an op needs them whole.
func (m *Module) Cost() Cost {
	c := newCoster(m)
	out := Cost{Devices: 1}
	if m.mesh != nil {
		out.Devices = m.mesh.Size()
	}
	once := scale{times: 1, copies: 1}
	t := c.block(m.main, once)
	for i, p := range m.inputs {
		out.Inputs.add(p.Type, c.lay.shardsOf(c.lay.get(m.main.args[i])))
	}
	for i, p := range m.outputs {
		y := m.main.yields[i]
		l := c.lay.get(y)
		if p.Spec != nil {
			cost := &OpCost{Op: "output", Result: y.typ, Class: CostMovement, Times: 1}
			asked := c.lay.asked(l, *p.Spec)
			c.reshard(cost, y.typ, l, asked, once)
			t.ops, l = append(t.ops, cost), asked
		}
		shards := c.lay.shardsOf(l)
		out.Outputs.add(p.Type, shards)
		if p.Alias >= 0 {
			out.Donated.add(p.Type, shards)
		}
	}
	out.UnknownTrips = t.unknown
	for _, op := range t.ops {
		if op.Global != (Work{}) || len(op.Collectives) > 0 {
			out.Ops = append(out.Ops, *op)
		}
	}
	byKey := map[string]int{}
	for _, op := range out.Ops {
		out.Global[op.Class].add(op.Global, 1)
		out.Device[op.Class].add(op.Device, 1)
		for _, cc := range op.Collectives {
			out.Collectives = addCollective(out.Collectives, byKey, cc)
		}
	}
	slices.SortStableFunc(out.Collectives, func(a, b CollectiveCost) int { return cmp.Compare(b.Wire, a.Wire) })
	return out
}

func (s *Size) add(t Type, shards int) {
	s.Global += float64(t.Bytes())
	s.Device += float64(t.Bytes()) / float64(shards)
}

// Top returns the n ops with the most arithmetic per device, most first; equal
// ones by memory traffic, then in program order.
func (c Cost) Top(n int) []OpCost {
	ops := slices.Clone(c.Ops)
	slices.SortStableFunc(ops, func(a, b OpCost) int {
		if s := cmp.Compare(b.Device.Flops, a.Device.Flops); s != 0 {
			return s
		}
		return cmp.Compare(b.Device.Bytes, a.Device.Bytes)
	})
	return ops[:min(max(n, 0), len(ops))]
}

// wire is the share of a collective's bytes that one of n devices sends.
func wire(kind string, n int) float64 {
	share := float64(n-1) / float64(n)
	switch kind {
	case "all_reduce":
		return 2 * share
	case "collective_permute":
		return 1
	}
	return math.Max(share, 0)
}
