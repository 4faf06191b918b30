package graph

import (
	"fmt"
	"slices"
	"strings"

	"titan/sharding"
)

// partial is a value that exists only as one term on each device; the sum over
// the axes is outstanding. Compilers complete it when it is used, and the one for
// TPU adds terms first where it can (the one for CPU does not).
type partial struct {
	op   *Op
	cost *OpCost // of the op that made it, which bears the communication
	over []uint8
	made *layout // how the terms are split
	s    scale
}

// placement is a value brought into some layout; doing it twice is free.
type placement struct {
	v  *Value
	as string
}

// choose decides over which axes the op's devices share each factor. An axis
// goes to the factor that most values are split on, then to that of the larger
// values.
func (p *layouts) choose(r *rule, ts []tensor) [][]uint8 {
	type claim struct {
		values, bytes int
	}
	claims := make([]map[uint8]claim, len(r.sizes))
	order := make([][]uint8, len(r.sizes)) // axes in order of appearance
	bySize := seq(0, len(ts))
	slices.SortStableFunc(bySize, func(a, b int) int { return ts[b].v.typ.Bytes() - ts[a].v.typ.Bytes() })
	type grouped struct {
		axis  uint8
		group int
	}
	best := map[grouped]int{}
	for _, i := range bySize {
		for d, fs := range r.maps[i] {
			for k, axes := range p.project(r, fs, ts[i].dims[d]) {
				f := fs[k]
				for _, a := range axes {
					if claims[f] == nil {
						claims[f] = map[uint8]claim{}
					}
					c, seen := claims[f][a]
					if !seen {
						order[f] = append(order[f], a)
					}
					claims[f][a] = claim{c.values + 1, c.bytes + ts[i].v.typ.Bytes()}
				}
			}
		}
	}
	for f := range claims {
		for a, c := range claims[f] {
			key := grouped{a, r.group[f]}
			if g, ok := best[key]; ok {
				if b := claims[g][a]; b.values > c.values || b.values == c.values && b.bytes >= c.bytes {
					continue
				}
			}
			best[key] = f
		}
	}
	split := make([][]uint8, len(r.sizes))
	for f, axes := range order {
		room := r.sizes[f]
		for _, a := range axes {
			if best[grouped{a, r.group[f]}] == f && room%p.sizes[a] == 0 {
				split[f] = append(split[f], a)
				room /= p.sizes[a]
			}
		}
	}
	return split
}

// sums lists the axes that split summed factors.
func (r *rule) sums(split [][]uint8) []uint8 {
	var out []uint8
	for f, axes := range split {
		if r.sum[f] {
			out = append(out, axes...)
		}
	}
	slices.Sort(out)
	return out
}

// needed is the layout that a value has while an op runs.
func (p *layouts) needed(r *rule, dims [][]int, split [][]uint8) *layout {
	l := &layout{dims: make([][]uint8, len(dims))}
	for d, fs := range dims {
		for _, f := range fs {
			for _, a := range split[f] {
				if l.used>>a&1 == 0 {
					l.dims[d] = append(l.dims[d], a)
					l.used |= 1 << a
				}
			}
		}
	}
	return l
}

// shardsOf is the number of parts a value is split into.
func (p *layouts) shardsOf(l *layout) int {
	n := 1
	for _, axes := range l.dims {
		n *= p.shards(axes)
	}
	return n
}

// asked is l with the dimensions that spec does not leave open as it says.
func (p *layouts) asked(l *layout, spec sharding.Spec) *layout {
	out := &layout{dims: slices.Clone(l.dims)}
	for d := range out.dims {
		if !spec.IsOpen(d) {
			out.dims[d] = p.axes(spec, d)
		}
	}
	return out
}

// outside is the layout that the outer value of an edge must have for the inner
// one to be as it is.
func (p *layouts) outside(e edge) *layout {
	l := &layout{dims: make([][]uint8, e.outer.Rank())}
	for d := range p.get(e.inner).dims {
		l.dims[d+e.lead] = p.outward(e, d)
	}
	return l
}

// inside is the layout that the inner value must have for the outer one to be
// as it is.
func (p *layouts) inside(e edge) *layout {
	l := &layout{dims: make([][]uint8, e.inner.Rank())}
	for d := range l.dims {
		l.dims[d] = p.inward(e, d)
	}
	return l
}

// merge reports whether op adds two partial values that nothing else uses, so
// that the sum can be completed instead of the terms, and if so returns one of
// them.
func (c *coster) merge(op *Op) *partial {
	if op.kind != opAdd {
		return nil
	}
	x, y := c.pending[op.operands[0]], c.pending[op.operands[1]]
	if x == nil || y == nil || op.operands[0] == op.operands[1] || !x.adds() || !y.adds() {
		return nil
	}
	if !slices.Equal(x.over, y.over) || !slices.EqualFunc(x.made.dims, y.made.dims, slices.Equal) {
		return nil
	}
	for _, o := range op.operands {
		if c.uses[o] != 1 {
			return nil
		}
	}
	delete(c.pending, op.operands[0])
	delete(c.pending, op.operands[1])
	return x
}

