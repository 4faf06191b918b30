package hlo

import (
	"fmt"
	"strconv"
	"strings"
)

// Text returns a readable dump in XLA's notation, in the order of execution.
// Layouts, arrays of constants and compiler notes are left out.
func (m *Module) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HloModule %s", m.Name)
	if m.Replicas*m.Partitions > 0 {
		fmt.Fprintf(&b, ", replicas=%d, partitions=%d", m.Replicas, m.Partitions)
	}
	for _, a := range m.Aliases {
		fmt.Fprintf(&b, ", alias={result {%s} = parameter %d {%s}}", joinInts(a.ResultIndex), a.Parameter, joinInts(a.ParameterIndex))
	}
	for _, d := range m.Donors {
		fmt.Fprintf(&b, ", donor={parameter %d {%s}}", d.Parameter, joinInts(d.ParameterIndex))
	}
	b.WriteByte('\n')
	for _, c := range m.Computations {
		b.WriteByte('\n')
		if c == m.Entry {
			b.WriteString("ENTRY ")
		}
		fmt.Fprintf(&b, "%%%s {\n", c.Name)
		for _, i := range c.Order() {
			b.WriteString("  ")
			if i == c.Root {
				b.WriteString("ROOT ")
			}
			b.WriteString(i.String())
			b.WriteByte('\n')
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// String returns the instruction's line of [Module.Text].
func (i *Instruction) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%%%s = %s %s(", i.Name, i.Shape.Short(), i.Opcode)
	if i.Opcode == "parameter" {
		b.WriteString(strconv.Itoa(i.ParameterNumber))
	}
	if i.hasConstant {
		b.WriteString(strconv.FormatInt(i.constant, 10))
	}
	for k, o := range i.Operands {
		if k > 0 {
			b.WriteString(", ")
		}
		b.WriteString("%" + o.Name)
	}
	b.WriteByte(')')
	attr := func(name, value string) { b.WriteString(", " + name + "=" + value) }
	if i.Opcode == "get-tuple-element" {
		attr("index", strconv.Itoa(i.TupleIndex))
	}
	if i.FusionKind != "" {
		attr("kind", i.FusionKind)
	}
	if i.CustomCallTarget != "" {
		attr("custom_call_target", strconv.Quote(i.CustomCallTarget))
	}
	if i.ChannelID != 0 {
		attr("channel_id", strconv.FormatInt(i.ChannelID, 10))
	}
	if len(i.ReplicaGroups) > 0 {
		attr("replica_groups", formatGroups(i.ReplicaGroups))
	}
	if len(i.SourceTargetPairs) > 0 {
		groups := make([][]int, len(i.SourceTargetPairs))
		for k, p := range i.SourceTargetPairs {
			groups[k] = p[:]
		}
		attr("source_target_pairs", formatGroups(groups))
	}
	if len(i.Dims) > 0 {
		attr("dimensions", "{"+joinInts(i.Dims)+"}")
	}
	if d := i.Dot; d != nil {
		for _, x := range []struct {
			name string
			dims []int
		}{{"lhs_batch", d.LHSBatch}, {"lhs_contracting", d.LHSContract}, {"rhs_batch", d.RHSBatch}, {"rhs_contracting", d.RHSContract}} {
			if len(x.dims) > 0 {
				attr(x.name+"_dims", "{"+joinInts(x.dims)+"}")
			}
		}
	}
	for k, c := range i.Called {
		attr(i.calledAs(k), "%"+c.Name)
	}
	if n, ok := i.TripCount(); ok {
		attr("trip_count", strconv.FormatInt(n, 10))
	}
	if i.Sharding != nil {
		attr("sharding", i.Sharding.String())
	}
	if i.Metadata.OpName != "" {
		attr("op_name", strconv.Quote(i.Metadata.OpName))
	}
	if i.Metadata.SourceFile != "" {
		attr("source", fmt.Sprintf("%s:%d", i.Metadata.SourceFile, i.Metadata.SourceLine))
	}
	return b.String()
}

func (i *Instruction) calledAs(k int) string {
	if i.Opcode == "while" {
		return []string{"body", "condition"}[min(k, 1)]
	}
	return "calls"
}
