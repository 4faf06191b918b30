package graph

import (
	"fmt"
	"slices"
)

type sliceAttr struct{ start, limit, stride []int }

type padAttr struct{ low, high, interior []int }

func init() {
	define(opBroadcast, opDef{
		name:  "broadcast",
		infer: inferBroadcast,
		view:  true, wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			dims := op.attr.(broadcastAttr).dims
			x := op.operands[0]
			// Dimensions that the operand lacks, or has with size 1, were repeated.
			reduce := without(seq(0, len(op.results[0].typ.Shape)), dims...)
			for i, d := range dims {
				if x.typ.Shape[i] == 1 && op.results[0].typ.Shape[d] != 1 {
					reduce = append(reduce, d)
				}
			}
			ct := sumIn(cts[0], reduce, a.gradDType(x))
			a.add(x, Reshape(ct, x.typ.Shape...))
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.broadcast_in_dim ")
			p.operands(op.operands)
			p.write(", dims = ")
			p.ints(op.attr.(broadcastAttr).dims)
			p.write(" : ")
			p.signature(op)
		},
	})
	define(opReshape, opDef{
		name: "reshape",
		infer: func(op *Op) ([]Type, error) {
			shape := op.attr.([]int)
			if t := op.operands[0].typ; product(shape) != t.Elements() {
				return nil, fmt.Errorf("%d elements do not fill shape [%s], which has %d", t.Elements(), joinInts(shape, ","), product(shape))
			}
			return []Type{{op.operands[0].typ.DType, shape}}, nil
		},
		view: true, wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			a.add(op.operands[0], Reshape(cts[0], op.operands[0].typ.Shape...))
		},
		print: printPlain("reshape"),
	})
	define(opTranspose, opDef{
		name: "transpose",
		infer: func(op *Op) ([]Type, error) {
			perm, t := op.attr.([]int), op.operands[0].typ
			sorted := slices.Sorted(slices.Values(perm))
			if len(perm) != t.Rank() || !isIota(sorted) {
				return nil, fmt.Errorf("%v is not a permutation of the %d dimensions", perm, t.Rank())
			}
			return []Type{{t.DType, pick(t.Shape, perm)}}, nil
		},
		view: true, wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			a.add(op.operands[0], Transpose(cts[0], inversePerm(op.attr.([]int))...))
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.transpose ")
			p.operands(op.operands)
			p.write(", dims = ")
			p.ints(op.attr.([]int))
			p.write(" : ")
			p.signature(op)
		},
	})
	define(opReverse, opDef{
		name: "reverse",
		infer: func(op *Op) ([]Type, error) {
			if err := checkDims(op.attr.([]int), op.operands[0].typ.Rank()); err != nil {
				return nil, err
			}
			return sameType(op)
		},
		wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			a.add(op.operands[0], Reverse(cts[0], op.attr.([]int)...))
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.reverse ")
			p.operands(op.operands)
			p.write(", dims = ")
			p.ints(op.attr.([]int))
			p.write(" : ")
			p.typ(op.results[0].typ)
		},
	})
	define(opSlice, opDef{
		name:  "slice",
		infer: inferSlice, wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at, x := op.attr.(sliceAttr), op.operands[0]
			high, interior := make([]int, x.Rank()), make([]int, x.Rank())
			for i, n := range op.results[0].typ.Shape {
				interior[i] = at.stride[i] - 1
				covered := 0
				if n > 0 {
					covered = (n-1)*at.stride[i] + 1
				}
				high[i] = x.typ.Shape[i] - at.start[i] - covered
			}
			a.add(x, Pad(cts[0], cts[0].b().Scalar(cts[0].typ.DType, 0), at.start, high, interior))
		},
		print: func(p *printer, op *Op) {
			at := op.attr.(sliceAttr)
			p.assign(op)
			p.write("stablehlo.slice ")
			p.operands(op.operands)
			p.write(" [")
			for i := range at.start {
				if i > 0 {
					p.write(", ")
				}
				p.int(at.start[i])
				p.write(":")
				p.int(at.limit[i])
				if at.stride[i] != 1 {
					p.write(":")
					p.int(at.stride[i])
				}
			}
			p.write("] : ")
			p.signature(op)
		},
	})
	define(opPad, opDef{
		name:  "pad",
		infer: inferPad,
		vjp:   padVJP,
		print: printPad,
	})
	define(opConcat, opDef{
		name:  "concatenate",
		infer: inferConcat, wideCT: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			dim, at := op.attr.(int), 0
			for _, x := range op.operands {
				n := x.typ.Shape[dim]
				if a.wants(x) {
					a.add(x, SliceDim(cts[0], dim, at, at+n))
				}
				at += n
			}
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.concatenate ")
			p.operands(op.operands)
			p.write(", dim = ")
			p.int(op.attr.(int))
			p.write(" : ")
			p.signature(op)
		},
	})
}

