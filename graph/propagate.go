package graph

import (
	"slices"

	"titan/sharding"
)

// This file and its neighbours work out how the compiler is going to split every
// value over the mesh: a light version of Shardy's propagation, good enough to
// count what one device computes and sends. From the shardings of inputs,
// outputs, constraints and manual regions, splits spread to neighbouring values
// along the dimensions that an op relates, forward and backward, until nothing
// changes:
//
//   - A split only grows, at its minor end, and never beyond what divides evenly.
//   - A mesh axis splits one dimension of a value.
//   - Of conflicting wishes that of the largest value wins, then that of the
//     first operand.
//   - Ops that keep dimensions (elementwise, transposes, region borders) come
//     first, then contractions and the like, then broadcasts to larger shapes.

// layout is how one value is split: for each dimension the mesh axes, major to
// minor. Axes of size 1 split nothing and do not occur.
type layout struct {
	dims   [][]uint8
	used   axisSet
	closed []bool // dimensions whose split is fixed; nil for none
	grown  int    // when it grew last
}

func (l *layout) fixed(d int) bool { return l.closed != nil && l.closed[d] }

// layouts holds the layout of every value of a program.
type layouts struct {
	m     *Module
	sizes []int     // of the mesh axes
	of    []*layout // by value id
	rules map[*Op]*rule
	clock int // counts changes
}

// newLayouts propagates the program's shardings. Without a mesh nothing is split.
func newLayouts(m *Module) *layouts {
	p := &layouts{m: m, of: make([]*layout, m.nextID+1), rules: map[*Op]*rule{}}
	if m.mesh != nil {
		for _, a := range m.mesh.Axes() {
			p.sizes = append(p.sizes, a.Size)
		}
	}
	p.open(m.main)
	for i, in := range m.inputs {
		if in.Spec != nil {
			p.fix(m.main.args[i], *in.Spec, 0)
		}
	}
	if m.mesh == nil || m.mesh.Size() == 1 {
		return p
	}
	for level := range levels {
		for p.sweep(m.main, level, false) || p.sweep(m.main, level, true) {
		}
	}
	return p
}

// get is the layout of v.
func (p *layouts) get(v *Value) *layout { return p.of[v.id] }

// open gives every value an open layout, and constrained ones theirs.
func (p *layouts) open(blk *Block) {
	for _, a := range blk.args {
		p.of[a.id] = &layout{dims: make([][]uint8, a.Rank())}
	}
	for _, op := range blk.ops {
		for _, r := range op.results {
			p.of[r.id] = &layout{dims: make([][]uint8, r.Rank())}
		}
		for _, inner := range op.blocks {
			p.open(inner)
		}
		switch at := op.attr.(type) {
		case constrainAttr:
			p.fix(op.results[0], at.spec, 0)
		case *shardMapAttr:
			rest := axisSet(1<<len(p.sizes)-1) &^ (at.manual | at.around)
			for i, r := range op.results {
				p.fix(r, at.out[i], rest)
			}
		}
	}
}

// fix gives v the layout of spec. Dimensions are closed unless the spec leaves
// them open or axes are left that the compiler may add.
func (p *layouts) fix(v *Value, spec sharding.Spec, left axisSet) {
	l := p.of[v.id]
	l.closed = make([]bool, len(l.dims))
	for d := range l.dims {
		l.dims[d] = p.axes(spec, d)
		for _, a := range l.dims[d] {
			l.used |= 1 << a
		}
		l.closed[d] = left == 0 && !spec.IsOpen(d)
	}
}

// axes gives the axes of one dimension of a spec.
func (p *layouts) axes(spec sharding.Spec, d int) []uint8 {
	var out []uint8
	for _, name := range spec.Dim(d) {
		if i := slices.Index(p.m.axes, name); i >= 0 && p.sizes[i] > 1 {
			out = append(out, uint8(i))
		}
	}
	return out
}

// sweep visits every op once and reports whether a layout grew.
func (p *layouts) sweep(blk *Block, level int, backward bool) bool {
	grew := false
	if blk == p.m.main && backward {
		grew = p.outputs()
	}
	for i := range blk.ops {
		op := blk.ops[i]
		if backward {
			op = blk.ops[len(blk.ops)-1-i]
		}
		if len(op.blocks) == 0 {
			grew = p.spreadOp(op, level) || grew
			continue
		}
		edges := regionEdges(op)
		grew = p.spreadEdges(edges) || grew
		for _, inner := range op.blocks {
			grew = p.sweep(inner, level, backward) || grew
		}
		grew = p.spreadEdges(edges) || grew
	}
	return grew
}

// outputs asks the values that leave the program for the outputs' shardings.
func (p *layouts) outputs() bool {
	grew := false
	for i, out := range p.m.outputs {
		if out.Spec == nil {
			continue
		}
		l := p.get(p.m.main.yields[i])
		for d := range l.dims {
			grew = p.grow(l, d, p.axes(*out.Spec, d)) || grew
		}
	}
	return grew
}

