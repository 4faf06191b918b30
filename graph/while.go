package graph

import (
	"fmt"
	"slices"
)

// whileAttr: operands are the carries, then what condition and body read.
type whileAttr struct{ carries int }

func init() {
	define(opWhile, opDef{
		name:  "while",
		infer: inferWhile,
		print: printWhile,
	})
}

func inferWhile(op *Op) ([]Type, error) {
	at := op.attr.(whileAttr)
	for _, blk := range op.blocks {
		if len(blk.args) != len(op.operands) {
			return nil, fmt.Errorf("region has %d arguments for %d operands", len(blk.args), len(op.operands))
		}
	}
	if c := op.blocks[0].yields; len(c) != 1 || !c[0].typ.Equal(T(Bool)) {
		return nil, fmt.Errorf("the condition must be one bool scalar")
	}
	ys := op.blocks[1].yields
	if len(ys) != at.carries {
		return nil, fmt.Errorf("the body returns %d values, the loop carries %d", len(ys), at.carries)
	}
	var ts []Type
	for i, y := range ys {
		if !y.typ.Equal(op.operands[i].typ) {
			return nil, fmt.Errorf("carry %d enters with type %v and leaves the body with %v", i, op.operands[i].typ, y.typ)
		}
		ts = append(ts, y.typ)
	}
	return ts, nil
}

// While repeats body while cond holds and returns the last carry. The trip
// count is not known, so it has no derivative in reverse mode; use Scan.
func (b *Builder) While(init []*Value, cond func(carry []*Value) *Value, body func(carry []*Value) []*Value) []*Value {
	op := &Op{kind: opWhile, attr: whileAttr{len(init)}, blocks: []*Block{{module: b.m}, {module: b.m}}}
	if len(init) == 0 {
		b.fail("while", "nothing is carried")
	}
	init = append([]*Value(nil), init...)
	for i, v := range init {
		if b.top().manual != 0 { // as much as it could come to vary
			v = b.levelTo(b.use("while", v), b.top().manual)
		}
		init[i] = v
		op.operands = append(op.operands, b.use("while", v))
	}
	for _, blk := range op.blocks {
		for _, o := range op.operands {
			a := blk.addArg(o.typ)
			a.vary = o.vary
		}
	}
	aliases := [2]map[*Value]*Value{{}, {}}
	for k, blk := range op.blocks {
		b.push(&frame{block: blk, capture: func(outer *Value) *Value {
			if a := aliases[k][outer]; a != nil {
				return a
			}
			op.operands = append(op.operands, outer)
			for j, other := range op.blocks {
				a := other.addArg(outer.typ)
				a.vary = outer.vary
				aliases[j][outer] = a
			}
			return aliases[k][outer]
		}})
		args := append([]*Value(nil), blk.args[:len(init)]...)
		var ys []*Value
		if k == 0 {
			ys = []*Value{cond(args)}
		} else {
			ys = body(args)
		}
		for i, y := range ys {
			y = b.use("while", y)
			if k == 1 && i < len(init) {
				y = b.levelTo(y, blk.args[i].vary)
			}
			blk.yields = append(blk.yields, y)
		}
		b.pop()
	}
	op.block, op.pos = b.top().block, b.position(1)
	b.finishRegion(op, op.blocks[1].yields)
	return slices.Clone(op.results)
}

func printWhile(p *printer, op *Op) {
	types := typesOf(op.operands)
	all := make([]*Value, 0, len(types))
	all = append(all, op.results...)
	for range len(types) - len(op.results) { // the constants come out again
		all = append(all, &Value{})
	}
	p.define(all)
	p.write(`"stablehlo.while"(`)
	p.operands(op.operands)
	p.write(") ({\n")
	for k, blk := range op.blocks {
		p.indent++
		p.body(blk.args, types)
		p.block(blk)
		names, ts := p.namesOf(blk.yields), typesOf(blk.yields)
		if k == 1 {
			rest := blk.args[len(blk.yields):]
			names, ts = append(names, p.namesOf(rest)...), append(ts, typesOf(rest)...)
		}
		p.ret("stablehlo.return", names, ts)
		p.indent--
		if k == 0 {
			p.line("}, {\n")
		}
	}
	p.line("}) : (")
	p.typeList(types)
	p.write(") -> (")
	p.typeList(types)
	p.write(")")
}
