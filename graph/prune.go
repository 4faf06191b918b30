package graph

import "slices"

// prune removes what no output depends on: ops, extra results, loop carries,
// region arguments and barrier operands.
func (m *Module) prune() {
	replaceKept(m.main)
	used := map[*Value]bool{}
	for _, y := range m.main.yields {
		used[y] = true
	}
	m.main.mark(used)
	m.main.sweep(used)
}

// replaceKept drops the recomputed operand of kept ops; after differentiation
// only the saved one counts.
func replaceKept(blk *Block) {
	for _, op := range blk.ops {
		if op.kind == opKept && len(op.operands) == 2 {
			op.operands = op.operands[1:]
		}
		for _, inner := range op.blocks {
			replaceKept(inner)
		}
	}
}

// mark adds to used all values that the used ones need. It may be called again
// as used grows.
func (blk *Block) mark(used map[*Value]bool) {
	for i := len(blk.ops) - 1; i >= 0; i-- {
		op := blk.ops[i]
		if len(op.blocks) > 0 {
			op.markRegion(used)
			continue
		}
		live := defs[op.kind].effect
		for _, r := range op.results {
			live = live || used[r]
		}
		if !live {
			continue
		}
		for k, o := range op.operands {
			if op.kind != opBarrier || used[op.results[k]] {
				used[o] = true
			}
		}
	}
}

func (op *Op) anyUsed(used map[*Value]bool) bool {
	return slices.ContainsFunc(op.results, func(r *Value) bool { return used[r] })
}

func (op *Op) markRegion(used map[*Value]bool) {
	if !op.anyUsed(used) {
		return
	}
	if op.kind == opWhile {
		op.markWhile(used)
		return
	}
	first := 0 // operand of the first argument
	if op.kind == opCond {
		used[op.operands[0]] = true
		first = 1
	}
	for {
		for _, blk := range op.blocks {
			for i, y := range blk.yields {
				if used[op.results[i]] {
					used[y] = true
				}
			}
			blk.mark(used)
		}
		at, ok := op.attr.(*scanAttr)
		grown := false
		if ok {
			for i := range at.carries { // what an iteration reads, the one before must give
				if c := op.blocks[0].args[at.consts+i]; used[c] && !used[op.results[i]] {
					used[op.results[i]], grown = true, true
				}
			}
		}
		if !grown {
			break
		}
	}
	for _, blk := range op.blocks {
		for i, a := range blk.args {
			if used[a] {
				used[op.operands[first+i]] = true
			}
		}
	}
	if at, ok := op.attr.(*scanAttr); ok { // a carry that leaves must enter
		for i := range at.carries {
			if used[op.results[i]] {
				used[op.operands[at.consts+i]], used[op.blocks[0].args[at.consts+i]] = true, true
			}
		}
	}
}

// markWhile marks the carries that the condition reads, those whose result is used,
// and those that these are computed from.
func (op *Op) markWhile(used map[*Value]bool) {
	n := op.attr.(whileAttr).carries
	cond, body := op.blocks[0], op.blocks[1]
	used[cond.yields[0]] = true
	cond.mark(used)
	for grown := true; grown; {
		grown = false
		for i := range n {
			if (used[cond.args[i]] || used[body.args[i]]) && !used[op.results[i]] {
				used[op.results[i]], grown = true, true
			}
			if used[op.results[i]] {
				used[body.yields[i]] = true
			}
		}
		body.mark(used)
		for i := range n {
			grown = grown || used[body.args[i]] && !used[op.results[i]]
		}
	}
	for i, o := range op.operands {
		if i < n && used[op.results[i]] || i >= n && (used[cond.args[i]] || used[body.args[i]]) {
			used[o] = true
		}
	}
}

// sweep removes what mark left unmarked.
func (blk *Block) sweep(used map[*Value]bool) {
	blk.ops = slices.DeleteFunc(blk.ops, func(op *Op) bool { return !op.anyUsed(used) && !defs[op.kind].effect })
	for _, op := range blk.ops {
		switch op.kind {
		case opBarrier:
			keep := func(i int) bool { return used[op.results[i]] }
			op.operands = filter(op.operands, keep)
			op.results = filter(op.results, keep)
			reindex(op.results)
		case opWhile:
			op.sweepWhile(used)
		case opScan, opCond, opCheckpoint, opCustomVJP, opShardMap:
			op.sweepRegion(used)
		}
	}
}

func (op *Op) sweepRegion(used map[*Value]bool) {
	first := 0
	if op.kind == opCond {
		first = 1
	}
	args := make([]bool, len(op.operands)-first)
	for _, blk := range op.blocks {
		for i, a := range blk.args {
			args[i] = args[i] || used[a]
		}
	}
	keepArg := func(i int) bool { return args[i] }
	keepResult := func(i int) bool { return used[op.results[i]] }
	switch at := op.attr.(type) {
	case *scanAttr:
		nc, nk := at.consts, at.carries
		for i := range nk {
			if !keepResult(i) {
				at.carries--
			}
		}
		for i := range nc {
			if !args[i] {
				at.consts--
			}
		}
		for i := range at.ahead {
			if !args[len(args)-1-i] {
				at.ahead--
			}
		}
		for i := range at.behind {
			if !keepResult(len(op.results) - 1 - i) {
				at.behind--
			}
		}
	case *shardMapAttr:
		at.in = filter(at.in, keepArg)
		for i := at.declared - 1; i >= 0; i-- {
			if !keepResult(i) {
				at.declared--
			}
		}
		at.out = filter(at.out, keepResult)
	case *condAttr:
		declared := at.declared
		at.used = filter(at.used, func(i int) bool { return keepResult(declared + i) })
		for i := at.declared - 1; i >= 0; i-- {
			if !keepResult(i) {
				at.declared--
			}
		}
	}
	for _, blk := range op.blocks {
		blk.yields = filter(blk.yields, keepResult)
	}
	op.operands = append(op.operands[:first:first], filter(op.operands[first:], keepArg)...)
	op.results = filter(op.results, keepResult)
	reindex(op.results)
	for _, blk := range op.blocks {
		blk.args = filter(blk.args, keepArg)
		reindex(blk.args)
		blk.sweep(used)
	}
}

func (op *Op) sweepWhile(used map[*Value]bool) {
	at := op.attr.(whileAttr)
	n, cond, body := at.carries, op.blocks[0], op.blocks[1]
	keepResult := func(i int) bool { return used[op.results[i]] }
	var keep []bool
	for i := range op.operands {
		keep = append(keep, i < n && keepResult(i) || i >= n && (used[cond.args[i]] || used[body.args[i]]))
	}
	keepArg := func(i int) bool { return keep[i] }
	body.yields = filter(body.yields, keepResult)
	op.operands = filter(op.operands, keepArg)
	op.results = filter(op.results, keepResult)
	reindex(op.results)
	for _, blk := range op.blocks {
		blk.args = filter(blk.args, keepArg)
		reindex(blk.args)
		blk.sweep(used)
	}
	at.carries = len(op.results)
	op.attr = at
}

func filter[E any](xs []E, keep func(i int) bool) []E {
	out := make([]E, 0, len(xs))
	for i, x := range xs {
		if keep(i) {
			out = append(out, x)
		}
	}
	return out
}

func reindex(vs []*Value) {
	for i, v := range vs {
		v.index = i
	}
}
