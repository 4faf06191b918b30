package graph

import (
	"fmt"
	"slices"
)

// condAttr: results from declared on are residuals; used[i][k] tells whether
// branch k yields a value of its own as residual i.
type condAttr struct {
	declared int
	used     [][]bool
}

func init() {
	define(opCond, opDef{
		name:   "cond",
		infer:  inferCond,
		vjp:    condVJP,
		wideCT: true,
		print: func(p *printer, op *Op) {
			printRegions(p, op, "stablehlo.case", op.operands[:1])
		},
	})
}

func inferCond(op *Op) ([]Type, error) {
	if !op.operands[0].typ.Equal(T(S32)) {
		return nil, fmt.Errorf("branch index of type %v, not s32[]", op.operands[0].typ)
	}
	var ts []Type
	for k, blk := range op.blocks {
		if len(blk.args) != len(op.operands)-1 {
			return nil, fmt.Errorf("branch %d has %d arguments for %d operands", k, len(blk.args), len(op.operands)-1)
		}
		var mine []Type
		for _, y := range blk.yields {
			mine = append(mine, y.typ)
		}
		if k == 0 {
			ts = mine
		} else if !slices.EqualFunc(ts, mine, Type.Equal) {
			return nil, fmt.Errorf("branch 0 returns %v, branch %d returns %v", ts, k, mine)
		}
	}
	return ts, nil
}

// condBuilder records branches that share their operands.
type condBuilder struct {
	b       *Builder
	op      *Op
	depth   int
	aliases []map[*Value]*Value // per branch: operand → argument
}

func (b *Builder) beginCond(index *Value, branches int) *condBuilder {
	c := &condBuilder{b: b, depth: len(b.frames) - 1}
	c.op = &Op{kind: opCond, attr: &condAttr{}, operands: []*Value{b.use("cond", index)}}
	for range branches {
		c.op.blocks = append(c.op.blocks, &Block{module: b.m})
		c.aliases = append(c.aliases, map[*Value]*Value{})
	}
	return c
}

// arg makes outer known in branch k.
func (c *condBuilder) arg(k int, outer *Value) *Value {
	outer = c.b.useAt(c.depth, "cond", outer)
	if a := c.aliases[k][outer]; a != nil {
		return a
	}
	// Where devices take different branches nothing is added up over them inside:
	// what the branches read is spread before, so that its cotangents meet after.
	spread := outer
	c.b.popTo(c.depth, func() { spread = c.b.levelTo(outer, c.op.operands[0].vary) })
	c.op.operands = append(c.op.operands, spread)
	for i, blk := range c.op.blocks {
		a := blk.addArg(outer.typ)
		a.vary, a.gradType = spread.vary, spread.gradType
		c.aliases[i][outer] = a
	}
	return c.aliases[k][outer]
}

// branch records branch k.
func (c *condBuilder) branch(k int, f func() []*Value) {
	blk := c.op.blocks[k]
	c.b.push(&frame{block: blk, diverge: c.op.operands[0].vary, capture: func(outer *Value) *Value { return c.arg(k, outer) }})
	for _, y := range f() {
		blk.yields = append(blk.yields, c.b.use("cond", y))
	}
	c.b.pop()
}

func (c *condBuilder) end() []*Value {
	b := c.b
	c.op.block, c.op.pos = b.top().block, b.position(2)
	n := len(c.op.blocks[0].yields)
	for k, blk := range c.op.blocks {
		if len(blk.yields) != n {
			b.failAt(c.op.pos, "cond", c.op.operands[:1], "branch 0 returns %d values, branch %d returns %d", n, k, len(blk.yields))
		}
	}
	for i := range n { // what differs in one branch may differ in the result
		vary := c.op.operands[0].vary
		for _, blk := range c.op.blocks {
			vary |= blk.yields[i].vary
		}
		for _, blk := range c.op.blocks {
			if y := blk.yields[i]; vary&^y.vary != 0 {
				blk.yields[i] = blk.appendOp(opPvary, vary&^y.vary, y)
				blk.yields[i].vary = vary
			}
		}
	}
	c.op.attr.(*condAttr).declared = n
	b.finishRegion(c.op, c.op.blocks[0].yields)
	return slices.Clone(c.op.results)
}