// printPlain spells ops without attributes: "stablehlo.name %x : (…) -> …".
func printPlain(name string) func(*printer, *Op) {
	return func(p *printer, op *Op) {
		p.assign(op)
		p.write("stablehlo." + name + " ")
		p.operands(op.operands)
		p.write(" : ")
		p.signature(op)
	}
}

// dim resolves a dimension counted from the end.
func (b *Builder) dim(op string, d, rank int) int {
	n := d
	if n < 0 {
		n += rank
	}
	if n < 0 || n >= rank {
		b.fail(op, "dimension %d of a value of rank %d", d, rank)
	}
	return n
}

func (b *Builder) dims(op string, ds []int, rank int) []int {
	out := make([]int, len(ds))
	for i, d := range ds {
		out[i] = b.dim(op, d, rank)
	}
	return out
}

func checkDims(dims []int, rank int) error {
	for i, d := range dims {
		if d < 0 || d >= rank {
			return fmt.Errorf("dimension %d of a value of rank %d", d, rank)
		}
		if slices.Contains(dims[:i], d) {
			return fmt.Errorf("dimension %d is given twice", d)
		}
	}
	return nil
}

// Reshape gives x another shape with the same elements in row-major order. One
// size may be -1 and is computed.
func Reshape(x *Value, shape ...int) *Value {
	shape = slices.Clone(shape)
	if i := slices.Index(shape, -1); i >= 0 {
		shape[i] = 1
		if n := product(shape); n > 0 && x.typ.Elements()%n == 0 {
			shape[i] = x.typ.Elements() / n
		}
	}
	if slices.Equal(shape, x.typ.Shape) {
		return x
	}
	return x.b().emit1(opReshape, shape, x)
}

// Transpose makes dimension perm[i] of x dimension i of the result.
func Transpose(x *Value, perm ...int) *Value {
	if len(perm) == x.Rank() && isIota(perm) {
		return x
	}
	return x.b().emit1(opTranspose, slices.Clone(perm), x)
}

// Reverse reverses the order of elements along dims.
func Reverse(x *Value, dims ...int) *Value {
	return x.b().emit1(opReverse, x.b().dims("reverse", dims, x.Rank()), x)
}

// ExpandDims inserts a dimension of size 1 at position dim of the result.
func ExpandDims(x *Value, dim int) *Value {
	dim = x.b().dim("expand_dims", dim, x.Rank()+1)
	return Reshape(x, slices.Insert(slices.Clone(x.typ.Shape), dim, 1)...)
}

// Squeeze removes the given dimensions of size 1.
func Squeeze(x *Value, dims ...int) *Value {
	dims = x.b().dims("squeeze", dims, x.Rank())
	for _, d := range dims {
		if x.typ.Shape[d] != 1 {
			x.b().fail("squeeze", "dimension %d of %v has size %d", d, x.typ, x.typ.Shape[d])
		}
	}
	return Reshape(x, pick(x.typ.Shape, without(seq(0, x.Rank()), dims...))...)
}

func inferSlice(op *Op) ([]Type, error) {
	at, t := op.attr.(sliceAttr), op.operands[0].typ
	if len(at.start) != t.Rank() || len(at.limit) != t.Rank() || len(at.stride) != t.Rank() {
		return nil, fmt.Errorf("bounds for %d dimensions", len(at.start))
	}
	shape := make([]int, t.Rank())
	for i, n := range t.Shape {
		lo, hi, s := at.start[i], at.limit[i], at.stride[i]
		if lo < 0 || hi < lo || hi > n || s < 1 {
			return nil, fmt.Errorf("bounds %d:%d:%d of dimension %d of size %d", lo, hi, s, i, n)
		}
		shape[i] = (hi - lo + s - 1) / s
	}
	return []Type{{t.DType, shape}}, nil
}

// Slice takes start[i] ≤ index < limit[i] in steps of stride[i] along every
// dimension; a nil stride means 1 everywhere.
func Slice(x *Value, start, limit, stride []int) *Value {
	if stride == nil {
		stride = make([]int, x.Rank())
		for i := range stride {
			stride[i] = 1
		}
	}
	return x.b().emit1(opSlice, sliceAttr{slices.Clone(start), slices.Clone(limit), slices.Clone(stride)}, x)
}

