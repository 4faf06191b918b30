package graph

import (
	"fmt"
	"strings"
)

// printScan writes the loop as a while over a counter, the carries, the
// buffers that collect ys, and everything the body reads.
func printScan(p *printer, op *Op) {
	at, body := op.attr.(*scanAttr), op.blocks[0]
	nc, nk := at.consts, at.carries
	ny := len(op.results) - nk
	if at.n == 0 { // a row could not be read even in a loop that never runs
		for i, r := range op.results {
			if i < nk {
				p.alias(r, op.operands[nc+i])
			} else {
				p.names[r] = p.stmt("stablehlo.constant dense<> : %s", r.typ.mlir())
			}
		}
		return
	}
	counter := T(S32)
	types := []Type{counter}
	names := []string{p.stmt("stablehlo.constant dense<0> : tensor<i32>")}
	for i, r := range op.results {
		types = append(types, r.typ)
		if i < nk {
			names = append(names, p.names[op.operands[nc+i]])
			continue
		}
		zero := "0"
		switch {
		case r.typ.DType.IsFloat():
			zero = "0.0"
		case r.typ.DType == Bool:
			zero = "false"
		}
		if r.typ.Elements() == 0 {
			zero = ""
		}
		names = append(names, p.stmt("stablehlo.constant dense<%s> : %s", zero, r.typ.mlir()))
	}
	loopVars := len(names)
	for i, o := range op.operands {
		if i < nc || i >= nc+nk {
			types = append(types, o.typ)
			names = append(names, p.names[o])
		}
	}
	result := p.fresh()
	p.line(fmt.Sprintf("%s:%d = \"stablehlo.while\"(%s) ({\n", result, len(names), strings.Join(names, ", ")))
	p.indent++

	args := p.freshArgs(types)
	n := p.stmt("stablehlo.constant dense<%d> : tensor<i32>", at.n)
	more := p.stmt("stablehlo.compare LT, %s, %s, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>", args[0], n)
	p.ret("stablehlo.return", []string{more}, []Type{T(Bool)})
	p.indent--
	p.line("}, {\n")
	p.indent++

	args = p.freshArgs(types)
	i := args[0]
	if at.reverse {
		last := p.stmt("stablehlo.constant dense<%d> : tensor<i32>", at.n-1)
		i = p.stmt("stablehlo.subtract %s, %s : tensor<i32>", last, args[0])
	}
	zero := p.stmt("stablehlo.constant dense<0> : tensor<i32>")
	next, last := i, i // the rows of the next iteration and of the one before
	if at.ahead > 0 || at.behind > 0 {
		one := p.stmt("stablehlo.constant dense<1> : tensor<i32>")
		more, less := "add", "subtract"
		if at.reverse {
			more, less = less, more
		}
		next = p.stmt("stablehlo.%s %s, %s : tensor<i32>", more, i, one)
		last = p.stmt("stablehlo.%s %s, %s : tensor<i32>", less, i, one)
	}
	read := args[loopVars:]
	for j, a := range body.args {
		switch {
		case j < nc:
			p.names[a] = read[j]
		case j < nc+nk:
			p.names[a] = args[1+j-nc]
		default:
			at0 := i
			if j >= len(body.args)-at.ahead {
				at0 = next
			}
			p.names[a] = p.readRow(read[j-nk], at0, zero, op.operands[j].typ)
		}
	}
	p.block(body)
	out := []string{p.increment(args[0])}
	out = append(out, p.namesOf(body.yields[:nk])...)
	for j := range ny {
		at0 := i
		if j >= ny-at.behind {
			at0 = last
		}
		out = append(out, p.writeRow(args[1+nk+j], p.names[body.yields[nk+j]], at0, zero, op.results[nk+j].typ))
	}
	out = append(out, read...)
	p.ret("stablehlo.return", out, types)
	p.indent--
	p.line("}) : (")
	p.typeList(types)
	p.write(") -> (")
	p.typeList(types)
	p.write(")")
	p.loc(op)
	p.write("\n")
	for j, r := range op.results {
		p.names[r] = fmt.Sprintf("%s#%d", result, 1+j)
	}
}

