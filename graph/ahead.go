package graph

import "slices"

// GatherAhead makes loops communicate one iteration away from where they compute: what
// an iteration gathers of the rows it reads, of parameters (AllGatherAgain), is gathered
// by the one before, and what it scatters of the rows it writes by the one after. Each
// has a whole iteration's computation to hide behind then, for the memory of what is
// gathered, and not yet scattered, of one more iteration. Values stay the same to the
// bit. It is done when the trace ends, and costs a collective more of each for a loop.
func (b *Builder) GatherAhead() { b.m.ahead = true }

// gatherAhead changes the loops of blk, where the axes in manual are manual.
func (b *Builder) gatherAhead(blk *Block, manual axisSet) {
	for _, op := range slices.Clone(blk.ops) {
		inside := manual
		if at, ok := op.attr.(*shardMapAttr); ok {
			inside |= at.manual
		}
		for _, inner := range op.blocks {
			b.gatherAhead(inner, inside)
		}
		if at, ok := op.attr.(*scanAttr); ok && at.n > 1 && inside != 0 {
			op.blocks[0].inline()
			l := loop{b: b, op: op, at: at, body: op.blocks[0], manual: manual}
			l.scattersBehind()
			l.gathersAhead()
			l.inTurn()
		}
	}
}

// inline moves the ops of regions that are only marks for differentiation into blk.
func (blk *Block) inline() {
	env := map[*Value]*Value{}
	now := func(v *Value) *Value {
		if w := env[v]; w != nil {
			return w
		}
		return v
	}
	var ops []*Op
	var take func(list []*Op)
	take = func(list []*Op) {
		for _, op := range list {
			for i, o := range op.operands {
				op.operands[i] = now(o)
			}
			if op.kind != opCheckpoint && op.kind != opCustomVJP {
				op.block = blk
				for _, r := range op.results {
					r.block = blk
				}
				ops = append(ops, op)
				continue
			}
			inner := op.blocks[0]
			for i, a := range inner.args {
				env[a] = op.operands[i]
			}
			take(inner.ops)
			for i, y := range inner.yields {
				env[op.results[i]] = now(y)
			}
		}
	}
	take(blk.ops)
	blk.ops = ops
	for i, y := range blk.yields {
		blk.yields[i] = now(y)
	}
}

// loop is a scan whose communication is moved.
type loop struct {
	b      *Builder
	op     *Op
	at     *scanAttr
	body   *Block
	manual axisSet
	// What has been moved into the beginning of the body: collectives, what they
	// read and what is made of their results.
	moved, before, after []*Op
}

// inTurn puts what was moved at the beginning of the body, each collective after the
// one before it is done. They share the links: a compiler that takes them for
// independent reckons with the time of one and begins all of them late.
func (l *loop) inTurn() {
	ops := l.before
	var last *Value
	for _, op := range l.moved {
		if last != nil {
			held := &Op{kind: opBarrier, operands: []*Value{op.operands[0], last}, block: l.body, pos: op.pos}
			c := cloner{m: l.b.m}
			for i, o := range held.operands {
				v := c.copyValue(o, l.body)
				v.op, v.index = held, i
				held.results = append(held.results, v)
			}
			op.operands[0] = held.results[0]
			for _, rest := range [][]*Op{l.after, l.body.ops} {
				replace(rest, last, held.results[1])
			}
			replaceIn(l.body.yields, last, held.results[1])
			ops = append(ops, held)
		}
		ops, last = append(ops, op), op.results[0]
	}
	l.body.ops = slices.Concat(ops, l.after, l.body.ops)
}

// gathersAhead makes what is gathered of rows a carry, gathered for the first iteration
// before the loop, and for every other by the one before it.
func (l *loop) gathersAhead() {
	next := map[*Value]*Value{} // for rows that are read, those of the next iteration
	for _, op := range slices.Clone(l.body.ops) {
		at, ok := op.attr.(collectiveAttr)
		if !ok || op.kind != opAllGather || !at.again {
			continue
		}
		chain, rows, ok := l.cheap(op)
		if !ok {
			continue
		}
		result := op.results[0]
		l.outside(false, func(outer *Block) {
			env := map[*Value]*Value{}
			for i, a := range l.body.args[:l.at.consts] {
				env[a] = l.op.operands[i]
			}
			for _, a := range rows {
				env[a] = l.first(l.op.operands[a.index])
			}
			l.addCarry(l.copy(chain, env, outer), result)
		})
		carry := l.body.args[l.at.consts+l.at.carries-1]
		replace(l.body.ops, result, carry)
		replaceIn(l.body.yields, result, carry)
		env := map[*Value]*Value{}
		for _, a := range l.body.args[:l.at.consts] {
			env[a] = a
		}
		for _, a := range rows {
			if next[a] == nil {
				next[a] = l.readAhead(a)
			}
			env[a] = next[a]
		}
		old := l.body.ops
		l.body.ops = nil
		l.body.yields[l.at.carries-1] = l.copy(chain, env, l.body)
		n := len(l.body.ops) - 1
		l.before, l.moved, l.body.ops = append(l.before, l.body.ops[:n]...), append(l.moved, l.body.ops[n]), old
	}
}

