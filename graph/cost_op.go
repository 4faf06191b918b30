package graph

import "strings"

// scale says how often the ops of a block run: times on one device, and on how
// many devices of manual axes at once.
type scale struct{ times, copies float64 }

// tally collects the costs of a block.
type tally struct {
	ops     []*OpCost
	unknown []string // lines of while loops
}

func (t *tally) add(o *tally) {
	t.ops, t.unknown = append(t.ops, o.ops...), append(t.unknown, o.unknown...)
}

func (t *tally) deviceFlops() (sum float64) {
	for _, op := range t.ops {
		sum += op.Device.Flops
	}
	return sum
}

// coster counts a program.
type coster struct {
	m       *Module
	lay     *layouts
	uses    map[*Value]int
	pending map[*Value]*partial
	placed  map[placement]bool
}

func newCoster(m *Module) *coster {
	c := &coster{m: m, lay: newLayouts(m), uses: map[*Value]int{}, pending: map[*Value]*partial{}, placed: map[placement]bool{}}
	var count func(blk *Block)
	count = func(blk *Block) {
		for _, op := range blk.ops {
			for _, o := range op.operands {
				c.uses[o]++
			}
			for _, inner := range op.blocks {
				count(inner)
			}
		}
		for _, y := range blk.yields {
			c.uses[y]++
		}
	}
	count(m.main)
	return c
}

// classOf groups kinds of ops; free ones only say something to the compiler.
func classOf(k opKind) (c CostClass, free bool) {
	switch {
	case k == opConst, isIdentity(k) && k != opToMemory, k == opReshape, regionCount(k) != 0:
		return CostMovement, true
	case k == opDot:
		return CostContraction, false
	case k > opIota && k <= opSelect, k == opThreefry:
		return CostElementwise, false
	case k == opGather, k == opScatter:
		return CostIndexing, false
	case k == opReduce, k == opArgReduce, k == opCumsum, k == opSort:
		return CostReduction, false
	case k == opCustomCall:
		return CostCustomCall, false
	case isCollective(k):
		return CostCollective, false
	}
	return CostMovement, false
}

// touched lists the operands and results (numbered on) that have the size of
// what op reads and writes.
func touched(op *Op) []int {
	n := len(op.operands)
	switch op.kind {
	case opSlice:
		return []int{n, n}
	case opDynamicSlice, opGather: // the indices; the part taken is read and written
		return append(seq(1, n), n, n)
	case opDynamicUpdateSlice: // in place: the update and the starts are read, the update is written
		return append(seq(1, n), 1)
	case opScatter: // in place: what updates are combined with is read and written
		return append(seq(1, n), 2, 2)
	}
	return seq(0, n+len(op.results))
}

// block counts blk.
func (c *coster) block(blk *Block, s scale) *tally {
	t := &tally{}
	for _, op := range blk.ops {
		if len(op.blocks) > 0 {
			c.region(op, s, t)
		} else {
			c.op(op, s, t)
		}
	}
	for _, y := range blk.yields {
		c.complete(y)
	}
	return t
}

func (c *coster) entry(op *Op, s scale, t *tally) *OpCost {
	class, _ := classOf(op.kind)
	cost := &OpCost{Op: op.name(), Pos: op.pos.String(), Class: class, Times: s.times}
	if call, ok := op.attr.(CustomCallSpec); ok {
		cost.Kernel = strings.Trim(call.Attributes["kernel_name"], `"`)
	}
	if len(op.results) > 0 {
		cost.Result = op.results[0].typ
	}
	t.ops = append(t.ops, cost)
	return cost
}

// op counts an op without regions.
func (c *coster) op(op *Op, s scale, t *tally) {
	cost := c.entry(op, s, t)
	r, ts := c.lay.rule(op), c.lay.tensors(op)
	split := c.lay.choose(r, ts)
	merged := c.merge(op)
	if merged != nil {
		split = merged.made.dims // the rule of an addition has a factor for each dimension
	} else {
		for _, o := range op.operands {
			c.complete(o)
		}
	}
	need := make([]*layout, len(ts))
	for i := range ts {
		need[i] = c.lay.needed(r, r.maps[i], split)
	}
	for i, o := range op.operands {
		if merged == nil {
			c.place(cost, o, need[i], s)
		}
	}
	var used axisSet
	for _, axes := range split {
		for _, a := range axes {
			used |= 1 << a
		}
	}
	cost.Split = c.m.axisNames(used)
	if _, free := classOf(op.kind); !free {
		c.work(op, cost, need, c.m.axisSize(used), s)
	}
	if isCollective(op.kind) {
		c.explicit(cost, op, need, s)
	}
	switch sums := r.sums(split); {
	case merged != nil:
		c.pending[op.results[0]] = &partial{op, cost, merged.over, merged.made, s}
	case len(sums) > 0:
		for i, v := range op.results {
			c.pending[v] = &partial{op, cost, sums, need[len(op.operands)+i], s}
		}
	default:
		for i, v := range op.results {
			c.reshard(cost, v.typ, need[len(op.operands)+i], c.lay.get(v), s)
		}
	}
}

// work counts arithmetic and memory traffic, shared by n devices.
func (c *coster) work(op *Op, cost *OpCost, need []*layout, n int, s scale) {
	var all, mine Work
	if f := defs[op.kind].flops; f != nil {
		all.Flops = f(op)
		mine.Flops = all.Flops / float64(n)
	}
	ts := c.lay.tensors(op)
	for _, i := range touched(op) {
		b := float64(ts[i].v.typ.Bytes())
		all.Bytes += b
		mine.Bytes += b / float64(c.lay.shardsOf(need[i]))
	}
	if at, ok := op.attr.(CustomCallSpec); ok && at.Bytes > 0 {
		all.Bytes, mine.Bytes = at.Bytes, at.Bytes
	}
	cost.Global.add(all, s.times*s.copies)
	cost.Device.add(mine, s.times)
}

// region counts an op with regions: what crosses its borders, and its blocks.
func (c *coster) region(op *Op, s scale, t *tally) {
	cost := c.entry(op, s, t)
	for _, o := range op.operands {
		c.complete(o)
	}
	inside := s
	switch at := op.attr.(type) {
	case *scanAttr:
		inside.times *= float64(at.n)
	case *shardMapAttr:
		inside.copies *= float64(c.m.axisSize(at.manual))
	case whileAttr:
		if !at.told {
			t.unknown = append(t.unknown, op.pos.String())
			break
		}
		inside.times *= at.trips
	}
	edges := regionEdges(op)
	for _, e := range edges {
		if e.outer.block == op.block && e.inner.op == nil && e.outer.op != op {
			c.place(cost, e.outer, c.lay.outside(e), s)
		}
	}
	var costliest *tally
	for _, blk := range op.blocks {
		inner := c.block(blk, inside)
		switch {
		case op.kind != opCond:
			t.add(inner)
		case costliest == nil || inner.deviceFlops() > costliest.deviceFlops():
			costliest = inner
		}
	}
	if costliest != nil {
		t.add(costliest)
	}
	for _, e := range edges {
		// A yield to a result, or to the next iteration's argument. What the last
		// iteration leaves has been counted with that.
		if (e.outer.op == op || e.outer.block != op.block) && !e.last {
			c.reshard(cost, e.inner.typ, c.lay.get(e.inner), c.lay.inside(e), inside)
		}
	}
}
