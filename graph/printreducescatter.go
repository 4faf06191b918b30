package graph

import (
	"fmt"
	"slices"
)

// sublanes are the rows of a tile of f32 in the TPU's memory.
const sublanes = 8

// reduceScatter writes a reduce-scatter, of 3 dimensions along the first of them
// where it is not along the last but one of 2 or 3 anyway: of others XLA's TPU
// compiler often makes an all-reduce of which it keeps a part, which is twice the
// traffic. (Seen in libtpu 0.0.42, where a layout that suits neighbours would have
// to change for it: gradients of the embedding, or of stacked layers. In libtpu
// 0.0.52 also along the first of 2 dimensions, for some sizes, such as [16384,53248]
// over 512 devices; where parts are whole tiles nothing moves for the third.)
func (p *printer) reduceScatter(op *Op) {
	at, x, y := op.attr.(collectiveAttr), op.operands[0], op.results[0]
	shape, d := y.typ.Shape, y.typ.DType
	last := len(shape) - 1
	plain := last == 2 || last == 1 && shape[0]%sublanes != 0
	if last < 1 || plain && at.dim == last-1 {
		p.collective(op, "reduce_scatter", fmt.Sprintf("scatter_dimension = %d : i64", at.dim))
		return
	}
	// [.., n·k, .., l] becomes [n, .., k, .., l], or [n, k, .., l] if k would be last.
	parts := slices.Insert(slices.Clone(shape), at.dim, at.n)
	perm := []int{at.dim}
	if at.dim == last {
		perm = append(perm, last+1)
	}
	for i := range parts {
		if !slices.Contains(perm, i) {
			perm = append(perm, i)
		}
	}
	front := make([]int, len(parts))
	for i, from := range perm {
		front[i] = parts[from]
	}
	minor := front[len(front)-1]
	rest := y.typ.Elements() / max(1, minor)
	in, out := T(d, at.n, rest, minor), T(d, 1, rest, minor)

	s := p.reshape(p.names[x], x.typ, T(d, parts...))
	s = p.stmt("stablehlo.transpose %s, dims = [%s] : (%s) -> %s", s, joinInts(perm, ", "), T(d, parts...).mlir(), T(d, front...).mlir())
	s = p.reshape(s, T(d, front...), in)
	r := p.fresh()
	p.line(r + " = ")
	p.collectiveOf(op, "reduce_scatter", "scatter_dimension = 0 : i64", s, in, out)
	p.write("\n")
	if at.dim < last {
		p.assign(op)
		fmt.Fprintf(&p.sb, "stablehlo.reshape %s : (%s) -> %s", r, out.mlir(), y.typ.mlir())
		return
	}
	r = p.reshape(r, out, T(d, front[1:]...))
	p.assign(op)
	fmt.Fprintf(&p.sb, "stablehlo.transpose %s, dims = [%s] : (%s) -> %s", r, joinInts(append(seq(1, last+1), 0), ", "), T(d, front[1:]...).mlir(), y.typ.mlir())
}

func (p *printer) reshape(name string, from, to Type) string {
	return p.stmt("stablehlo.reshape %s : (%s) -> %s", name, from.mlir(), to.mlir())
}
