package graph

import "fmt"

// record runs f in a new block whose captured values become arguments, and
// returns the block with its yields set and the captured operands.
func (b *Builder) record(kind opKind, f func() []*Value) (*Block, []*Value) {
	blk := &Block{module: b.m}
	var operands []*Value
	b.push(&frame{block: blk, capture: func(outer *Value) *Value {
		arg := blk.addArg(outer.typ)
		arg.vary = outer.vary
		operands = append(operands, outer)
		return arg
	}})
	for _, y := range f() {
		blk.yields = append(blk.yields, b.use(defs[kind].name, y))
	}
	b.pop()
	return blk, operands
}

// inferRegion checks a region whose arguments are its operands and whose yields
// are its results.
func inferRegion(op *Op) ([]Type, error) {
	blk := op.blocks[0]
	if len(blk.args) != len(op.operands) {
		return nil, fmt.Errorf("region has %d arguments for %d operands", len(blk.args), len(op.operands))
	}
	for i, o := range op.operands {
		if !o.typ.Equal(blk.args[i].typ) {
			return nil, fmt.Errorf("region argument %d has type %v, operand has %v", i, blk.args[i].typ, o.typ)
		}
	}
	var ts []Type
	for _, y := range blk.yields {
		ts = append(ts, y.typ)
	}
	return ts, nil
}

// printInline writes the ops of a region that only differentiation sees.
func printInline(p *printer, op *Op) {
	blk := op.blocks[0]
	for i, a := range blk.args {
		p.alias(a, op.operands[i])
	}
	p.block(blk)
	for i, y := range blk.yields {
		p.alias(op.results[i], y)
	}
}
