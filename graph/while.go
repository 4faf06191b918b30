package graph

import (
	"fmt"
	"slices"
)

// whileAttr: operands are the carries, then what condition and body read.
type whileAttr struct {
	carries int
	// trips is how many iterations are expected, if that is told.
	trips float64
	told  bool
}

// WhileOption says something about a While.
type WhileOption func(*whileAttr)

// ExpectedTrips says how many iterations a loop is expected to take, in the mean;
// Cost counts its body so often.
func ExpectedTrips(n float64) WhileOption {
	return func(at *whileAttr) { at.trips, at.told = n, true }
}

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
func (b *Builder) While(init []*Value, cond func(carry []*Value) *Value, body func(carry []*Value) []*Value, opts ...WhileOption) []*Value {
	if len(init) == 0 {
		b.fail("while", "nothing is carried")
	}
	pos := b.position(1)
	carried := make([]*Value, len(init))
	for i, v := range init {
		carried[i] = b.use("while", v)
	}
	var diverge axisSet // what the number of iterations varies over
	for {
		op := b.recordWhile(carried, cond, body, diverge)
		op.block, op.pos = b.top().block, pos
		// In a manual region a carry must enter varying over whatever the body
		// makes it vary over, and over what the number of iterations varies
		// over; then both are recorded again.
		again := false
		if ys := op.blocks[0].yields; len(ys) == 1 && ys[0].vary&^diverge != 0 {
			diverge, again = diverge|ys[0].vary, true
		}
		for i := range carried {
			if i >= len(op.blocks[1].yields) || len(op.blocks[0].yields) != 1 {
				break // finishRegion reports it
			}
			all := op.blocks[1].yields[i].vary | op.blocks[0].yields[0].vary
			again = again || all&^carried[i].vary != 0
			carried[i] = b.levelTo(carried[i], all)
		}
		if again {
			continue
		}
		at := op.attr.(whileAttr)
		for _, f := range opts {
			f(&at)
		}
		if op.attr = at; !(at.trips >= 0) {
			b.failAt(pos, "while", nil, "%v iterations are expected", at.trips)
		}
		b.finishRegion(op, op.blocks[1].yields)
		return slices.Clone(op.results)
	}
}

// recordWhile records the two regions of a loop over the given carries.
func (b *Builder) recordWhile(init []*Value, cond func(carry []*Value) *Value, body func(carry []*Value) []*Value, diverge axisSet) *Op {
	op := &Op{kind: opWhile, attr: whileAttr{carries: len(init)}, blocks: []*Block{{module: b.m}, {module: b.m}}}
	op.operands = slices.Clone(init)
	for _, blk := range op.blocks {
		for _, o := range op.operands {
			a := blk.addArg(o.typ)
			a.vary = o.vary
		}
	}
	aliases := [2]map[*Value]*Value{{}, {}}
	for k, blk := range op.blocks {
		b.push(&frame{block: blk, diverge: diverge, capture: func(outer *Value) *Value {
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
		args := slices.Clone(blk.args[:len(init)])
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
	return op
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
