package graph

import "slices"

// scattersBehind makes what is scattered for rows that are written a carry, which the
// next iteration scatters, and what follows the loop for the last one.
func (l *loop) scattersBehind() {
	for _, op := range slices.Clone(l.body.ops) {
		if op.kind != opReduceScatter {
			continue
		}
		chain, y, ok := l.onlyWritten(op)
		if !ok {
			continue
		}
		whole := op.operands[0]
		var init *Value
		l.outside(false, func(*Block) { init = l.b.levelTo(l.b.Zeros(whole.typ), whole.vary) })
		arg, last := l.addCarry(init, whole)
		y++ // behind one more carry
		env := func(from *Value, consts []*Value) map[*Value]*Value {
			m := map[*Value]*Value{whole: from}
			for i, a := range l.body.args[:l.at.consts] {
				m[a] = consts[i]
			}
			return m
		}
		rest := slices.DeleteFunc(l.body.ops, func(o *Op) bool { return len(o.operands) > 0 && slices.Contains(chain, o) })
		l.body.ops = nil
		row := l.copy(chain, env(arg, l.body.args), l.body)
		l.moved, l.after, l.body.ops = append(l.moved, l.body.ops[0]), append(l.after, l.body.ops[1:]...), rest
		l.body.yields[l.at.carries-1], l.body.yields[y] = whole, row
		rows := l.writeBehind(y)
		var full *Value
		after := l.outside(true, func(outer *Block) {
			row := l.copy(chain, env(last, l.op.operands), outer)
			full = DynamicUpdateSliceDim(rows, ExpandDims(row, 0), 0, l.b.Int(S32, int64(l.index(l.at.n-1))))
		})
		replace(after, rows, full)
		replaceIn(l.op.block.yields, rows, full)
	}
}

// onlyWritten returns the ops from op to a row that the loop writes, with the constants
// they read, and which of the loop's results that is, if nothing else comes of op.
func (l *loop) onlyWritten(op *Op) (chain []*Op, result int, ok bool) {
	chain = []*Op{op}
	for v := op.results[0]; ; v = op.results[0] {
		var users []*Op
		for _, o := range l.body.ops {
			for _, x := range o.operands {
				if x == v {
					users = append(users, o)
				}
			}
		}
		result = slices.Index(l.body.yields, v)
		if result >= 0 {
			again := slices.Contains(l.body.yields[result+1:], v)
			return chain, result, len(users) == 0 && !again && result >= l.at.carries
		}
		if len(users) != 1 {
			return nil, 0, false
		}
		op = users[0]
		if len(op.results) != 1 || !light(op) && op.kind != opAllReduce {
			return nil, 0, false
		}
		for _, x := range op.operands {
			switch {
			case x == v || x.op == nil && x.index < l.at.consts:
			case x.op != nil && len(x.op.operands) == 0 && light(x.op):
				chain = append(chain, x.op)
			default:
				return nil, 0, false
			}
		}
		chain = append(chain, op)
	}
}

// writeBehind makes the loop write result y, the last of its results then, an iteration
// late: its first iteration writes what the second writes over.
func (l *loop) writeBehind(y int) *Value {
	row, rows := l.body.yields[y], l.op.results[y]
	l.body.yields = append(slices.Delete(l.body.yields, y, y+1), row)
	l.op.results = append(slices.Delete(l.op.results, y, y+1), rows)
	reindex(l.op.results)
	l.at.behind++
	return rows
}
