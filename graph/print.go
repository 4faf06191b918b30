package graph

import (
	"fmt"
	"strconv"
	"strings"

	"titan/sharding"
)

const meshName = "mesh"

// printer writes a module as StableHLO text.
type printer struct {
	sb     strings.Builder
	m      *Module
	names  map[*Value]string
	next   int
	indent int
	locs   bool
	handle int             // channel of the last collective
	pinned map[string]bool // names of values with a sharding of their own
}

// StableHLO returns the program as MLIR text with Shardy shardings, as PJRT
// plugins compile it. Equal programs give equal text.
func (m *Module) StableHLO() string { return m.print(false) }

// StableHLOWithLocations is StableHLO with the Go line of every op, which
// compilers repeat in their messages, dumps and profiles.
func (m *Module) StableHLOWithLocations() string { return m.print(true) }

func (m *Module) print(locs bool) string {
	p := &printer{m: m, names: make(map[*Value]string, m.nextID), locs: locs, pinned: map[string]bool{}}
	n := 1
	if m.mesh != nil {
		n = m.mesh.Size()
	}
	p.sb.Grow(1 << 16)
	fmt.Fprintf(&p.sb, "module @%s attributes {mhlo.num_partitions = %d : i32, mhlo.num_replicas = 1 : i32} {\n", symbol(m.name), n)
	if m.mesh != nil {
		var axes []string
		for _, a := range m.mesh.Axes() {
			axes = append(axes, fmt.Sprintf("%q=%d", a.Name, a.Size))
		}
		fmt.Fprintf(&p.sb, "  sdy.mesh @%s = <[%s]>\n", meshName, strings.Join(axes, ", "))
	}
	p.write("  func.func public @main(")
	for i, in := range m.inputs {
		if i > 0 {
			p.write(", ")
		}
		name := "%arg" + strconv.Itoa(i)
		p.names[m.main.args[i]] = name
		p.write(name + ": ")
		p.typ(in.Type)
		alias := ""
		if in.Alias >= 0 {
			alias = fmt.Sprintf("tf.aliasing_output = %d : i32", in.Alias)
		}
		p.portAttrs(in, alias)
	}
	p.write(") -> (")
	for i, out := range m.outputs {
		if i > 0 {
			p.write(", ")
		}
		p.typ(out.Type)
		p.portAttrs(out, fmt.Sprintf("jax.result_info = %s", strconv.Quote(out.Name)))
	}
	p.write(") {\n")
	p.indent = 2
	p.block(m.main)
	p.line("return ")
	p.operands(m.main.yields)
	p.write(" : ")
	p.types(m.main.yields)
	p.write("\n  }\n}\n")
	return p.sb.String()
}

func (p *printer) portAttrs(port Port, more string) {
	var attrs []string
	if port.Spec != nil {
		attrs = append(attrs, "sdy.sharding = #sdy.sharding"+port.Spec.Shardy(meshName, port.Type.Rank()))
	}
	if port.Host {
		attrs = append(attrs, `mhlo.memory_kind = "pinned_host"`)
	}
	if more != "" {
		attrs = append(attrs, more)
	}
	if attrs != nil {
		p.write(" {" + strings.Join(attrs, ", ") + "}")
	}
}

// symbol makes s a legal module name.
func symbol(s string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, s)
	if clean == "" || clean[0] >= '0' && clean[0] <= '9' {
		clean = "_" + clean
	}
	return clean
}

func (p *printer) write(s string) { p.sb.WriteString(s) }

func (p *printer) int(i int) { writeInt(&p.sb, i) }

// line starts a new statement.
func (p *printer) line(s string) {
	for range p.indent {
		p.sb.WriteString("  ")
	}
	p.sb.WriteString(s)
}

func (p *printer) ints(xs []int) {
	p.sb.WriteByte('[')
	for i, x := range xs {
		if i > 0 {
			p.sb.WriteString(", ")
		}
		writeInt(&p.sb, x)
	}
	p.sb.WriteByte(']')
}

func (p *printer) typ(t Type) { t.writeMLIR(&p.sb) }

