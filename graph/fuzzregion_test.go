package graph_test

import "slices"

// region writes a structured op.
func (g *gen) region(s *scope) *fnode {
	g.depth++
	defer func() { g.depth-- }()
	kinds := []string{"scan", "scan", "checkpoint", "checkpoint", "cond", "cond", "grad"}
	if s.manual != 1<<len(fuzzAxes)-1 {
		kinds = append(kinds, "shard_map", "shard_map", "shard_map")
	}
	n := &fnode{op: kinds[g.r.IntN(len(kinds))]}
	switch n.op {
	case "scan":
		g.scan(s, n)
	case "checkpoint":
		n.policy = policies[g.r.IntN(len(policies))]
		n.blocks, n.outs = []*fblock{{}}, nil
		in := g.body(s, n.blocks[0], nil)
		n.blocks[0].yields = g.last(in, 2)
		n.outs = in.types(n.blocks[0].yields)
	case "cond":
		if !g.cond(s, n) {
			return nil
		}
	case "grad":
		g.gradient(s, n)
	case "shard_map":
		g.shardMap(s, n)
	}
	return n
}

// body fills blk with some nodes; change adapts the scope first.
func (g *gen) body(s *scope, blk *fblock, change func(in *scope)) *scope {
	in := &scope{blk: blk, manual: s.manual, diverge: s.diverge}
	if !blk.closed {
		in.env = slices.Clone(s.env)
	}
	in.env = append(in.env, blk.params...)
	if change != nil {
		change(in)
	}
	for range 1 + g.r.IntN(min(4, max(1, g.budget))) {
		g.node(in)
	}
	return in
}

// scan: ints are the iterations, the carries, and 1 for reverse. Operands are
// carries, then rows.
func (g *gen) scan(s *scope, n *fnode) {
	count := 1 + g.r.IntN(3)
	blk := &fblock{}
	carries := g.r.IntN(3)
	for range carries {
		i := g.pick(s, nil)
		n.in = append(n.in, i)
		// An upper bound: it may come to vary over every manual axis.
		blk.params = append(blk.params, ftype{s.env[i].shape, s.manual})
	}
	for range g.r.IntN(3) {
		i := g.pick(s, func(t ftype) bool {
			return len(t.shape) > 0 && (len(n.in) == carries || t.shape[0] == count)
		})
		if i < 0 {
			continue
		}
		count = s.env[i].shape[0]
		n.in = append(n.in, i)
		blk.params = append(blk.params, ftype{s.env[i].shape[1:], s.env[i].vary})
	}
	n.ints = []int{count, carries, g.r.IntN(2)}
	in := g.body(s, blk, nil)
	for c := range carries {
		shape := blk.params[c].shape
		y := g.pick(in, func(t ftype) bool { return slices.Equal(t.shape, shape) }) // itself, if nothing else
		blk.yields = append(blk.yields, y)
		n.outs = append(n.outs, ftype{shape, s.manual})
	}
	for _, y := range g.last(in, 2) {
		blk.yields = append(blk.yields, y)
		n.outs = append(n.outs, ftype{append([]int{count}, in.env[y].shape...), in.env[y].vary})
	}
	n.blocks = []*fblock{blk}
}

// cond: the operand's sum decides. While axes are left to the compiler devices
// must agree, for it may insert communication in a branch.
func (g *gen) cond(s *scope, n *fnode) bool {
	x := g.pick(s, func(t ftype) bool { return t.vary == 0 || s.manual == 1<<len(fuzzAxes)-1 })
	if x < 0 {
		return false
	}
	n.in = []int{x}
	vary := s.env[n.in[0]].vary
	var results [2][]ftype
	for k := range 2 {
		blk := &fblock{}
		in := g.body(s, blk, func(in *scope) {
			in.diverge |= vary
			for i := range in.env {
				in.env[i].vary |= vary
			}
		})
		if k == 0 {
			blk.yields = g.last(in, 2)
		} else {
			for _, t := range results[0] {
				y := g.pick(in, func(u ftype) bool { return slices.Equal(t.shape, u.shape) })
				if y < 0 {
					x := g.pick(in, nil)
					in.add(&fnode{op: "fit", in: []int{x}, ints: t.shape, outs: []ftype{{t.shape, in.env[x].vary}}})
					y = len(in.env) - 1
				}
				blk.yields = append(blk.yields, y)
			}
		}
		results[k] = in.types(blk.yields)
		n.blocks = append(n.blocks, blk)
	}
	for i, t := range results[0] {
		n.outs = append(n.outs, ftype{t.shape, t.vary | results[1][i].vary | vary})
	}
	return true
}

// gradient: the results are the gradients of the body's summed results with
// respect to its parameters.
func (g *gen) gradient(s *scope, n *fnode) {
	blk := &fblock{closed: true}
	for range 1 + g.r.IntN(2) {
		i := g.pick(s, nil)
		n.in = append(n.in, i)
		blk.params = append(blk.params, s.env[i])
		n.outs = append(n.outs, s.env[i])
	}
	in := g.body(s, blk, nil)
	blk.yields = g.last(in, 2)
	n.blocks = []*fblock{blk}
}

// shardMap makes some more axes manual.
func (g *gen) shardMap(s *scope, n *fnode) {
	set := g.subset((1<<len(fuzzAxes) - 1) &^ s.manual)
	n.axes = set.names()
	blk := &fblock{}
	for range 1 + g.r.IntN(2) {
		i := g.pick(s, nil)
		spec, local := g.split(s.env[i], set)
		n.in, n.specs = append(n.in, i), append(n.specs, spec)
		blk.params = append(blk.params, local)
	}
	in := g.body(s, blk, func(in *scope) { in.manual |= set })
	for _, y := range g.last(in, 2) {
		t := ftype{slices.Clone(in.env[y].shape), in.env[y].vary}
		spec := make([][]string, len(t.shape))
		for _, a := range g.shuffled(set.names()) {
			axis := axesOf([]string{a})
			name := len(spec) > 0 && t.elements()*fuzzAxisSize <= maxElements && g.chance(0.6)
			switch {
			case name && (t.vary&axis != 0 || g.chance(0.3)):
				d := g.r.IntN(len(spec))
				spec[d] = append([]string{a}, spec[d]...)
				t.shape[d] *= fuzzAxisSize
			case t.vary&axis != 0: // must become the same everywhere
				out := ftype{in.env[y].shape, in.env[y].vary &^ axis}
				in.add(&fnode{op: "all_reduce", in: []int{y}, axes: []string{a}, outs: []ftype{out}})
				y = len(in.env) - 1
			}
			t.vary &^= axis
		}
		blk.yields = append(blk.yields, y)
		n.specs = append(n.specs, spec)
		n.outs = append(n.outs, t)
	}
	n.blocks = []*fblock{blk}
}
