package graph

import "slices"

type customAttr struct {
	outs     int
	backward func(residuals, cotangents []*Value) []*Value
	args     int
	res      int // residuals; further results are what checkpoints keep
}

func init() {
	define(opCustomVJP, opDef{
		name:  "custom_vjp",
		infer: inferRegion,
		vjp:   customVJP,
		print: printInline,
	})
}

// CustomVJP replaces the derivative of a piece of program. forward returns the
// outputs and whatever backward needs besides the cotangents; backward returns
// one cotangent (or nil for zero) for each of args. forward may use no traced
// floats but its arguments.
func CustomVJP(args []*Value, forward func(args []*Value) (outs, residuals []*Value), backward func(residuals, cotangents []*Value) []*Value) []*Value {
	if len(args) == 0 || args[0] == nil {
		mistake("custom_vjp", "no arguments, or the first is nil")
	}
	b := args[0].b()
	at := customAttr{backward: backward, args: len(args)}
	blk := &Block{module: b.m}
	op := &Op{kind: opCustomVJP, blocks: []*Block{blk}, block: b.top().block, pos: b.position(1)}
	for _, x := range args {
		x = b.use("custom_vjp", x)
		op.operands = append(op.operands, x)
		a := blk.addArg(x.typ)
		a.vary, a.gradType = x.vary, x.gradType
	}
	b.push(&frame{block: blk, capture: func(outer *Value) *Value {
		if !outer.typ.DType.IsFloat() { // has no derivative to lose
			op.operands = append(op.operands, outer)
			v := blk.addArg(outer.typ)
			v.vary = outer.vary
			return v
		}
		b.fail("custom_vjp", "the forward function uses %v from outside; pass it as an argument, or its derivative would be lost", outer)
		return nil
	}})
	outs, res := forward(append([]*Value(nil), blk.args...))
	at.outs, at.res = len(outs), len(res)
	for _, y := range append(append([]*Value(nil), outs...), res...) {
		blk.yields = append(blk.yields, b.use("custom_vjp", y))
	}
	b.pop()
	op.attr = at
	b.finishRegion(op, blk.yields)
	return slices.Clone(op.results[:at.outs])
}

func customVJP(a *adjoint, op *Op, cts []*Value) {
	at, body, b := op.attr.(customAttr), op.blocks[0], a.b
	var res []*Value
	for i, y := range body.yields[at.outs : at.outs+at.res] {
		if y.op == nil { // an argument handed on
			res = append(res, a.val(op.operands[y.index]))
			continue
		}
		res = append(res, a.val(op.results[at.outs+i]))
	}
	if slices.ContainsFunc(cts[at.outs:], func(ct *Value) bool { return ct != nil }) {
		// A derivative of the derivative has come to the residuals, which are
		// computed by ordinary ops.
		further := make([]*Value, len(cts))
		copy(further[at.outs:], cts[at.outs:])
		a.inlineVJP(op, cloner{m: b.m}, a.vals(op.operands), further)
	}
	if !slices.ContainsFunc(cts[:at.outs], func(ct *Value) bool { return ct != nil }) {
		return
	}
	full := make([]*Value, at.outs)
	for i := range full {
		full[i] = cts[i]
		if full[i] == nil {
			r := op.results[i]
			full[i] = b.levelTo(b.Zeros(r.typ), r.vary)
		}
	}
	outer := b.at
	b.at = nil // ops of the caller's function have lines of their own
	grads := at.backward(res, full)
	b.at = outer
	if len(grads) != at.args {
		b.failAt(op.pos, "custom_vjp", op.operands, "the backward function returns %d cotangents for %d arguments", len(grads), at.args)
	}
	for i, g := range grads {
		if g == nil || !a.wants(op.operands[i]) {
			continue
		}
		if !sameShape(g.typ, op.operands[i].typ) {
			b.failAt(op.pos, "custom_vjp", op.operands, "cotangent %d has type %v, the argument %v", i, g.typ, op.operands[i].typ)
		}
		a.add(op.operands[i], b.matchVary(g, op.operands[i].vary))
	}
}