// cheap returns what an op is computed from, in order and itself last, if that is next
// to nothing and begins with rows that the loop reads.
func (l *loop) cheap(op *Op) (chain []*Op, rows []*Value, ok bool) {
	need := map[*Op]bool{}
	var from func(v *Value) bool
	from = func(v *Value) bool {
		switch {
		case v.op == nil && v.index < l.at.consts:
			return true
		case v.op == nil && v.index < l.at.consts+l.at.carries:
			return false
		case v.op == nil:
			if !slices.Contains(rows, v) {
				rows = append(rows, v)
			}
			return true
		case v.op.kind == opBarrier:
			return from(v.op.operands[v.index])
		case need[v.op]:
			return true
		case !light(v.op):
			return false
		}
		need[v.op] = true
		return !slices.ContainsFunc(v.op.operands, func(o *Value) bool { return !from(o) })
	}
	if !from(op.operands[0]) || len(rows) == 0 {
		return nil, nil, false
	}
	need[op] = true
	for _, o := range l.body.ops {
		if need[o] {
			chain = append(chain, o)
		}
	}
	return chain, rows, true
}

// light reports whether an op is elementwise or moves elements about.
func light(op *Op) bool {
	switch op.kind {
	case opDot, opReduce, opArgReduce, opCumsum, opSort, opGather, opScatter, opCustomCall, opToMemory:
		return false
	}
	return len(op.blocks) == 0 && !defs[op.kind].effect && !isCollective(op.kind)
}

// copy records chain once more in blk and returns the last result. Barriers in
// between are left out: they are what keeps a value where it is.
func (l *loop) copy(chain []*Op, env map[*Value]*Value, blk *Block) *Value {
	c := cloner{m: l.b.m}
	var last *Value
	for _, op := range chain {
		for _, o := range op.operands {
			if env[o] == nil {
				env[o] = env[through(o)]
			}
		}
		last = c.op(op, env, blk, nil).results[0]
	}
	return last
}

// through is what v is without barriers.
func through(v *Value) *Value {
	for v.op != nil && v.op.kind == opBarrier {
		v = v.op.operands[v.index]
	}
	return v
}

// outside records ops in the block around the loop, before or after it, and returns
// those that follow.
func (l *loop) outside(after bool, f func(outer *Block)) (rest []*Op) {
	outer := l.op.block
	k := slices.Index(outer.ops, l.op)
	if after {
		k++
	}
	rest = slices.Clone(outer.ops[k:])
	outer.ops = outer.ops[:k:k]
	frames, pos := l.b.frames, l.b.at
	l.b.frames, l.b.at = nil, &l.op.pos
	l.b.push(&frame{block: outer, manual: l.manual})
	f(outer)
	l.b.frames, l.b.at = frames, pos
	outer.ops = append(outer.ops, rest...)
	return rest
}

// first is the row of x that the loop reads first.
func (l *loop) first(x *Value) *Value {
	i := l.index(0)
	return Squeeze(SliceDim(x, 0, i, i+1), 0)
}

// index is the row of an iteration.
func (l *loop) index(iteration int) int {
	if l.at.reverse {
		return l.at.n - 1 - iteration
	}
	return iteration
}

// addCarry makes the loop hand on a value like body's, which begins as init. It yields
// nothing yet.
func (l *loop) addCarry(init, like *Value) (arg, result *Value) {
	k := l.at.consts + l.at.carries
	arg = (&cloner{m: l.b.m}).copyValue(like, l.body)
	l.op.operands = slices.Insert(l.op.operands, k, init)
	l.body.args = slices.Insert(l.body.args, k, arg)
	reindex(l.body.args)
	result = l.op.insertResult(l.at.carries, like.typ)
	result.vary = like.vary & l.manual
	l.body.yields = slices.Insert(l.body.yields, l.at.carries, arg)
	l.at.carries++
	return arg, result
}

// readAhead makes the loop read the row that a stands for an iteration early, too.
func (l *loop) readAhead(a *Value) *Value {
	v := (&cloner{m: l.b.m}).copyValue(a, l.body)
	v.index = len(l.body.args)
	l.body.args = append(l.body.args, v)
	l.op.operands = append(l.op.operands, l.op.operands[a.index])
	l.at.ahead++
	return v
}

// replace makes ops use now in place of was.
func replace(ops []*Op, was, now *Value) {
	for _, op := range ops {
		replaceIn(op.operands, was, now)
	}
}

func replaceIn(vs []*Value, was, now *Value) {
	for i, v := range vs {
		if v == was {
			vs[i] = now
		}
	}
}
