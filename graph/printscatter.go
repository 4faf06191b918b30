package graph

import (
	"fmt"
	"slices"
	"strings"
)

// printScatter writes the op. Where there are several devices batching
// dimensions are spelt as elements of the index vectors that count along them,
// behind a barrier: XLA's partitioner gets batches that it knows of wrong when
// operand, indices and updates are split differently (seen in XLA of jaxlib
// 0.11.2: wrong sums). It then gathers indices and updates, which is right.
func printScatter(p *printer, op *Op) {
	at := op.attr.(scatterAttr)
	if at.compare {
		printCompared(p, op, at.dims.StartIndexMap[0])
		return
	}
	indices, it := p.names[op.operands[1]], op.operands[1].typ
	if len(at.dims.OperandBatchingDims) > 0 && p.m.mesh != nil && p.m.mesh.Size() > 1 {
		indices, it = p.countBatches(indices, it, &at.dims)
		at.sorted = false // the positions come first
	}
	p.assign(op)
	p.write(`"stablehlo.scatter"(`)
	p.value(op.operands[0])
	p.write(", " + indices + ", ")
	p.value(op.operands[2])
	fmt.Fprintf(&p.sb, ") <{indices_are_sorted = %v, scatter_dimension_numbers = #stablehlo.scatter<", at.sorted)
	p.indexDims(at.dims, [5]string{"update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims", "scatter_dims_to_operand_dims"})
	fmt.Fprintf(&p.sb, ">, unique_indices = %v}> ({\n", at.unique)
	p.indent++
	t := T(op.results[0].typ.DType)
	args := p.freshArgs([]Type{t, t})
	out := args[1]
	if at.kind != CombineSet {
		out = p.stmt("stablehlo.%s %s, %s : %s", combineHLO[at.kind], args[0], args[1], t.mlir())
	}
	p.ret("stablehlo.return", []string{out}, []Type{t})
	p.indent--
	p.line("}) : (")
	p.typeList([]Type{op.operands[0].typ, it, op.operands[2].typ})
	p.write(") -> ")
	p.typ(op.results[0].typ)
}

// printCompared writes a scatter-add of the form of ScatterAdd along dim: to every
// element it adds each of its row's updates, or 0 where the index is another's.
func printCompared(p *printer, op *Op, dim int) {
	t, it, ut := op.operands[0].typ, op.operands[1].typ, op.operands[2].typ
	at := Type{it.DType, t.Shape}
	place := p.stmt("stablehlo.iota dim = %d : %s", dim, at.mlir())
	zero := p.stmt("stablehlo.constant dense<%s> : %s", literal(t.DType, make([]byte, t.DType.Size())), t.mlir())
	others := without(seq(0, t.Rank()), dim)
	rows := pick(t.Shape, others)
	column := func(v *Value, k int) string {
		from, full := v.typ, Type{v.typ.DType, t.Shape}
		part := Type{from.DType, slices.Clone(from.Shape)}
		part.Shape[dim] = 1
		var bounds []string
		for i, n := range from.Shape {
			lo := 0
			if i == dim {
				lo, n = k, k+1
			}
			bounds = append(bounds, fmt.Sprintf("%d:%d", lo, n))
		}
		flat := Type{from.DType, rows}
		s := p.stmt("stablehlo.slice %s [%s] : (%s) -> %s", p.names[v], strings.Join(bounds, ", "), from.mlir(), part.mlir())
		s = p.stmt("stablehlo.reshape %s : (%s) -> %s", s, part.mlir(), flat.mlir())
		return p.stmt("stablehlo.broadcast_in_dim %s, dims = [%s] : (%s) -> %s", s, joinInts(others, ", "), flat.mlir(), full.mlir())
	}
	sum := p.names[op.operands[0]]
	for k := range ut.Shape[dim] {
		here := p.stmt("stablehlo.compare EQ, %s, %s, %s : (%s, %s) -> %s", place, column(op.operands[1], k), compareKind(it.DType), at.mlir(), at.mlir(), Type{Bool, t.Shape}.mlir())
		term := p.stmt("stablehlo.select %s, %s, %s : %s, %s", here, column(op.operands[2], k), zero, Type{Bool, t.Shape}.mlir(), t.mlir())
		sum = p.stmt("stablehlo.add %s, %s : %s", sum, term, t.mlir())
	}
	p.names[op.results[0]] = sum
}

// countBatches writes indices whose vectors begin with the positions along the
// batching dimensions, and makes d say so.
func (p *printer) countBatches(indices string, t Type, d *GatherDims) (string, Type) {
	longest := 0
	for _, i := range d.StartIndicesBatchingDims {
		longest = max(longest, t.Shape[i])
	}
	if it := indexType(t.DType, longest); it != t.DType {
		wide := Type{it, t.Shape}
		indices = p.stmt("stablehlo.convert %s : (%s) -> %s", indices, t.mlir(), wide.mlir())
		t = wide
	}
	if d.IndexVectorDim == t.Rank() {
		one := Type{t.DType, append(slices.Clone(t.Shape), 1)}
		indices = p.stmt("stablehlo.reshape %s : (%s) -> %s", indices, t.mlir(), one.mlir())
		t = one
	}
	v := d.IndexVectorDim
	position := Type{t.DType, slices.Clone(t.Shape)}
	position.Shape[v] = 1
	var parts, types []string
	for _, i := range d.StartIndicesBatchingDims {
		count := p.stmt("stablehlo.iota dim = %d : %s", i, position.mlir())
		parts = append(parts, p.stmt("stablehlo.optimization_barrier %s : %s", count, position.mlir()))
		types = append(types, position.mlir())
	}
	all := Type{t.DType, slices.Clone(t.Shape)}
	all.Shape[v] += len(parts)
	joined := p.stmt("stablehlo.concatenate %s, %s, dim = %d : (%s, %s) -> %s", strings.Join(parts, ", "), indices, v, strings.Join(types, ", "), t.mlir(), all.mlir())
	d.StartIndexMap = slices.Concat(d.OperandBatchingDims, d.StartIndexMap)
	d.CollapsedSliceDims = slices.Sorted(slices.Values(slices.Concat(d.CollapsedSliceDims, d.OperandBatchingDims)))
	d.OperandBatchingDims, d.StartIndicesBatchingDims = nil, nil
	return joined, all
}

// indexType is d, or a wider integer type when d cannot count to n.
func indexType(d DType, n int) DType {
	bits := 8 * d.Size()
	if d.IsSigned() {
		bits--
	}
	switch {
	case bits >= 63 || n <= 1<<bits:
		return d
	case n <= 1<<31:
		return S32
	}
	return S64
}