// adds reports whether the terms are added, not compared.
func (p *partial) adds() bool {
	at, ok := p.op.attr.(reduceAttr)
	return !ok || at.kind == reduceSum
}

// complete reduces v over the devices that hold its terms: onto the parts that
// its layout asks for, else onto all.
func (c *coster) complete(v *Value) {
	p := c.pending[v]
	if p == nil {
		return
	}
	delete(c.pending, v)
	want := c.lay.get(v)
	have := &layout{dims: slices.Clone(p.made.dims)}
	var scatter, all []uint8
	for _, a := range p.over {
		d := slices.IndexFunc(want.dims, func(axes []uint8) bool { return slices.Contains(axes, a) })
		if d < 0 {
			all = append(all, a)
			continue
		}
		scatter = append(scatter, a)
		have.dims[d] = append(slices.Clip(have.dims[d]), a)
	}
	bytes := float64(v.typ.Bytes())
	c.send(p.cost, "reduce_scatter", scatter, bytes/float64(c.lay.shardsOf(p.made)), true, p.s)
	c.send(p.cost, "all_reduce", all, bytes/float64(c.lay.shardsOf(have)), true, p.s)
	c.reshard(p.cost, v.typ, have, want, p.s)
}

// place brings v into the layout that an op needs.
func (c *coster) place(cost *OpCost, v *Value, need *layout, s scale) {
	have := c.lay.get(v)
	if have.used == 0 { // nothing to gather
		return
	}
	key := placement{v, fmt.Sprint(need.dims)}
	if c.placed[key] {
		return
	}
	c.placed[key] = true
	c.reshard(cost, v.typ, have, need, s)
}

// reshard counts the communication that changes a layout: axes that split
// another dimension afterwards are exchanged, axes that split none are gathered.
// Splitting what is whole costs nothing, and is done first.
func (c *coster) reshard(cost *OpCost, t Type, have, need *layout, s scale) {
	if slices.EqualFunc(have.dims, need.dims, slices.Equal) {
		return
	}
	from, to := dimOf(have), dimOf(need)
	var exchange, gather, move []uint8
	bytes := float64(t.Bytes()) / float64(c.lay.shardsOf(have))
	for d, axes := range have.dims {
		for _, a := range axes {
			n, ok := to[a]
			switch {
			case !ok:
				gather = append(gather, a)
			case n != d:
				exchange = append(exchange, a)
			case len(axes) == len(need.dims[d]) && !slices.Equal(axes, need.dims[d]):
				move = append(move, a) // another order
			}
		}
	}
	for a := range to {
		if _, ok := from[a]; !ok {
			bytes /= float64(c.lay.sizes[a])
		}
	}
	c.send(cost, "collective_permute", move, bytes, true, s)
	c.send(cost, "all_to_all", exchange, bytes, true, s)
	c.send(cost, "all_gather", gather, bytes*float64(c.lay.shards(gather)), true, s)
}

// dimOf gives the dimension that each axis splits.
func dimOf(l *layout) map[uint8]int {
	out := map[uint8]int{}
	for d, axes := range l.dims {
		for _, a := range axes {
			out[a] = d
		}
	}
	return out
}

// explicit counts a collective of the program.
func (c *coster) explicit(cost *OpCost, op *Op, need []*layout, s scale) {
	at := op.attr.(collectiveAttr)
	var axes []uint8
	for _, name := range at.axes {
		if i := slices.Index(c.m.axes, name); c.lay.sizes[i] > 1 {
			axes = append(axes, uint8(i))
		}
	}
	bytes := 0.0
	for i, v := range []*Value{op.operands[0], op.results[0]} {
		bytes = max(bytes, float64(v.typ.Bytes())/float64(c.lay.shardsOf(need[i])))
	}
	c.send(cost, op.name(), axes, bytes, false, s)
}

// send notes a collective of so many bytes on one device.
func (c *coster) send(cost *OpCost, kind string, axes []uint8, bytes float64, implied bool, s scale) {
	if len(axes) == 0 || bytes == 0 || s.times == 0 {
		return
	}
	cc := CollectiveCost{Kind: kind, Implied: implied, Count: s.times, Bytes: bytes * s.times}
	n := 1
	for _, a := range axes {
		cc.Axes = append(cc.Axes, c.m.axes[a])
		n *= c.lay.sizes[a]
	}
	cc.Wire = cc.Bytes * wire(kind, n)
	cost.Collectives = append(cost.Collectives, cc)
}

// addCollective adds cc to the entry of its kind and axes.
func addCollective(list []CollectiveCost, byKey map[string]int, cc CollectiveCost) []CollectiveCost {
	key := fmt.Sprint(cc.Kind, cc.Implied, strings.Join(cc.Axes, ","))
	i, ok := byKey[key]
	if !ok {
		byKey[key] = len(list)
		return append(list, cc)
	}
	list[i].Count += cc.Count
	list[i].Bytes += cc.Bytes
	list[i].Wire += cc.Wire
	return list
}