// grow extends the split of dimension d towards want, as far as the axes are
// free. A split that is not the start of want stays as it is.
func (p *layouts) grow(l *layout, d int, want []uint8) bool {
	have := l.dims[d]
	if len(want) <= len(have) || l.fixed(d) || !slices.Equal(have, want[:len(have)]) {
		return false
	}
	n := len(have)
	for n < len(want) && l.used>>want[n]&1 == 0 {
		l.used |= 1 << want[n]
		n++
	}
	if n == len(have) {
		return false
	}
	l.dims[d] = slices.Clone(want[:n])
	p.clock++
	l.grown = p.clock
	return true
}

// shards is the number of parts that the axes make.
func (p *layouts) shards(axes []uint8) int {
	n := 1
	for _, a := range axes {
		n *= p.sizes[a]
	}
	return n
}

// tensor is an operand or result of an op with its layout.
type tensor struct {
	v *Value
	*layout
}

// tensors lists op's operands, then its results.
func (p *layouts) tensors(op *Op) []tensor {
	out := make([]tensor, 0, len(op.operands)+len(op.results))
	for _, v := range op.operands {
		out = append(out, tensor{v, p.get(v)})
	}
	for _, v := range op.results {
		out = append(out, tensor{v, p.get(v)})
	}
	return out
}

func (p *layouts) rule(op *Op) *rule {
	r := p.rules[op]
	if r == nil {
		r = ruleOf(op)
		p.rules[op] = r
	}
	return r
}

// spreadOp spreads splits among the operands and results of an op without
// regions.
func (p *layouts) spreadOp(op *Op, level int) bool {
	forward, backward := directions(op.kind, level)
	if !forward && !backward {
		return false
	}
	r := p.rule(op)
	news := r.level != level && p.anyGrown(op, -1) || p.anyGrown(op, r.seen)
	r.level, r.seen = level, p.clock
	if !news {
		return false
	}
	ts := p.tensors(op)
	wish := p.wishes(r, ts)
	grew := false
	for i, t := range ts {
		if i < len(op.operands) && !backward || i >= len(op.operands) && !forward {
			continue
		}
		for _, w := range wish {
			for d, fs := range r.maps[i] {
				if slices.Contains(fs, w.factor) {
					grew = p.grow(t.layout, d, p.dimAxes(r, fs, wish)) || grew
				}
			}
		}
	}
	return grew
}

// anyGrown reports whether a value of op is split, and was split since.
func (p *layouts) anyGrown(op *Op, since int) bool {
	grown := func(v *Value) bool { l := p.get(v); return l.used != 0 && l.grown > since }
	return slices.ContainsFunc(op.operands, grown) || slices.ContainsFunc(op.results, grown)
}

// wish is the split of a factor that an op's values ask for.
type wish struct {
	factor int
	axes   []uint8
	size   int // of the largest value that asks
}

// wishes collects what the values ask of each factor, strongest first.
func (p *layouts) wishes(r *rule, ts []tensor) []wish {
	order := seq(0, len(ts))
	slices.SortStableFunc(order, func(a, b int) int { return ts[b].v.typ.Bytes() - ts[a].v.typ.Bytes() })
	byFactor := make([]wish, len(r.sizes))
	for _, i := range order {
		for d, fs := range r.maps[i] {
			for k, axes := range p.project(r, fs, ts[i].dims[d]) {
				w := &byFactor[fs[k]]
				switch {
				case len(axes) == 0:
				case w.axes == nil:
					*w = wish{fs[k], axes, ts[i].v.typ.Bytes()}
				case len(axes) > len(w.axes) && slices.Equal(axes[:len(w.axes)], w.axes):
					w.axes = axes
				}
			}
		}
	}
	out := slices.DeleteFunc(byFactor, func(w wish) bool { return w.axes == nil })
	slices.SortStableFunc(out, func(a, b wish) int { return b.size - a.size })
	return out
}

// project deals the axes of a dimension to the factors it consists of, major to
// minor, as long as they divide evenly.
func (p *layouts) project(r *rule, fs []int, axes []uint8) [][]uint8 {
	out := make([][]uint8, len(fs))
	for k, f := range fs {
		room, n := r.sizes[f], 0
		for n < len(axes) && room%p.sizes[axes[n]] == 0 {
			room /= p.sizes[axes[n]]
			n++
		}
		out[k], axes = axes[:n:n], axes[n:]
		if room > 1 {
			break
		}
	}
	return out
}

// dimAxes puts the splits of a dimension's factors together.
func (p *layouts) dimAxes(r *rule, fs []int, wish []wish) []uint8 {
	var out []uint8
	for _, f := range fs {
		room := r.sizes[f]
		for _, w := range wish {
			if w.factor == f {
				out = append(out, w.axes...)
				room /= p.shards(w.axes)
			}
		}
		if room > 1 {
			break
		}
	}
	return out
}
