package graph

// Footprint is an estimate of the memory of a program on one device, in bytes.
type Footprint struct {
	// Arguments and Outputs are those of the program; Donated the part of the
	// outputs that lives in memory of arguments.
	Arguments, Outputs, Donated int64
	// Temp is the most that is held at once besides them, Host what is moved to the
	// host's memory.
	Temp, Host int64
}

// InUse is what the device must have: arguments, outputs and temporaries, donated
// memory counted once.
func (f Footprint) InUse() int64 { return f.Arguments + f.Outputs - f.Donated + f.Temp }

// Footprint estimates the program's memory from the program alone: ops run in the
// order in which they were recorded, an array lives from the op that makes it to
// the last that reads it, and what compilers fuse into its readers as a rule
// (elementwise ops, and those that move elements about) is not held unless it is
// an operand of a contraction, a loop, a collective or another op that needs it
// whole. Compilers pad, order and share otherwise; the differences between two
// forms of the same program are closer to theirs than the numbers themselves.
func (m *Module) Footprint() Footprint {
	e := &footprint{lay: newLayouts(m), root: map[*Value]*Value{}, outputs: map[*Value]bool{}}
	var out Footprint
	for i, p := range m.inputs {
		if !p.Host {
			out.Arguments += e.size(m.main.args[i])
		}
	}
	for i, p := range m.outputs {
		n := e.size(m.main.yields[i])
		if p.Spec != nil {
			n = int64(p.Type.Bytes()) / int64(e.lay.shardsOf(e.lay.asked(e.lay.get(m.main.yields[i]), *p.Spec)))
		}
		if out.Outputs += n; p.Alias >= 0 {
			out.Donated += n
		}
	}
	e.flatten(m.main)
	for _, y := range m.main.yields {
		e.outputs[e.of(y)] = true
	}
	out.Temp, out.Host = e.peak(m.main, false)
	return out
}

// footprint counts a program.
type footprint struct {
	lay *layouts
	// root is the array in whose memory a value lives, where that is another.
	root    map[*Value]*Value
	outputs map[*Value]bool // arrays that leave the program
}

// of returns the array in whose memory v lives.
func (e *footprint) of(v *Value) *Value {
	for e.root[v] != nil {
		v = e.root[v]
	}
	return v
}

func (e *footprint) size(v *Value) int64 {
	return int64(v.typ.Bytes()) / int64(e.lay.shardsOf(e.lay.get(v)))
}

// isInline reports whether the ops of a region belong to the block around it.
func isInline(k opKind) bool { return k == opCheckpoint || k == opCustomVJP || k == opShardMap }

// share makes v live in the memory of u.
func (e *footprint) share(v, u *Value) {
	if e.of(u) != e.of(v) {
		e.root[e.of(v)] = u
	}
}

// flatten finds out which values share memory.
func (e *footprint) flatten(blk *Block) {
	for _, op := range blk.ops {
		switch k := op.kind; {
		case isInline(k):
			for i, a := range op.blocks[0].args {
				e.share(a, op.operands[i])
			}
			e.flatten(op.blocks[0])
			for i, y := range op.blocks[0].yields {
				e.share(op.results[i], y)
			}
		case k == opScan:
			at := op.attr.(*scanAttr)
			for i := range at.consts {
				e.share(op.blocks[0].args[i], op.operands[i])
			}
			for i := range at.carries {
				e.share(op.results[i], op.operands[at.consts+i])
			}
			e.flatten(op.blocks[0])
		case k == opWhile:
			at := op.attr.(whileAttr)
			for _, inner := range op.blocks {
				for i := at.carries; i < len(op.operands); i++ {
					e.share(inner.args[i], op.operands[i])
				}
				e.flatten(inner)
			}
			for i := range op.results {
				e.share(op.results[i], op.operands[i])
			}
		case k == opCond:
			for _, inner := range op.blocks {
				for i, a := range inner.args {
					e.share(a, op.operands[1+i])
				}
				e.flatten(inner)
			}
		case k == opKept:
			e.share(op.results[0], op.operands[len(op.operands)-1])
		case k == opDynamicUpdateSlice:
			e.share(op.results[0], op.operands[0])
		case k == opReshape || isIdentity(k) && k != opToMemory:
			for i, r := range op.results {
				e.share(r, op.operands[i])
			}
		}
	}
}

