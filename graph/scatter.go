package graph

import (
	"fmt"
	"math"
	"slices"
)

// Combine says what Scatter makes of the old element and the update.
type Combine uint8

// The ways to combine. With CombineSet one of several updates of the same
// element is kept, but it is undefined which.
const (
	CombineSet Combine = iota
	CombineAdd
	CombineMul
	CombineMin
	CombineMax
)

var combineHLO = [...]string{"", "add", "multiply", "minimum", "maximum"}

// String gives the lower-case name, "set", "add", ….
func (c Combine) String() string {
	if int(c) >= len(combineHLO) {
		return fmt.Sprintf("combine(%d)", uint8(c))
	}
	return [...]string{"set", "add", "mul", "min", "max"}[c]
}

type scatterAttr struct {
	dims GatherDims
	kind Combine
	indexOptions
}

// Scatter ops have operands x, indices and updates.
func init() {
	define(opScatter, opDef{
		name:   "scatter",
		infer:  inferScatter,
		wideCT: true,
		vjp:    scatterVJP,
		flops: func(op *Op) float64 {
			if op.attr.(scatterAttr).kind == CombineSet {
				return 0
			}
			return float64(op.operands[2].typ.Elements())
		},
		print: printScatter,
	})
}

// sizes gives the window that an update of the given shape fills.
func (d GatherDims) sizes(x, updates Type) ([]int, error) {
	sizes := make([]int, x.Rank())
	for i := range sizes {
		sizes[i] = 1
	}
	w := d.window(x.Rank())
	if len(w) != len(d.OffsetDims) {
		return nil, fmt.Errorf("the operand has %d dimensions; offset_dims, collapsed_slice_dims and operand_batching_dims name %d", x.Rank(), x.Rank()-len(w)+len(d.OffsetDims))
	}
	for i, o := range w {
		if r := d.OffsetDims[i]; r < 0 || r >= updates.Rank() {
			return nil, fmt.Errorf("offset_dims %v of updates of rank %d", d.OffsetDims, updates.Rank())
		}
		sizes[o] = updates.Shape[d.OffsetDims[i]]
	}
	return sizes, nil
}

func inferScatter(op *Op) ([]Type, error) {
	at := op.attr.(scatterAttr)
	x, indices, u := op.operands[0].typ, op.operands[1].typ, op.operands[2].typ
	if int(at.kind) >= len(combineHLO) {
		return nil, fmt.Errorf("unknown way to combine")
	}
	if x.DType != u.DType {
		return nil, fmt.Errorf("element types %v and %v of operand and updates differ", x.DType, u.DType)
	}
	if x.DType == Bool && (at.kind == CombineAdd || at.kind == CombineMul) {
		return nil, fmt.Errorf("%v of element type bool", at.kind)
	}
	sizes, err := at.dims.sizes(x, u)
	if err != nil {
		return nil, err
	}
	want, err := at.dims.result(x, indices, sizes)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(want, u.Shape) {
		return nil, fmt.Errorf("updates have shape [%s], the indices ask for [%s]", joinInts(u.Shape, ","), joinInts(want, ","))
	}
	return []Type{x}, nil
}

// Scatter is x with updates combined into it where Gather with the same
// dimension numbers would read them: updates has the shape of that gather's
// result, and the window's sizes follow from it. A window that does not lie
// inside x is left out, whole. See IndexAdd, IndexUpdate and ScatterAdd for the
// usual cases. Sums are taken in x's element type.
//
// The order in which updates are combined is undefined, and with CombineSet
// which of several is kept; the cotangent goes to the one that was. For
// CombineMul the cotangent of the updates is defined only with UniqueIndices;
// without, asking for it is an error. For CombineMin and CombineMax all that
// equal the result share the cotangent.
func Scatter(x, indices, updates *Value, kind Combine, dims GatherDims, opts ...IndexOption) *Value {
	return scatter(x, indices, updates, kind, dims.clone(), indexOpts(opts))
}

func scatter(x, indices, updates *Value, kind Combine, dims GatherDims, o indexOptions) *Value {
	return x.b().emit1(opScatter, scatterAttr{dims, kind, o}, x, indices, updates)
}

func scatterVJP(a *adjoint, op *Op, cts []*Value) {
	at := op.attr.(scatterAttr)
	x, u, ct := op.operands[0], op.operands[2], cts[0]
	if ct == nil {
		return
	}
	if at.kind != CombineSet && at.kind != CombineAdd {
		ct = Convert(ct, x.typ.DType)
	}
	indices := a.val(op.operands[1])
	sizes, err := at.dims.sizes(x.typ, u.typ)
	if err != nil {
		a.b.failAt(op.pos, "scatter", op.operands, "%v", err)
	}
	read := func(v *Value) *Value { return gatherInside(v, indices, at.dims, sizes, at.indexOptions) }
	write := func(v, updates *Value, kind Combine) *Value {
		return scatter(v, indices, updates, kind, at.dims, at.indexOptions)
	}
	switch at.kind {
	case CombineAdd:
		a.add(x, ct)
		if a.wants(u) {
			a.add(u, read(ct))
		}
	case CombineSet:
		if a.wants(x) {
			a.add(x, write(ct, a.b.Zeros(Type{ct.typ.DType, u.typ.Shape}), CombineSet))
		}
		if a.wants(u) {
			g := read(ct)
			if !at.unique {
				ids := updateIDs(a.b, u.typ)
				kept := write(a.b.Zeros(Type{ids.typ.DType, x.typ.Shape}), ids, CombineSet)
				g = Select(Equal(read(kept), ids), g, ZerosLike(g))
			}
			a.add(u, g)
		}
	case CombineMul:
		if a.wants(u) && !at.unique {
			a.b.failAt(op.pos, "scatter", op.operands, "the derivative of mul with respect to the updates is only defined for UniqueIndices; promise that, or wrap it in CustomVJP or StopGradient")
		}
		if a.wants(x) {
			a.add(x, write(ct, a.val(u), CombineMul))
		}
		if a.wants(u) {
			a.add(u, read(Mul(ct, a.val(x))))
		}
	default:
		out := a.val(op.results[0])
		hitX := Convert(Equal(a.val(x), out), ct.typ.DType)
		// Windows left out read zeros, which may equal the update: their share is 0 all the same.
		hitU := Convert(Equal(a.val(u), read(out)), ct.typ.DType)
		share := Div(ct, Max(write(hitX, hitU, CombineAdd), a.b.Scalar(ct.typ.DType, 1)))
		if a.wants(x) {
			a.add(x, Mul(share, hitX))
		}
		if a.wants(u) {
			a.add(u, Mul(read(share), hitU))
		}
	}
}

// updateIDs numbers the elements of updates from 1. Scattered like the updates,
// the numbers tell which was kept at every place: compilers settle two sets at
// the same indices in the same way. (One scatter of both, which could not but
// agree, aborts XLA's partitioner when the indices are sharded.)
func updateIDs(b *Builder, updates Type) *Value {
	d := U32
	if updates.Elements() >= math.MaxUint32 {
		d = U64
	}
	n := b.Iota(T(d, updates.Elements()), 0)
	return Reshape(Add(n, b.Int(d, 1)), updates.Shape...)
}

func printScatter(p *printer, op *Op) {
	at := op.attr.(scatterAttr)
	p.assign(op)
	p.write(`"stablehlo.scatter"(`)
	p.operands(op.operands)
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
	p.line("}) : ")
	p.signature(op)
}
