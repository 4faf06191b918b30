// Package hlo reads compiled programs: XLA's HloModuleProto, as plugins return
// it from [titan/pjrt.Executable.OptimizedProgram].
//
//	m, err := hlo.Parse(blob)
//	for _, c := range m.Collectives() {
//		fmt.Println(c.Kind(), c.Op.Shape, c.Op.ReplicaGroups, c.Times)
//	}
//
// It reads what planning and tests need: instructions with their shapes,
// operands, collectives, called computations, sources and compiler notes, the
// schedule, and the entry's signature with aliases. It is a reader of wire
// bytes; the message definitions of XLA are not linked in.
package hlo

import "iter"

// Module is a compiled program.
type Module struct {
	Name string
	// Parameters and Result are the entry's signature on one device.
	Parameters []Shape
	Result     Shape
	// Aliases lists parameters whose memory becomes a result; Donors those that
	// the program may otherwise use up.
	Aliases []Alias
	Donors  []Donor
	// Replicas and Partitions are 0 if the blob does not say.
	Replicas, Partitions int
	// Scheduled says that Computation.Schedule is set.
	Scheduled    bool
	Computations []*Computation // callees before callers
	Entry        *Computation
	// ParameterShardings and ResultSharding are the shardings of the global
	// arrays before partitioning, if known.
	ParameterShardings []Sharding
	ResultSharding     *Sharding
}

// Alias says that a result takes over the memory of a parameter. The indices
// are paths into tuples, empty for arrays.
type Alias struct {
	ResultIndex    []int
	Parameter      int
	ParameterIndex []int
	Must           bool // else the runtime may refuse and copy
}

// Donor is a parameter, or a part of one, that the program may use up.
type Donor struct {
	Parameter      int
	ParameterIndex []int
}

// Computation is a function of the module.
type Computation struct {
	ID           int64
	Name         string
	Instructions []*Instruction // operands before users
	Root         *Instruction
	// Schedule is the order of execution, if the module is scheduled and the
	// computation is not fused.
	Schedule []*Instruction
	IsFusion bool
	Parent   *Module
}

// Parameters returns the parameter instructions in order.
func (c *Computation) Parameters() []*Instruction {
	var ps []*Instruction
	for _, i := range c.Instructions {
		if i.Opcode != "parameter" {
			continue
		}
		for len(ps) <= i.ParameterNumber {
			ps = append(ps, nil)
		}
		ps[i.ParameterNumber] = i
	}
	return ps
}

// Order returns the schedule, or the instructions if there is none.
func (c *Computation) Order() []*Instruction {
	if c.Schedule != nil {
		return c.Schedule
	}
	return c.Instructions
}

// All iterates over the instructions of all computations.
func (m *Module) All() iter.Seq[*Instruction] {
	return func(yield func(*Instruction) bool) {
		for _, c := range m.Computations {
			for _, i := range c.Instructions {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// Walk calls f for the instructions in the order of execution, starting at the
// entry and going into loops, branches, calls, asynchronous computations and
// custom calls that wrap one, but not into fusions and reducers. times is how often one run executes the
// instruction: the product of the trip counts of the loops around it, loops of
// unknown count taken once. The instructions of a called computation follow the
// calling one.
func (m *Module) Walk(f func(i *Instruction, times int64)) { m.walk(f, maxVisits) }

// maxVisits bounds a walk through malformed modules, in which few computations
// can call each other astronomically often.
const maxVisits = 1 << 26

func (m *Module) walk(f func(i *Instruction, times int64), visits int) {
	var in func(*Computation, int64)
	in = func(c *Computation, times int64) {
		for _, i := range c.Order() {
			if visits--; visits < 0 {
				return
			}
			f(i, times)
			n := times
			switch i.Opcode {
			case "while":
				if trips, ok := i.TripCount(); ok {
					n *= trips
				}
			case "conditional", "call", "async-start", "custom-call":
			default:
				continue
			}
			for _, callee := range i.Called {
				in(callee, n)
			}
		}
	}
	if m.Entry != nil {
		in(m.Entry, 1)
	}
}

// Donated reports by parameter whether a run uses up the argument.
func (m *Module) Donated() []bool {
	d := make([]bool, len(m.Parameters))
	mark := func(p int) {
		if p >= 0 && p < len(d) {
			d[p] = true
		}
	}
	for _, a := range m.Aliases {
		mark(a.Parameter)
	}
	for _, a := range m.Donors {
		mark(a.Parameter)
	}
	return d
}
