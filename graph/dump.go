package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// String writes the program one line an op, for people. It is Dump without the
// lines of Go, so that it stays the same when code moves.
func (m *Module) String() string { return m.dump(false) }

// Dump writes the program one line an op, for people: results with their types
// (and, in manual regions, the axes over which they differ between devices), the
// op, its operands and attributes, and the line of Go that wrote it. Values are
// numbered in order of appearance; regions are indented under their op, each
// argument with the operand it stands for.
//
//	step on dp=2 × tp=4 (8 devices)
//	  input %0 f32[8,16] "x" P("dp")
//	  %1 f32[8,4] = dot %0, %2 contract=[1]x[0]  // model/mlp.go:42
//	  output %1 f32[8,4] "y"
func (m *Module) Dump() string { return m.dump(true) }

func (m *Module) dump(lines bool) string {
	d := dumper{m: m, lines: lines, names: make(map[*Value]int, m.nextID)}
	d.sb.WriteString(m.name)
	if m.mesh != nil {
		fmt.Fprintf(&d.sb, " on %v", m.mesh)
	}
	d.sb.WriteByte('\n')
	d.depth = 1
	for i, p := range m.inputs {
		d.line("input %s %s", d.def(m.main.args[i]), d.port(p, "donated to output"))
	}
	d.ops(m.main)
	for i, p := range m.outputs {
		d.line("output %s %v %s", d.use(m.main.yields[i]), m.main.yields[i].typ, d.port(p, "in the memory of input"))
	}
	return d.sb.String()
}

type dumper struct {
	sb    strings.Builder
	m     *Module
	lines bool
	depth int
	names map[*Value]int
}

func (d *dumper) line(format string, args ...any) {
	for range d.depth {
		d.sb.WriteString("  ")
	}
	fmt.Fprintf(&d.sb, format, args...)
	d.sb.WriteByte('\n')
}

func (d *dumper) port(p Port, alias string) string {
	s := strconv.Quote(p.Name)
	if p.Spec != nil {
		s += " " + p.Spec.String()
	}
	if p.Host {
		s += " on host"
	}
	if p.Alias >= 0 {
		s += " " + alias + " " + strconv.Itoa(p.Alias)
	}
	return s
}

// def numbers v and gives it with its type.
func (d *dumper) def(v *Value) string {
	if v == nil {
		return "%nil"
	}
	if _, ok := d.names[v]; !ok {
		d.names[v] = len(d.names)
	}
	s := d.use(v) + " " + v.typ.String()
	if v.vary != 0 {
		s += "{" + strings.Join(d.m.axisNames(v.vary), ",") + "}"
	}
	return s
}

// use names v; a broken program may use what it does not define.
func (d *dumper) use(v *Value) string {
	if n, ok := d.names[v]; ok && v != nil {
		return "%" + strconv.Itoa(n)
	}
	return "%undefined"
}

func (d *dumper) uses(vs []*Value) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = d.use(v)
	}
	return strings.Join(names, ", ")
}

func (d *dumper) ops(blk *Block) {
	for _, op := range blk.ops {
		d.op(op)
	}
}

func (d *dumper) op(op *Op) {
	operands := op.operands
	if len(op.blocks) > 0 {
		operands = operands[:min(len(operands), regionStart(op))] // the others stand at the arguments
	}
	parts := []string{op.name()}
	if len(operands) > 0 {
		parts = append(parts, d.uses(operands))
	}
	if at := d.attr(op); at != "" {
		parts = append(parts, at)
	}
	results := make([]string, len(op.results))
	for i, r := range op.results {
		results[i] = d.def(r)
	}
	s := strings.Join(results, ", ") + " = " + strings.Join(parts, " ")
	if pos := op.pos.String(); d.lines && pos != "" {
		s += "  // " + pos
	}
	d.line("%s", s)
	for k, blk := range op.blocks {
		d.depth++
		d.region(op, k, blk)
		d.depth--
	}
}

// regionStart is the operand that the first argument of op's regions stands for.
func regionStart(op *Op) int {
	if op.kind == opCond {
		return 1
	}
	return 0
}

// region writes a block as "name(arguments):", its ops, and what it yields.
func (d *dumper) region(op *Op, k int, blk *Block) {
	if blk == nil {
		d.line("no region")
		return
	}
	args := make([]string, len(blk.args))
	for i, a := range blk.args {
		args[i] = d.def(a)
		if i+regionStart(op) < len(op.operands) {
			args[i] += " = " + d.argOf(op, i)
		}
	}
	d.line("%s(%s):", regionName(op, k), strings.Join(args, ", "))
	d.depth++
	d.ops(blk)
	yields := make([]string, len(blk.yields))
	for i, y := range blk.yields {
		yields[i] = d.use(y)
		if at, ok := op.attr.(*shardMapAttr); ok && i < len(at.out) {
			yields[i] += " " + at.out[i].String()
		}
	}
	d.line("yield %s", strings.Join(yields, ", "))
	d.depth--
}

func regionName(op *Op, k int) string {
	switch {
	case op.kind == opCond:
		return "branch " + strconv.Itoa(k)
	case op.kind == opWhile && k == 0:
		return "while"
	}
	return "body"
}

// argOf says what argument i of op's regions stands for.
func (d *dumper) argOf(op *Op, i int) string {
	v := d.use(op.operands[i+regionStart(op)])
	switch at := op.attr.(type) {
	case *scanAttr:
		switch {
		case i < at.consts:
			return v
		case i < at.consts+at.carries:
			return "carry " + v
		}
		return "row " + v
	case whileAttr:
		if i < at.carries {
			return "carry " + v
		}
	case *shardMapAttr:
		if i < len(at.in) {
			return v + " " + at.in[i].String()
		}
	}
	return v
}