func (p *printer) value(v *Value) {
	n, ok := p.names[v]
	if !ok {
		n = "%undefined" // the verifier has refused such programs
	}
	p.sb.WriteString(n)
}

func (p *printer) operands(vs []*Value) {
	for i, v := range vs {
		if i > 0 {
			p.sb.WriteString(", ")
		}
		p.value(v)
	}
}

func (p *printer) types(vs []*Value) {
	for i, v := range vs {
		if i > 0 {
			p.sb.WriteString(", ")
		}
		p.typ(v.typ)
	}
}

// signature writes "(operand types) -> result type(s)".
func (p *printer) signature(op *Op) {
	p.write("(")
	p.types(op.operands)
	p.write(") -> ")
	if len(op.results) == 1 {
		p.typ(op.results[0].typ)
		return
	}
	p.write("(")
	p.types(op.results)
	p.write(")")
}

// fresh returns a new SSA name.
func (p *printer) fresh() string {
	n := "%" + strconv.Itoa(p.next)
	p.next++
	return n
}

// assign starts a statement that defines op's results.
func (p *printer) assign(op *Op) { p.define(op.results) }

// define starts a statement that defines vs.
func (p *printer) define(vs []*Value) {
	if len(vs) == 0 {
		p.line("")
		return
	}
	n := p.fresh()
	p.line(n)
	if len(vs) > 1 {
		p.write(":")
		p.int(len(vs))
		for i, v := range vs {
			p.names[v] = n + "#" + strconv.Itoa(i)
		}
	} else {
		p.names[vs[0]] = n
	}
	p.write(" = ")
}

// alias lets v be known by the name of w.
func (p *printer) alias(v, w *Value) { p.names[v] = p.names[w] }

func (p *printer) sharding(s sharding.Spec, rank int) { p.write(s.Shardy(meshName, rank)) }

func (p *printer) block(blk *Block) {
	for _, op := range blk.ops {
		before := p.sb.Len()
		defs[op.kind].print(p, op)
		if op.kind == opConstrain || op.kind == opShardMap {
			for _, r := range op.results {
				p.pinned[p.names[r]] = true
			}
		}
		if p.sb.Len() == before || len(op.blocks) > 0 && strings.HasSuffix(p.tail(1), "\n") {
			continue
		}
		p.loc(op)
		p.write("\n")
	}
}

// tail is the last n bytes written.
func (p *printer) tail(n int) string {
	s := p.sb.String()
	return s[max(0, len(s)-n):]
}

func (p *printer) loc(op *Op) {
	if !p.locs {
		return
	}
	if f, ok := op.pos.frame(); ok {
		fmt.Fprintf(&p.sb, " loc(%q(%q:%d:0))", shortFunc(f.Function)+"/"+defs[op.kind].name, f.File, f.Line)
	}
}

// shortFunc drops the path of a function's package.
func shortFunc(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// body opens a block of a generic op: its arguments and the line after.
func (p *printer) body(args []*Value, types []Type) {
	p.line("^bb0(")
	for i, a := range args {
		if i > 0 {
			p.write(", ")
		}
		p.names[a] = p.fresh()
		p.value(a)
		p.write(": ")
		p.typ(types[i])
	}
	p.write("):\n")
}

func typesOf(vs []*Value) []Type {
	ts := make([]Type, len(vs))
	for i, v := range vs {
		ts[i] = v.typ
	}
	return ts
}

// ret closes a block.
func (p *printer) ret(op string, names []string, types []Type) {
	p.line(op)
	for i, n := range names {
		if i > 0 {
			p.write(",")
		}
		p.write(" " + n)
	}
	if len(names) > 0 {
		p.write(" : ")
	}
	for i, t := range types {
		if i > 0 {
			p.write(", ")
		}
		p.typ(t)
	}
	p.write("\n")
}

func (p *printer) namesOf(vs []*Value) []string {
	out := make([]string, len(vs))
	for i, v := range vs {
		out[i] = p.names[v]
	}
	return out
}

// stmt writes a whole statement with a fresh name and returns the name.
func (p *printer) stmt(format string, args ...any) string {
	n := p.fresh()
	p.line(n + " = ")
	fmt.Fprintf(&p.sb, format, args...)
	p.write("\n")
	return n
}
