package graph

import "slices"

// cloner copies ops. Values in kept are replaced, in the copy, by saved ones.
type cloner struct {
	m    *Module
	kept map[*Value]*Value
	// via gives, for a kept value inside a region, the extra result through
	// which it left the region.
	via map[*Value]*Value
}

// cloneOp records a copy of op in the current block with operands replaced by
// env, which must hold all of them, and enters the results in env.
func (b *Builder) cloneOp(op *Op, env map[*Value]*Value) *Op {
	c := cloner{m: b.m}
	return c.op(op, env, b.top().block, nil)
}

// op appends a copy of op to blk. bring makes a saved
// value known in blk, given the value of the original block it stands for.
func (c *cloner) op(op *Op, env map[*Value]*Value, blk *Block, bring func(saved, like *Value) *Value) *Op {
	n := &Op{kind: op.kind, attr: cloneAttr(op.attr), block: blk, pos: op.pos}
	for _, o := range op.operands {
		n.operands = append(n.operands, env[o])
	}
	for _, inner := range op.blocks {
		n.blocks = append(n.blocks, c.block(inner, n, bring))
	}
	for i, r := range op.results {
		v := c.copyValue(r, blk)
		v.op, v.index = n, i
		n.results = append(n.results, v)
		env[r] = v
	}
	blk.ops = append(blk.ops, n)
	if len(op.results) == 1 {
		if saved := c.kept[op.results[0]]; saved != nil {
			k := blk.appendOp(opKept, nil, n.results[0], bring(saved, op.results[0]))
			env[op.results[0]] = k
			n.results[0].kept = k
			if n.kind == opName { // the value that was given the name
				n.operands[0].kept = k
			}
		}
	}
	return n
}

func (c *cloner) copyValue(v *Value, blk *Block) *Value {
	n := c.m.newValue(v.typ, blk)
	n.vary, n.gradType, n.spec = v.vary, v.gradType, v.spec
	return n
}

// block copies a block of op into its copy n.
func (c *cloner) block(blk *Block, n *Op, bring func(saved, like *Value) *Value) *Block {
	nb := &Block{module: c.m}
	env := map[*Value]*Value{}
	for _, a := range blk.args {
		v := c.copyValue(a, nb)
		v.index = len(nb.args)
		nb.args = append(nb.args, v)
		env[a] = v
	}
	inner := func(saved, like *Value) *Value { return importInto(n, nb, bring(saved, c.via[like]), like) }
	for _, op := range blk.ops {
		c.op(op, env, nb, inner)
	}
	for _, y := range blk.yields {
		nb.yields = append(nb.yields, env[y])
	}
	return nb
}

// importInto passes outer, through which the value like of a region op left it,
// into the block nb of the copy n: the inverse of exportFrom.
func importInto(n *Op, nb *Block, outer, like *Value) *Value {
	n.operands = append(n.operands, outer)
	t := outer.typ
	switch at := n.attr.(type) {
	case *scanAttr:
		t = row(t)
	case *shardMapAttr:
		return at.bring(nb, outer, like)
	}
	arg := nb.addArg(t)
	arg.vary = outer.vary
	return arg
}

// cloneAttr copies the attributes that are changed in place.
func cloneAttr(a any) any {
	switch at := a.(type) {
	case *scanAttr:
		c := *at
		return &c
	case *shardMapAttr:
		return at.clone()
	case *condAttr:
		c := condAttr{declared: at.declared}
		for _, u := range at.used {
			c.used = append(c.used, slices.Clone(u))
		}
		return &c
	}
	return a
}

// appendOp adds an op with one result of the first operand's type to a block
// that is not being recorded.
func (blk *Block) appendOp(kind opKind, attr any, operands ...*Value) *Value {
	op := &Op{kind: kind, attr: attr, operands: operands, block: blk, pos: here(1)}
	x := operands[0]
	v := blk.module.newValue(x.typ, blk)
	v.op, v.vary, v.gradType, v.spec = op, x.vary, x.gradType, x.spec
	op.results = []*Value{v}
	blk.ops = append(blk.ops, op)
	return v
}
