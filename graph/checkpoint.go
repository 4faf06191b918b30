package graph

import "slices"

// Policy says which values of a checkpointed region are kept for the backward
// pass; the others are computed again. The zero Policy keeps nothing.
type Policy struct {
	all, dots     bool
	save, offload []string
}

// SaveNothing computes everything again (full activation checkpointing).
func SaveNothing() Policy { return Policy{} }

// SaveEverything computes nothing again, as if there were no checkpoint.
func SaveEverything() Policy { return Policy{all: true} }

// SaveNames keeps the values given one of these names with Name.
func SaveNames(names ...string) Policy { return Policy{save: names} }

// OffloadNames keeps the named values in host memory and fetches them back in
// the backward pass.
func OffloadNames(names ...string) Policy { return Policy{offload: names} }

// SaveDots keeps the results of contractions without batch dimensions, that is
// of the layers' weight multiplications.
func SaveDots() Policy { return Policy{dots: true} }

// And keeps what either policy keeps; offloading wins where both name a value.
func (p Policy) And(o Policy) Policy {
	return Policy{p.all || o.all, p.dots || o.dots, slices.Concat(p.save, o.save), slices.Concat(p.offload, o.offload)}
}

// keeps reports whether the result of op is kept, and whether on the host.
func (p Policy) keeps(op *Op) (kept, host bool) {
	switch {
	case op.kind == opName:
		n := op.attr.(string)
		host = slices.Contains(p.offload, n)
		return host || slices.Contains(p.save, n), host
	case op.kind == opDot && p.dots:
		return len(op.attr.(dotAttr).lhsBatch) == 0, false
	}
	return false, false
}

func init() {
	// kept(computed, saved) is the saved value, differentiated as the computed
	// one, of which nothing else remains.
	define(opKept, opDef{
		name:   "kept",
		infer:  sameType,
		wideCT: true, form: true,
		vjp:   func(a *adjoint, op *Op, cts []*Value) { a.add(op.operands[0], cts[0]) },
		print: func(p *printer, op *Op) { p.alias(op.results[0], op.operands[len(op.operands)-1]) },
	})
	define(opCheckpoint, opDef{
		name:   "checkpoint",
		infer:  inferRegion,
		wideCT: true,
		vjp:    checkpointVJP,
		print:  printInline,
	})
}

// Checkpoint records f as a region whose inner values are computed again in the
// backward pass, except what policy keeps. f may use any value from outside.
func (b *Builder) Checkpoint(policy Policy, f func() []*Value) []*Value {
	if policy.all {
		return f()
	}
	blk, operands := b.record(opCheckpoint, f)
	op := &Op{kind: opCheckpoint, attr: policy, operands: operands, blocks: []*Block{blk}, block: b.top().block, pos: b.position(1)}
	b.finishRegion(op, blk.yields)
	return slices.Clone(op.results)
}

// CheckpointEvery is Checkpoint for every n-th layer i and plain recording for
// the others (selective activation checkpointing by layer).
func (b *Builder) CheckpointEvery(n, i int, policy Policy, f func() []*Value) []*Value {
	if n < 1 {
		b.fail("checkpoint", "every %d-th layer; n must be at least 1", n)
	}
	if i%n != 0 {
		return f()
	}
	return b.Checkpoint(policy, f)
}

// checkpointVJP records the region's ops again, behind a barrier that holds
// them back until the cotangents have arrived and keeps the compiler from
// merging them with the first computation, and differentiates the copy.
func checkpointVJP(a *adjoint, op *Op, cts []*Value) {
	b, body := a.b, op.blocks[0]
	var through []*Value
	index := map[*Value]int{}
	pass := func(v *Value) {
		if _, seen := index[v]; !seen {
			index[v] = len(through)
			through = append(through, v)
		}
	}
	via := map[*Value]*Value{}
	kept := keepValues(a, op, via)
	for _, k := range kept {
		if !k.host {
			pass(k.saved)
		}
	}
	inputs := make([]*Value, len(op.operands))
	for i, o := range op.operands {
		inputs[i] = a.val(o)
		pass(inputs[i])
	}
	for _, ct := range cts {
		if ct != nil {
			pass(ct)
		}
	}
	held := Barrier(through...)
	c := cloner{m: b.m, kept: map[*Value]*Value{}, via: via}
	for _, k := range kept {
		c.kept[k.v] = k.saved
		if k.host {
			c.kept[k.v] = toMemory(k.saved, deviceMemory)
		} else {
			c.kept[k.v] = held[index[k.saved]]
		}
	}
	args := make([]*Value, len(inputs))
	for i, v := range inputs {
		args[i] = held[index[v]]
		args[i].gradType = body.args[i].gradType
	}
	heldCTs := make([]*Value, len(cts))
	for i, ct := range cts {
		if ct != nil {
			heldCTs[i] = held[index[ct]]
		}
	}
	a.inlineVJP(op, c, args, heldCTs)
}

// inlineVJP records the ops of op's region once more, in the current block and
// on the given arguments, and differentiates the copy, given the cotangents of
// the region's yields.
func (a *adjoint) inlineVJP(op *Op, c cloner, args, cts []*Value) {
	body, blk := op.blocks[0], a.b.top().block
	env := map[*Value]*Value{}
	for i, arg := range body.args {
		env[arg] = args[i]
	}
	start := len(blk.ops)
	for _, o := range body.ops {
		c.op(o, env, blk, func(saved, _ *Value) *Value { return saved })
	}
	ops := slices.Clone(blk.ops[start:])

	inner := &adjoint{b: a.b, cts: map[*Value]*Value{}, active: map[*Value]bool{}}
	for i, arg := range body.args {
		if a.wants(op.operands[i]) {
			inner.active[env[arg]] = true
		}
	}
	propagate(inner.active, ops)
	for i, ct := range cts {
		if ct != nil {
			inner.add(env[body.yields[i]], ct)
		}
	}
	inner.run(ops)
	done := map[*Value]bool{}
	for i, arg := range body.args {
		v := env[arg]
		if !done[v] { // two arguments may be one value
			a.add(op.operands[i], inner.cts[v])
		}
		done[v] = true
	}
}

// saved is the form in which derivatives read v.
func (v *Value) saved() *Value {
	for v.kept != nil {
		v = v.kept
	}
	return v
}

// keptValue is a value of the forward region and its saved form outside.
type keptValue struct {
	v, saved *Value
	host     bool
}

// keepValues exports from the checkpoint op what its policy keeps, also out of
// the loops and manual regions inside it (not out of cond and while, whose
// values are always computed again).
func keepValues(a *adjoint, op *Op, via map[*Value]*Value) (out []keptValue) {
	policy := op.attr.(Policy)
	var collect func(blk *Block, export func(v, like *Value) *Value)
	collect = func(blk *Block, export func(v, like *Value) *Value) {
		for _, o := range slices.Clone(blk.ops) {
			if keep, host := policy.keeps(o); keep {
				k := keptValue{v: o.results[0], host: host}
				form := k.v
				if host {
					form = blk.appendOp(opToMemory, hostMemory, k.v)
				}
				k.saved = export(form, k.v)
				out = append(out, k)
			}
			if len(o.blocks) > 0 && o.kind != opCond && o.kind != opWhile {
				collect(o.blocks[0], func(v, like *Value) *Value {
					via[like] = exportFrom(o, v)
					return export(via[like], via[like])
				})
			}
		}
	}
	collect(op.blocks[0], func(v, _ *Value) *Value { return a.val(exportFrom(op, v)) })
	return out
}