func (p *printer) freshArgs(types []Type) []string {
	names := make([]string, len(types))
	p.line("^bb0(")
	for i, t := range types {
		if i > 0 {
			p.write(", ")
		}
		names[i] = p.fresh()
		p.write(names[i] + ": ")
		p.typ(t)
	}
	p.write("):\n")
	return names
}

func (p *printer) typeList(ts []Type) {
	for i, t := range ts {
		if i > 0 {
			p.write(", ")
		}
		p.typ(t)
	}
}

func (p *printer) increment(i string) string {
	one := p.stmt("stablehlo.constant dense<1> : tensor<i32>")
	return p.stmt("stablehlo.add %s, %s : tensor<i32>", i, one)
}

// readRow takes row i of an array of type t.
func (p *printer) readRow(x, i, zero string, t Type) string {
	r := row(t)
	one := stacked(1, r)
	s := p.stmt("stablehlo.dynamic_slice %s, %s%s, sizes = [%s] : (%s, %s) -> %s", x, i, strings.Repeat(", "+zero, r.Rank()),
		joinInts(one.Shape, ", "), t.mlir(), strings.TrimSuffix(strings.Repeat("tensor<i32>, ", t.Rank()), ", "), one.mlir())
	return p.stmt("stablehlo.reshape %s : (%s) -> %s", s, one.mlir(), r.mlir())
}

// writeRow stores y as row i of buf, of type t.
func (p *printer) writeRow(buf, y, i, zero string, t Type) string {
	r := row(t)
	one := stacked(1, r)
	s := p.stmt("stablehlo.reshape %s : (%s) -> %s", y, r.mlir(), one.mlir())
	return p.stmt("stablehlo.dynamic_update_slice %s, %s, %s%s : (%s, %s, %s) -> %s", buf, s, i, strings.Repeat(", "+zero, r.Rank()),
		t.mlir(), one.mlir(), strings.TrimSuffix(strings.Repeat("tensor<i32>, ", t.Rank()), ", "), t.mlir())
}

// printRegions writes an op with blocks in generic form.
func printRegions(p *printer, op *Op, name string, operands []*Value) {
	p.assign(op)
	p.write(`"` + name + `"(`)
	p.operands(operands)
	p.write(") (")
	for i, blk := range op.blocks {
		if i > 0 {
			p.write(", ")
		}
		p.write("{\n")
		p.indent++
		if op.kind == opCond { // branches see the values around them
			for j, a := range blk.args {
				p.alias(a, op.operands[1+j])
			}
		} else {
			p.body(blk.args, typesOf(blk.args))
		}
		p.block(blk)
		names := p.namesOf(blk.yields)
		for j, n := range names {
			if p.pinned[n] { // XLA refuses branches whose results have different shardings
				names[j] = p.stmt("stablehlo.optimization_barrier %s : %s", n, blk.yields[j].typ.mlir())
			}
		}
		p.ret("stablehlo.return", names, typesOf(blk.yields))
		p.indent--
		p.line("}")
	}
	p.write(") : (")
	p.types(operands)
	p.write(") -> (")
	p.types(op.results)
	p.write(")")
}

func printShardMap(p *printer, op *Op) {
	at, body := op.attr.(*shardMapAttr), op.blocks[0]
	// Over the axes that stay with the compiler a dimension is left open.
	open := at.manual|at.around != 1<<len(p.m.axes)-1
	specs := func(list []string) string { return "[" + strings.Join(list, ", ") + "]" }
	var in, out []string
	for i, o := range op.operands {
		in = append(in, manualSharding(at.in[i].Shardy(meshName, o.Rank()), open))
	}
	for i, r := range op.results {
		out = append(out, manualSharding(at.out[i].Shardy(meshName, r.Rank()), open))
	}
	p.assign(op)
	p.write("sdy.manual_computation(")
	p.operands(op.operands)
	p.write(") in_shardings=" + specs(in) + " out_shardings=" + specs(out) + " manual_axes={" + quoted(p.m.axisNames(at.manual)) + "} (")
	for i, a := range body.args {
		if i > 0 {
			p.write(", ")
		}
		p.names[a] = p.fresh()
		p.value(a)
		p.write(": ")
		p.typ(a.typ)
	}
	p.write(") {\n")
	p.indent++
	p.block(body)
	p.ret("sdy.return", p.namesOf(body.yields), typesOf(body.yields))
	p.indent--
	p.line("} : (")
	p.types(op.operands)
	p.write(") -> (")
	p.types(op.results)
	p.write(")")
}

