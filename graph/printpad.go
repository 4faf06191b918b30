package graph

import (
	"fmt"
	"slices"
)

// printPad writes the op, but spells padding between elements by reshapes where
// there are several devices: XLA's partitioner gets interior padding of a
// dimension that is split wrong (seen in XLA of jaxlib 0.10.2 and 0.11.2:
// wrong elements, or a failure to compile).
func printPad(p *printer, op *Op) {
	at, t := op.attr.(padAttr), op.operands[0].typ
	result := op.results[0].typ
	x, value := p.names[op.operands[0]], p.names[op.operands[1]]
	inside := slices.ContainsFunc(at.interior, func(n int) bool { return n > 0 })
	if inside && p.m.mesh != nil && p.m.mesh.Size() > 1 && t.Elements() > 0 {
		x = p.spreadOut(x, value, t, at.interior)
		shape := slices.Clone(result.Shape)
		for i := range shape {
			shape[i] -= at.low[i] + at.high[i]
		}
		t = Type{t.DType, shape}
		at.interior = make([]int, len(shape))
	}
	p.assign(op)
	p.pad(x, value, t, at)
}

func (p *printer) pad(x, value string, t Type, at padAttr) {
	scalar, out := T(t.DType), Type{t.DType, slices.Clone(t.Shape)}
	for i, n := range t.Shape {
		out.Shape[i] = at.low[i] + n + max(0, n-1)*at.interior[i] + at.high[i]
	}
	fmt.Fprintf(&p.sb, "stablehlo.pad %s, %s, low = [%s], high = [%s], interior = [%s] : (%s, %s) -> %s", x, value,
		joinInts(at.low, ", "), joinInts(at.high, ", "), joinInts(at.interior, ", "), t.mlir(), scalar.mlir(), out.mlir())
}

// spreadOut puts interior[i] copies of value between the elements: every
// element becomes the first of a row of its own, and the last row loses its
// padding.
func (p *printer) spreadOut(x, value string, t Type, interior []int) string {
	var apart, rows, whole, limit []int // shapes on the way
	at := padAttr{}
	for i, n := range t.Shape {
		k := interior[i]
		apart, rows = append(apart, n), append(rows, n)
		at.high = append(at.high, 0)
		if k > 0 {
			apart, rows = append(apart, 1), append(rows, k+1)
			at.high = append(at.high, k)
		}
		whole = append(whole, n*(k+1))
		limit = append(limit, n*(k+1)-k)
	}
	at.low, at.interior = make([]int, len(rows)), make([]int, len(rows))
	typ := func(shape []int) string { return Type{t.DType, shape}.mlir() }
	x = p.stmt("stablehlo.reshape %s : (%s) -> %s", x, t.mlir(), typ(apart))
	n := p.fresh()
	p.line(n + " = ")
	p.pad(x, value, Type{t.DType, apart}, at)
	p.write("\n")
	x = p.stmt("stablehlo.reshape %s : (%s) -> %s", n, typ(rows), typ(whole))
	bounds := ""
	for i, l := range limit {
		if i > 0 {
			bounds += ", "
		}
		bounds += fmt.Sprintf("0:%d", l)
	}
	return p.stmt("stablehlo.slice %s [%s] : (%s) -> %s", x, bounds, typ(whole), typ(limit))
}
