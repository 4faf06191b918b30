package decoder

import (
	"strings"

	"titan/dtype"
	"titan/graph"
)

// project multiplies x by the named matrices of a layer, each as spec says: in
// 8-bit floats where the recipe asks for it, else in the compute type.
func (m *Model) project(spec string, x *graph.Value, w weights, names ...string) []*graph.Value {
	out := make([]*graph.Value, len(names))
	var eight []int
	for i, name := range names {
		if m.Options.Float8.Has(name) {
			eight = append(eight, i)
			continue
		}
		out[i] = graph.Einsum(spec, x, m.matrix(w, name))
	}
	if eight == nil {
		return out
	}
	p := m.newProducts(spec, len(eight))
	args := []*graph.Value{x}
	for _, i := range eight {
		args = append(args, m.matrix(w, names[i]))
	}
	if p.gather {
		// The matrices above have their gradients, and are not computed.
		for _, i := range eight {
			s := p.gathered(m.Placement, w[names[i]], names[i])
			args = append(args, s.bits, s.scale)
		}
	}
	for k, y := range graph.CustomVJP(args, p.forward, p.backward) {
		out[eight[k]] = y
	}
	return out
}

// matrix is a matrix of a layer, ready for use.
func (m *Model) matrix(w weights, name string) *graph.Value {
	return graph.Name(m.Placement.Weight(w[name], name), NameWeights)
}

// products are those of x with n matrices, and their derivatives, with operands in
// 8-bit floats and sums in f32. The letters of an einsum name the dimensions. Types
// and scales are those of TorchAO's recipes (torchao/float8/config.py): e4m3 all
// over, but e5m2, which reaches further down, for gradients where a tensor has one
// scale.
type products struct {
	float8
	x, w, y string // letters of the operands and of the result
	n       int
	gather  bool // matrices are gathered in 8 bits
}

func (m *Model) newProducts(spec string, n int) products {
	in, y, _ := strings.Cut(spec, "->")
	x, w, _ := strings.Cut(in, ",")
	o, p := m.Options, m.Placement
	return products{
		float8: float8{
			tensorwise: o.Float8.Recipe == RecipeTensorwise, gradHP: o.Float8.Recipe == RecipeRowwiseGradHP,
			viaBF16:   o.Float8InBF16,
			sequences: p.Sequences(), tensor: p.Tensor(), tokens: p.Tokens(),
		},
		x: x, w: w, y: y, n: n, gather: o.Float8.AllGather,
	}
}

// gathered makes a parameter 8 bits wide where it is stored, with one scale, and
// brings its parts together.
func (p products) gathered(place Placement, stored *graph.Value, name string) scaled {
	s := p.cast(graph.StopGradient(stored), p.w, "", dtype.F8E4M3, place.Stored(name))
	s.bits = place.Gather(s.bits, name)
	return s
}

// forward takes x, the matrices, and, if they are gathered so, bits and scale of
// each. It keeps x, with one scale in 8 bits, else as it is: the backward pass needs
// scales along other dimensions. Matrices are made 8 bits wide, or are gathered,
// again.
func (p products) forward(args []*graph.Value) (outs, residuals []*graph.Value) {
	x := p.operand(args[0], p.x, p.y, dtype.F8E4M3)
	residuals = args[:1]
	if p.tensorwise {
		residuals = []*graph.Value{x.bits, x.scale}
	}
	for i, w := range args[1 : 1+p.n] {
		var s scaled
		if p.gather {
			pair := args[1+p.n+2*i:]
			s = scaled{pair[0], pair[1], p.w, ""}
			w = s.bits
		} else {
			s = p.operand(w, p.w, p.y, dtype.F8E4M3)
		}
		outs = append(outs, graph.Convert(p.multiply(x, s, p.y), args[0].DType()))
		if residuals = append(residuals, w); p.tensorwise {
			residuals = append(residuals, s.scale)
		}
	}
	return outs, residuals
}

// backward returns the gradients of x and of the matrices, in f32.
func (p products) backward(res, cts []*graph.Value) []*graph.Value {
	grads := make([]*graph.Value, 1+p.n)
	for i, g := range cts {
		var dx *graph.Value
		switch {
		case p.tensorwise:
			dx, grads[1+i] = p.backTensorwise(scaled{res[0], res[1], p.x, ""}, res[2+2*i], res[3+2*i], g)
		default:
			dx, grads[1+i] = p.backRowwise(res[0], res[1+i], g)
		}
		if i > 0 {
			dx = graph.Add(grads[0], dx)
		}
		grads[0] = dx
	}
	if p.gather {
		grads = append(grads, make([]*graph.Value, 2*p.n)...) // of bits and scales: none
	}
	return grads
}

func (p products) backTensorwise(x scaled, w, scale, g *graph.Value) (dx, dw *graph.Value) {
	matrix := scaled{w, scale, p.w, ""}
	if !p.gather {
		matrix = p.scaleBy(w, scale, p.w, "", dtype.F8E4M3)
	}
	out := p.operand(g, p.y, "", dtype.F8E5M2)
	return p.multiply(out, matrix, p.x), p.multiply(x, out, p.w)
}

func (p products) backRowwise(x, w, g *graph.Value) (dx, dw *graph.Value) {
	out := p.operand(g, p.y, p.x, dtype.F8E4M3)
	if p.gradHP {
		matrix := p.cast(w, p.w, "", dtype.F8E4M3, p.holders(p.w))
		return p.multiply(out, matrix, p.x), graph.Einsum(p.x+","+p.y+"->"+p.w, x, g, graph.As(dtype.F32))
	}
	dx = p.multiply(out, p.operand(w, p.w, p.x, dtype.F8E4M3), p.x)
	return dx, p.multiply(p.operand(x, p.x, p.w, dtype.F8E4M3), p.operand(g, p.y, p.w, dtype.F8E4M3), p.w)
}