// manualSharding opens every dimension of a Shardy sharding when open is set:
// `[{"a"}, {}]` becomes `[{"a", ?}, {?}]`.
func manualSharding(s string, open bool) string {
	if !open {
		return s
	}
	return strings.NewReplacer("{}", "{?}", `"}`, `", ?}`).Replace(s)
}

// collective writes a collective over the replica groups of its axes.
func (p *printer) collective(op *Op, name, attrs string) {
	x := op.operands[0]
	p.assign(op)
	p.collectiveOf(op, name, attrs, p.names[x], x.typ, op.results[0].typ)
}

// collectiveOf writes the collective op with another operand, given by its name.
func (p *printer) collectiveOf(op *Op, name, attrs, operand string, in, out Type) {
	at := op.attr.(collectiveAttr)
	p.write(`"stablehlo.` + name + `"(` + operand + ") <{")
	if attrs != "" {
		p.write(attrs + ", ")
	}
	p.handle++
	fmt.Fprintf(&p.sb, "channel_handle = #stablehlo.channel_handle<handle = %d, type = 1>, replica_groups = %s", p.handle, p.groups(at.axes))
	if name != "all_to_all" {
		p.write(", use_global_device_ids")
	}
	p.write("}>")
	if name == "all_reduce" || name == "reduce_scatter" {
		t := T(op.operands[0].typ.DType)
		p.write(" ({\n")
		p.indent++
		a := p.freshArgs([]Type{t, t})
		s := p.stmt("stablehlo.%s %s, %s : %s", reduceHLO[at.kind], a[0], a[1], t.mlir())
		p.ret("stablehlo.return", []string{s}, []Type{t})
		p.indent--
		p.line("})")
	}
	fmt.Fprintf(&p.sb, " : (%s) -> %s", in.mlir(), out.mlir())
}

// groups lists the positions in the mesh that take part together.
func (p *printer) groups(axes []string) string {
	gs, err := p.m.mesh.Groups(axes...)
	if err != nil || len(gs) == 0 {
		return "dense<[]> : tensor<0x0xi64>" // cannot happen: axes were checked
	}
	var sb strings.Builder
	sb.WriteString("dense<[")
	for i, g := range gs {
		if i > 0 {
			sb.WriteString(", ")
		}
		sb.WriteString("[" + joinInts(g, ",") + "]")
	}
	fmt.Fprintf(&sb, "]> : tensor<%dx%dxi64>", len(gs), len(gs[0]))
	return sb.String()
}

func (p *printer) permute(op *Op) {
	at := op.attr.(collectiveAttr)
	gs, _ := p.m.mesh.Groups(at.axes...)
	var pairs []string
	for _, g := range gs {
		for _, pr := range at.pair {
			pairs = append(pairs, fmt.Sprintf("[%d,%d]", g[pr[0]], g[pr[1]]))
		}
	}
	p.assign(op)
	p.handle++
	p.write(`"stablehlo.collective_permute"(`)
	p.operands(op.operands)
	fmt.Fprintf(&p.sb, ") <{channel_handle = #stablehlo.channel_handle<handle = %d, type = 1>, source_target_pairs = dense<[%s]> : tensor<%dx2xi64>}> : ", p.handle, strings.Join(pairs, ", "), len(pairs))
	p.signature(op)
}
