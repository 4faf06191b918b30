package hlo

import "strings"

// Collective is a collective operation as a run executes it.
type Collective struct {
	// Op holds the kind, the devices and the shapes.
	Op *Instruction
	// Start and Done frame an asynchronous collective: what is scheduled between
	// them in Start.Parent.Order() can overlap with it. A synchronous one has
	// Start == Op and no Done.
	Start, Done *Instruction
	// Times is how often one run executes it, as in [Module.Walk].
	Times int64
}

// Kind returns the kind of the collective, such as "all-gather". An all-reduce
// that is fused with taking the device's part of the sum is a reduce-scatter: the
// compiler for TPU writes those so that do not divide evenly.
func (c Collective) Kind() string {
	if c.Start != c.Op && c.Start.Opcode == "fusion" && c.Op.Opcode == "all-reduce" && takesPart(c.Op.Parent) {
		return "reduce-scatter"
	}
	return c.Op.Collective()
}

func takesPart(c *Computation) bool {
	for _, i := range c.Instructions {
		if i.Opcode == "dynamic-slice" {
			return true
		}
	}
	return false
}

// Custom calls that frame a collective which the TPU compiler has fused, step by
// step, with the computation it overlaps. The collective then stands in each of
// the fusions.
const (
	asyncCollectiveStart = "AsyncCollectiveStart"
	asyncCollectiveDone  = "AsyncCollectiveDone"
)

// Collectives returns the collectives in the order of execution, each once,
// however its asynchronous form is written.
func (m *Module) Collectives() []Collective {
	var out []Collective
	inside := map[*Instruction]bool{} // wrapped by an async-start seen before
	m.Walk(func(i *Instruction, times int64) {
		switch {
		case i.Opcode == "async-start":
			if op := wrapped(i.Called, map[*Computation]bool{}); op != nil {
				inside[op] = true
				out = append(out, Collective{op, i, follow(i, "async-update", "async-done"), times})
			}
		case i.Opcode == "fusion":
			for _, op := range fusedStarts(i) {
				out = append(out, Collective{op, i, fusedDone(i, op), times})
			}
			if op := fusedWhole(i); op != nil {
				out = append(out, Collective{op, i, nil, times})
			}
		case i.Collective() == "" || inside[i]:
		case strings.HasSuffix(i.Opcode, "-start"):
			out = append(out, Collective{i, i, follow(i, "", i.Collective()+"-done"), times})
		default:
			out = append(out, Collective{i, i, nil, times})
		}
	})
	return out
}

// wrapped finds the collective in the computations of an async-start.
func wrapped(cs []*Computation, seen map[*Computation]bool) *Instruction {
	for _, c := range cs {
		if seen[c] {
			continue
		}
		seen[c] = true
		for _, i := range c.Instructions {
			if i.Collective() != "" {
				return i
			}
			if i.Opcode == "custom-call" || i.Opcode == "call" {
				if op := wrapped(i.Called, seen); op != nil {
					return op
				}
			}
		}
	}
	return nil
}

// follow goes from a start over updates to its done.
func follow(start *Instruction, update, done string) *Instruction {
	at := start
	for _, i := range start.Parent.Order() {
		if len(i.Operands) == 0 || i.Operands[0] != at {
			continue
		}
		switch i.Opcode {
		case done:
			return i
		case update:
			at = i
		}
	}
	return nil
}

// fusedStarts returns the collectives that a fusion begins.
func fusedStarts(f *Instruction) []*Instruction {
	var ops []*Instruction
	for _, i := range fusedCalls(f, asyncCollectiveStart) {
		for _, o := range i.Operands {
			if o.Collective() != "" {
				ops = append(ops, o)
				break
			}
		}
	}
	return ops
}

// fusedWhole returns the collective that a fusion does from beginning to end,
// instead of a step of one that another fusion begins.
func fusedWhole(f *Instruction) *Instruction {
	if f.FusionKind != "kCustom" {
		return nil
	}
	var op *Instruction
	for _, c := range f.Called {
		for _, i := range c.Instructions {
			if i.Opcode == "custom-call" && strings.HasPrefix(i.CustomCallTarget, "AsyncCollective") {
				return nil
			}
			if i.Collective() != "" {
				op = i
			}
		}
	}
	if op == nil {
		return nil
	}
	for _, i := range f.Parent.Instructions {
		for _, start := range fusedStarts(i) {
			if start.ChannelID == op.ChannelID && start.Opcode == op.Opcode {
				return nil
			}
		}
	}
	return op
}

// fusedDone finds the fusion that ends the collective op begun by start: the
// next one that ends a collective on the same channel.
func fusedDone(start, op *Instruction) *Instruction {
	begun := false
	for _, i := range start.Parent.Order() {
		if i == start {
			begun = true
		} else if begun {
			for _, done := range fusedCalls(i, asyncCollectiveDone) {
				for _, o := range done.Operands {
					if o.Opcode == op.Opcode && o.ChannelID == op.ChannelID {
						return i
					}
				}
			}
		}
	}
	return nil
}

func fusedCalls(f *Instruction, target string) []*Instruction {
	var calls []*Instruction
	if f.Opcode == "custom-call" && f.CustomCallTarget == target {
		return []*Instruction{f}
	}
	if f.Opcode != "fusion" {
		return nil
	}
	for _, c := range f.Called {
		for _, i := range c.Instructions {
			if i.Opcode == "custom-call" && i.CustomCallTarget == target {
				calls = append(calls, i)
			}
		}
	}
	return calls
}
