package graph

import (
	"fmt"
	"slices"
	"strings"

	"titan/dtype"
)

func init() {
	define(opDynamicSlice, opDef{
		name: "dynamic_slice",
		infer: func(op *Op) ([]Type, error) {
			t, sizes := op.operands[0].typ, op.attr.([]int)
			if len(sizes) != t.Rank() {
				return nil, fmt.Errorf("%d sizes for rank %d", len(sizes), t.Rank())
			}
			if err := checkStarts(op.operands[1:], t.Rank()); err != nil {
				return nil, err
			}
			for i, n := range sizes {
				if n < 0 || n > t.Shape[i] {
					return nil, fmt.Errorf("size %d of dimension %d, which has %d", n, i, t.Shape[i])
				}
			}
			return []Type{{t.DType, sizes}}, nil
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			x := op.operands[0]
			starts := a.vals(op.operands[1:])
			a.add(x, DynamicUpdateSlice(cts[0].b().Zeros(Type{cts[0].typ.DType, x.typ.Shape}), cts[0], starts...))
		},
		wideCT: true, form: true,
		print: func(p *printer, op *Op) {
			starts := p.starts(op.operands[1:], op.operands[0].typ.Shape, op.attr.([]int))
			p.assign(op)
			p.write("stablehlo.dynamic_slice ")
			p.write(strings.Join(append(p.namesOf(op.operands[:1]), starts...), ", ") + ", sizes = ")
			p.ints(op.attr.([]int))
			p.write(" : ")
			p.signature(op)
		},
	})
	define(opDynamicUpdateSlice, opDef{
		name: "dynamic_update_slice",
		infer: func(op *Op) ([]Type, error) {
			t, u := op.operands[0].typ, op.operands[1].typ
			if u.DType != t.DType || u.Rank() != t.Rank() {
				return nil, fmt.Errorf("update of type %v", u)
			}
			for i, n := range u.Shape {
				if n > t.Shape[i] {
					return nil, fmt.Errorf("update of size %d in dimension %d, which has %d", n, i, t.Shape[i])
				}
			}
			if err := checkStarts(op.operands[2:], t.Rank()); err != nil {
				return nil, err
			}
			return []Type{t}, nil
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			x, u := op.operands[0], op.operands[1]
			starts := a.vals(op.operands[2:])
			if a.wants(x) {
				a.add(x, DynamicUpdateSlice(cts[0], cts[0].b().Zeros(Type{cts[0].typ.DType, u.typ.Shape}), starts...))
			}
			if a.wants(u) {
				a.add(u, DynamicSlice(cts[0], u.typ.Shape, starts...))
			}
		},
		wideCT: true,
		print: func(p *printer, op *Op) {
			starts := p.starts(op.operands[2:], op.operands[0].typ.Shape, op.operands[1].typ.Shape)
			p.assign(op)
			p.write("stablehlo.dynamic_update_slice ")
			p.write(strings.Join(append(p.namesOf(op.operands[:2]), starts...), ", ") + " : ")
			p.signature(op)
		},
	})
}

// starts lists the start indices of a slice of the given sizes. Those that could
// lie outside are moved inside by an op of their own where there are several
// devices: XLA's partitioner forgets to where the dimension is split (seen in
// XLA of jaxlib 0.10.2 and 0.11.2: elements repeated, updates lost).
func (p *printer) starts(starts []*Value, shape, sizes []int) []string {
	names := p.namesOf(starts)
	for i, s := range starts {
		if p.m.mesh == nil || p.m.mesh.Size() == 1 {
			break
		}
		last := shape[i] - sizes[i]
		if bits := 8*s.typ.DType.Size() - btoi(s.typ.DType.IsSigned()); bits < 62 {
			last = min(last, 1<<bits-1)
		}
		if s.op != nil && s.op.kind == opConst {
			if x := dtype.Float(s.typ.DType, s.op.attr.(constAttr).data, 0); x >= 0 && x <= float64(last) {
				continue
			}
		}
		t := s.typ.mlir()
		low, high := p.stmt("stablehlo.constant dense<0> : %s", t), p.stmt("stablehlo.constant dense<%d> : %s", last, t)
		names[i] = p.stmt("stablehlo.clamp %s, %s, %s : %s", low, names[i], high, t)
	}
	return names
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *adjoint) vals(vs []*Value) []*Value {
	out := make([]*Value, len(vs))
	for i, v := range vs {
		out[i] = a.val(v)
	}
	return out
}

func checkStarts(starts []*Value, rank int) error {
	if len(starts) != rank {
		return fmt.Errorf("%d start indices for rank %d", len(starts), rank)
	}
	for _, s := range starts {
		if s.Rank() != 0 || !s.typ.DType.IsInt() || s.typ.DType != starts[0].typ.DType {
			return fmt.Errorf("start index of type %v; needs integer scalars of one type", s.typ)
		}
	}
	return nil
}

// DynamicSlice takes sizes elements from starts, one integer scalar for each
// dimension. Starts are moved so that the slice lies inside x.
func DynamicSlice(x *Value, sizes []int, starts ...*Value) *Value {
	return x.b().emit1(opDynamicSlice, slices.Clone(sizes), append([]*Value{x}, starts...)...)
}

// DynamicUpdateSlice is x with update written over it from starts. Starts are
// moved so that the update lies inside x.
func DynamicUpdateSlice(x, update *Value, starts ...*Value) *Value {
	return x.b().emit1(opDynamicUpdateSlice, nil, append([]*Value{x, update}, starts...)...)
}

// DynamicSliceDim takes size elements from start along one dimension.
func DynamicSliceDim(x *Value, dim int, start *Value, size int) *Value {
	dim = x.b().dim("dynamic_slice", dim, x.Rank())
	sizes := slices.Clone(x.typ.Shape)
	sizes[dim] = size
	return DynamicSlice(x, sizes, startsAt(x, dim, start)...)
}

// DynamicUpdateSliceDim writes update over x from start along one dimension.
func DynamicUpdateSliceDim(x, update *Value, dim int, start *Value) *Value {
	dim = x.b().dim("dynamic_update_slice", dim, x.Rank())
	return DynamicUpdateSlice(x, update, startsAt(x, dim, start)...)
}

func startsAt(x *Value, dim int, start *Value) []*Value {
	if start == nil || !start.typ.DType.IsInt() {
		x.b().failAt(x.b().position(2), "dynamic_slice", []*Value{x, start}, "the start must be an integer scalar")
	}
	starts := make([]*Value, x.Rank())
	for i := range starts {
		starts[i] = x.b().Int(start.typ.DType, 0)
	}
	starts[dim] = start
	return starts
}