// Switch records all branches and runs the one that the s32 scalar index names;
// an index out of range runs the last. Branches must return the same types.
func (b *Builder) Switch(index *Value, branches ...func() []*Value) []*Value {
	if len(branches) == 0 {
		b.fail("switch", "no branches")
	}
	c := b.beginCond(index, len(branches))
	for k, f := range branches {
		c.branch(k, f)
	}
	return c.end()
}

// Cond runs yes where the boolean scalar pred holds, no otherwise. Both must
// return the same types.
//
// In a manual region devices may disagree about pred. Then no collective along
// the axes they disagree along can stand in a branch. Axes left to the compiler
// are no better off: what it inserts to move data between devices, it may
// insert in a branch, where devices would wait for each other forever.
func (b *Builder) Cond(pred *Value, yes, no func() []*Value) []*Value {
	if pred == nil || !pred.typ.Equal(T(Bool)) {
		b.failAt(b.position(1), "cond", []*Value{pred}, "the predicate must be a bool scalar")
	}
	return b.Switch(Convert(pred, S32), no, yes)
}

// exportBranch makes a value of branch k a residual result. Other branches give
// zeros there, unless they have use for a residual of that type.
func exportBranch(op *Op, k int, v *Value) *Value {
	at := op.attr.(*condAttr)
	vary := v.vary | op.operands[0].vary
	for i := at.declared; i < len(op.results); i++ {
		u := at.used[i-at.declared]
		if op.blocks[k].yields[i] == v && u[k] {
			return op.results[i]
		}
		if !u[k] && op.results[i].typ.Equal(v.typ) && op.results[i].vary == vary {
			u[k] = true
			op.blocks[k].yields[i] = v
			return op.results[i]
		}
	}
	for _, blk := range op.blocks {
		z := &Op{kind: opConst, attr: constAttr{v.typ, make([]byte, v.typ.DType.Size()), true}, block: blk, pos: op.pos}
		zv := blk.module.newValue(v.typ, blk)
		zv.op = z
		z.results = []*Value{zv}
		blk.ops = append(blk.ops, z)
		blk.yields = append(blk.yields, zv)
	}
	op.blocks[k].yields[len(op.results)] = v
	u := make([]bool, len(op.blocks))
	u[k] = true
	at.used = append(at.used, u)
	r := op.insertResult(len(op.results), v.typ)
	r.vary = vary
	return r
}

// condVJP runs the backward pass of the branch that was taken.
func condVJP(a *adjoint, op *Op, cts []*Value) {
	b := a.b
	var asked []int
	for i := 1; i < len(op.operands); i++ {
		if a.wants(op.operands[i]) {
			asked = append(asked, i)
		}
	}
	c := b.beginCond(a.val(op.operands[0]), len(op.blocks))
	for k, blk := range op.blocks {
		c.branch(k, func() []*Value {
			active := map[*Value]bool{}
			for _, i := range asked {
				active[blk.args[i-1]] = true
			}
			propagate(active, blk.ops)
			r := newResidual(a, op, blk, active, func(outer, like *Value) *Value { return c.arg(k, outer) })
			r.argument = func(v *Value) *Value { return c.arg(k, a.val(op.operands[v.index+1])) }
			r.export = func(v *Value) *Value { return exportBranch(op, k, v) }
			for i, ct := range cts {
				if ct != nil {
					r.add(blk.yields[i], c.arg(k, ct))
				}
			}
			r.run(blk.ops)
			var ys []*Value
			for _, i := range asked {
				arg := blk.args[i-1]
				d := a.gradDType(op.operands[i])
				if g := r.cts[arg]; g != nil {
					ys = append(ys, Convert(g, d))
				} else {
					ys = append(ys, b.Zeros(Type{d, arg.typ.Shape}))
				}
			}
			return ys
		})
	}
	for i, g := range c.end() {
		a.add(op.operands[asked[i]], b.matchVary(g, op.operands[asked[i]].vary))
	}
}
