package graph

// residual gives the backward body of a region op access to values of the
// forward body. Arguments come from the operands, cheap values are computed
// again, everything else leaves the forward op as an extra result.
type residual struct {
	*adjoint          // of the body
	outer    *adjoint // of the block around op
	op       *Op
	fixed    map[*Value]bool // values that are the same in every iteration
	memo     map[*Value]*Value
	depth    int // of the frame that records the backward body
	// bring makes a value of the block around the backward op, stacked or
	// split as extra results of op are, an argument of the backward body.
	bring func(outer, like *Value) *Value
	// export makes a body value an extra result of op.
	export func(v *Value) *Value
	// argument makes a forward argument known, where op is not a scan.
	argument func(v *Value) *Value
}

func newResidual(outer *adjoint, op *Op, body *Block, active map[*Value]bool, bring func(outer, like *Value) *Value) *residual {
	r := &residual{outer: outer, op: op, bring: bring, memo: map[*Value]*Value{}, fixed: map[*Value]bool{}, depth: len(outer.b.frames) - 1}
	r.export = func(v *Value) *Value { return exportFrom(op, v) }
	r.adjoint = &adjoint{b: outer.b, cts: map[*Value]*Value{}, active: active, resolve: r.get}
	if at, ok := op.attr.(*scanAttr); ok {
		for _, c := range op.blocks[0].args[:at.consts] {
			r.fixed[c] = true
		}
	}
	for _, o := range body.ops {
		if r.recomputable(o) {
			for _, v := range o.results {
				r.fixed[v] = true
			}
		}
	}
	return r
}

// recomputable: depends on nothing that changes, and costs no more than
// elementwise work on what it reads.
func (r *residual) recomputable(op *Op) bool {
	if len(op.blocks) > 0 || defs[op.kind].effect || op.kind == opDot || op.kind == opSort || op.kind == opCustomCall || isCollective(op.kind) {
		return false
	}
	for _, o := range op.operands {
		if !r.fixed[o] {
			return false
		}
	}
	return true
}

// get is the forward value v in the backward body.
func (r *residual) get(v *Value) *Value {
	v = v.saved()
	if m := r.memo[v]; m != nil {
		return m
	}
	// A region inside this one may be asking: what is recorded for it belongs
	// to this region's body.
	var m *Value
	r.b.popTo(r.depth, func() { m = r.find(v) })
	m.gradType = v.gradType
	r.memo[v] = m
	return m
}

func (r *residual) find(v *Value) *Value {
	if v.op == nil {
		if at, ok := r.op.attr.(*scanAttr); ok {
			switch {
			case v.index < at.consts: // captured again
				return r.b.use("grad", r.outer.val(r.op.operands[v.index]))
			case v.index < at.consts+at.carries:
				return r.bring(r.outer.val(r.export(v)), v)
			}
			return r.bring(r.outer.val(r.op.operands[v.index]), v)
		}
		return r.argument(v)
	}
	if v.op.kind == opKept {
		return r.get(v.op.operands[1])
	}
	if r.fixed[v] || isView(v.op) || r.narrowsRow(v.op) {
		env := map[*Value]*Value{}
		for _, o := range v.op.operands {
			env[o] = r.get(o)
		}
		return r.b.cloneOp(v.op, env).results[v.index]
	}
	return r.bring(r.outer.val(r.export(v)), v)
}

// narrowsRow reports whether op converts a row that a loop reads anyway: to keep
// the narrow copies of all rows, such as the bf16 parameters of all layers,
// would cost more than to convert again.
func (r *residual) narrowsRow(op *Op) bool {
	at, ok := r.op.attr.(*scanAttr)
	if !ok || op.kind != opConvert {
		return false
	}
	x := op.operands[0]
	for x.op != nil && isView(x.op) {
		x = x.op.operands[0]
	}
	return x.op == nil && x.index >= at.consts+at.carries
}

// isView reports whether op is as cheap to repeat as reading its result: forms
// of the same data, and conversions to a larger type.
func isView(op *Op) bool {
	if op.kind == opConvert {
		return op.operands[0].typ.DType.Size() < op.results[0].typ.DType.Size()
	}
	if op.kind == opConstrain {
		return op.attr.(constrainAttr).again
	}
	if op.kind == opAllGather {
		return op.attr.(collectiveAttr).again
	}
	return defs[op.kind].view
}

// exportFrom makes the body value v of a region op an extra result of it, and
// returns that result.
func exportFrom(op *Op, v *Value) *Value {
	body := op.blocks[0]
	for i, y := range body.yields {
		if y == v && exportable(op, i) {
			return op.results[i]
		}
	}
	t := v.typ
	switch at := op.attr.(type) {
	case *scanAttr:
		t = stacked(at.n, v.typ)
	case *shardMapAttr:
		return at.export(op, v)
	}
	body.yields = append(body.yields, v)
	r := op.insertResult(len(op.results), t)
	r.vary = v.vary
	return r
}

// exportable: yield i already leaves the op in the form of an extra result.
func exportable(op *Op, i int) bool {
	switch at := op.attr.(type) {
	case *scanAttr:
		return i >= at.carries
	case *shardMapAttr:
		return i >= at.declared
	}
	return true
}
