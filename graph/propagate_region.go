package graph

import (
	"slices"

	"titan/sharding"
)

// edge ties a value of a region to one outside that holds the same data. The
// outer one has lead dimensions more in front (rows of a scan) and, at the
// border of a manual region, is split further as spec says.
type edge struct {
	outer, inner *Value
	lead         int
	spec         *sharding.Spec
	at           *shardMapAttr
	last         bool // from the last iteration's carry to the result
}

// regionEdges lists the edges of op: operands to arguments, yields to results,
// and the yields of a loop to its arguments.
func regionEdges(op *Op) []edge {
	var out []edge
	for k, blk := range op.blocks {
		for i, a := range blk.args {
			e := edge{outer: op.operands[i+regionStart(op)], inner: a}
			switch at := op.attr.(type) {
			case *scanAttr:
				if i >= at.consts+at.carries {
					e.lead = 1
				}
			case *shardMapAttr:
				e.spec, e.at = &at.in[i], at
			}
			out = append(out, e)
		}
		if op.kind == opWhile && k == 0 {
			continue
		}
		for i, y := range blk.yields {
			e := edge{outer: op.results[i], inner: y}
			switch at := op.attr.(type) {
			case *scanAttr:
				if i >= at.carries {
					e.lead = 1
				} else {
					out = append(out, edge{outer: blk.args[at.consts+i], inner: y})
					e.last = true
				}
			case whileAttr:
				out = append(out, edge{outer: blk.args[i], inner: y})
				e.last = true
			case *shardMapAttr:
				e.spec, e.at = &at.out[i], at
			}
			out = append(out, e)
		}
	}
	return out
}

// spreadEdges spreads splits over region borders, in both directions.
func (p *layouts) spreadEdges(edges []edge) bool {
	grew := false
	for _, e := range edges {
		outer, inner := p.get(e.outer), p.get(e.inner)
		for d := range inner.dims {
			grew = p.grow(outer, d+e.lead, p.outward(e, d)) || grew
			grew = p.grow(inner, d, p.inward(e, d)) || grew
		}
	}
	return grew
}

// outward is the split that the outer value takes over from dimension d of the
// inner one.
func (p *layouts) outward(e edge, d int) []uint8 {
	axes := p.get(e.inner).dims[d]
	if e.spec != nil {
		axes = append(p.axes(*e.spec, d), axes...)
	}
	return axes
}

// inward is the split that dimension d of the inner value takes over from the
// outer one.
func (p *layouts) inward(e edge, d int) []uint8 {
	axes := p.get(e.outer).dims[d+e.lead]
	if e.spec == nil {
		return axes
	}
	manual := p.axes(*e.spec, d)
	if len(axes) < len(manual) || !slices.Equal(axes[:len(manual)], manual) {
		return nil
	}
	rest := axes[len(manual):]
	for i, a := range rest { // an axis cannot be manual in one place and not in another
		if (e.at.manual|e.at.around)>>a&1 == 1 {
			return rest[:i]
		}
	}
	return rest
}