// isFused reports whether compilers compute the op where its result is read.
func isFused(k opKind) bool {
	return k == opConst || k >= opIota && k <= opSelect || k >= opBroadcast && k <= opDynamicSlice || k == opThreefry
}

// readsInPlace reports whether op can compute its operands itself.
func readsInPlace(k opKind) bool {
	return isFused(k) || k == opReduce || k == opArgReduce || k == opDynamicUpdateSlice
}

// span is when an array is held: from one op of a block to another.
type span struct {
	from, to int
	held     bool // not computed where it is read
}

// liveness is what happens in a block.
type liveness struct {
	e     *footprint
	spans map[*Value]*span
	ops   []*Op // with those of inline regions, in order
}

func (l *liveness) collect(blk *Block) {
	for _, op := range blk.ops {
		if isInline(op.kind) {
			l.collect(op.blocks[0])
			continue
		}
		for _, r := range op.results {
			if l.e.of(r) == r {
				l.spans[r] = &span{from: len(l.ops), to: -1, held: !isFused(op.kind)}
			}
		}
		l.ops = append(l.ops, op)
	}
}

// read notes that v is read at op number i, by one that needs it whole or not.
func (l *liveness) read(v *Value, i int, whole bool) {
	v = l.e.of(v)
	s := l.spans[v]
	if s == nil {
		return // from another block: it is held there
	}
	s.held = s.held || whole
	s.to = max(s.to, i)
}

// peak returns the most that the ops of blk hold at once besides the arrays of
// blocks around it; what is on the host in all. rows says that blk is the body of a
// loop, whose arguments are rows of other arrays.
func (e *footprint) peak(blk *Block, loop bool) (device, host int64) {
	l := &liveness{e: e, spans: map[*Value]*span{}}
	if loop {
		for _, a := range blk.args {
			if e.of(a) == a {
				l.spans[a] = &span{from: 0, to: -1}
			}
		}
	}
	l.collect(blk)
	n := len(l.ops)
	for _, y := range blk.yields {
		l.read(y, n, loop)
	}
	// Backwards, so that it is known of every op whether its result is held before
	// its operands are: what is not held reads them when its readers do.
	inner := make([]int64, n+1)
	for i := n - 1; i >= 0; i-- {
		op := l.ops[i]
		at := i
		if isFused(op.kind) && op.kind != opDynamicUpdateSlice {
			if s := l.spans[e.of(op.results[0])]; s != nil && !s.held {
				if at = s.to; at < 0 {
					continue // never read
				}
			}
		}
		for _, o := range op.operands {
			l.read(o, at, !readsInPlace(op.kind))
		}
		for _, b := range op.blocks {
			d, h := e.peak(b, op.kind != opCond)
			inner[i], host = max(inner[i], d), max(host, h)
		}
	}
	change := make([]int64, n+2)
	for v, s := range l.spans {
		if !s.held || s.to < s.from || e.outputs[v] || loop && s.to == n && v.isOnHost() { // a row of a stack
			continue
		}
		if v.isOnHost() {
			host += e.size(v)
			continue
		}
		change[s.from] += e.size(v)
		change[s.to+1] -= e.size(v)
	}
	var now int64
	for i := range n + 1 {
		now += change[i]
		device = max(device, now+inner[i])
	}
	return device, host
}

// isOnHost reports whether v was moved to the host's memory, or is a stack of rows
// that a loop moved there.
func (v *Value) isOnHost() bool {
	for v.op != nil {
		switch v.op.kind {
		case opToMemory:
			return v.op.attr.(string) == hostMemory
		case opReshape, opName, opKept, opSlice, opDynamicSlice, opPvary:
			v = v.op.operands[len(v.op.operands)-1]
		case opScan, opCheckpoint, opCustomVJP, opShardMap:
			v = v.op.blocks[0].yields[v.index]
		default:
			return false
		}
	}
	return false
}