// SliceDim takes lo ≤ index < hi along one dimension.
func SliceDim(x *Value, dim, lo, hi int) *Value {
	dim = x.b().dim("slice", dim, x.Rank())
	if lo == 0 && hi == x.typ.Shape[dim] {
		return x
	}
	start, limit := make([]int, x.Rank()), slices.Clone(x.typ.Shape)
	start[dim], limit[dim] = lo, hi
	return Slice(x, start, limit, nil)
}

// Split cuts x into n equal parts along dim.
func Split(x *Value, dim, n int) []*Value {
	dim = x.b().dim("split", dim, x.Rank())
	size := x.typ.Shape[dim]
	if n < 1 || size%n != 0 {
		x.b().fail("split", "dimension %d of %v, of size %d, does not split into %d equal parts", dim, x.typ, size, n)
	}
	out := make([]*Value, n)
	for i := range out {
		out[i] = SliceDim(x, dim, i*size/n, (i+1)*size/n)
	}
	return out
}

func inferPad(op *Op) ([]Type, error) {
	at, t, v := op.attr.(padAttr), op.operands[0].typ, op.operands[1].typ
	if v.Rank() != 0 || v.DType != t.DType {
		return nil, fmt.Errorf("padding value of type %v", v)
	}
	if len(at.low) != t.Rank() || len(at.high) != t.Rank() || len(at.interior) != t.Rank() {
		return nil, fmt.Errorf("padding for %d dimensions", len(at.low))
	}
	shape := make([]int, t.Rank())
	for i, n := range t.Shape {
		if at.low[i] < 0 || at.high[i] < 0 || at.interior[i] < 0 {
			return nil, fmt.Errorf("negative padding of dimension %d; use Slice", i)
		}
		shape[i] = at.low[i] + n + max(0, n-1)*at.interior[i] + at.high[i]
	}
	return []Type{{t.DType, shape}}, nil
}

func padVJP(a *adjoint, op *Op, cts []*Value) {
	at, x, v, ct := op.attr.(padAttr), op.operands[0], op.operands[1], cts[0]
	limit, stride := make([]int, x.Rank()), make([]int, x.Rank())
	for i, n := range x.typ.Shape {
		stride[i] = at.interior[i] + 1
		limit[i] = at.low[i]
		if n > 0 {
			limit[i] += (n-1)*stride[i] + 1
		}
	}
	inner := Slice(ct, at.low, limit, stride)
	a.add(x, inner)
	if a.wants(v) {
		a.add(v, Sub(Sum(ct), Sum(inner)))
	}
}

// Pad puts low[i] copies of value before, high[i] after and interior[i]
// between the elements along every dimension. nil slices mean 0.
func Pad(x, value *Value, low, high, interior []int) *Value {
	fill := func(s []int) []int {
		if s == nil {
			return make([]int, x.Rank())
		}
		return slices.Clone(s)
	}
	at := padAttr{fill(low), fill(high), fill(interior)}
	if !slices.ContainsFunc(slices.Concat(at.low, at.high, at.interior), func(n int) bool { return n != 0 }) {
		return x
	}
	return x.b().emit1(opPad, at, x, value)
}

func inferConcat(op *Op) ([]Type, error) {
	dim := op.attr.(int)
	t := op.operands[0].typ
	if dim < 0 || dim >= t.Rank() {
		return nil, fmt.Errorf("dimension %d of a value of rank %d", dim, t.Rank())
	}
	shape := slices.Clone(t.Shape)
	for _, o := range op.operands[1:] {
		if o.typ.DType != t.DType || o.typ.Rank() != t.Rank() {
			return nil, fmt.Errorf("operand types %v and %v differ", t, o.typ)
		}
		for i, n := range o.typ.Shape {
			if i != dim && n != t.Shape[i] {
				return nil, fmt.Errorf("operand types %v and %v differ in dimension %d", t, o.typ, i)
			}
		}
		shape[dim] += o.typ.Shape[dim]
	}
	return []Type{{t.DType, shape}}, nil
}

// Concat joins values along dim.
func Concat(dim int, xs ...*Value) *Value {
	if len(xs) == 0 || xs[0] == nil {
		mistake("concatenate", "no operands, or the first is nil")
	}
	if len(xs) == 1 {
		return xs[0]
	}
	b := xs[0].b()
	return b.emit1(opConcat, b.dim("concatenate", dim, xs[0].Rank()), xs...)
}

// Stack joins values of one shape along a new dimension dim.
func Stack(dim int, xs ...*Value) *Value {
	out := make([]*Value, len(xs))
	for i, x := range xs {
		out[i] = ExpandDims(x, dim)
	}
	if dim < 0 && len(out) > 0 {
		dim += out[0].Rank()
	}
	return Concat(dim, out...)
}
