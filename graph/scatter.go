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

// scatterAttr: a scatter marked compare is printed as comparisons.
type scatterAttr struct {
	dims    GatherDims
	kind    Combine
	compare bool
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
	return x.b().emit1(opScatter, scatterAttr{dims: dims, kind: kind, indexOptions: o}, x, indices, updates)
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
				g = Select(keptUpdates(indices, at, sizes, x.typ, u.typ), g, ZerosLike(g))
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

// keptUpdates tells, for every element of updates, whether a set kept it. It
// scatters the numbers of the updates in the same way and looks which are still
// there: compilers settle two sets at the same indices alike. (One scatter of
// both, which could not but agree, aborts XLA's partitioner when the indices are
// sharded.) Windows that span whole dimensions are numbered as one.
func keptUpdates(indices *Value, at scatterAttr, sizes []int, x, updates Type) *Value {
	b := indices.b()
	d, inX, inU := at.dims.narrow(sizes, x.Shape, updates.Rank())
	ut := Type{U32, pick(updates.Shape, inU)}
	if ut.Elements() >= math.MaxUint32 {
		ut.DType = U64
	}
	ids := Add(b.Iota(T(ut.DType, ut.Elements()), 0), b.Int(ut.DType, 1))
	ids = Reshape(ids, ut.Shape...)
	kept := scatter(b.Zeros(Type{ut.DType, pick(x.Shape, inX)}), indices, ids, CombineSet, d, at.indexOptions)
	found := gatherInside(kept, indices, d, pick(sizes, inX), at.indexOptions)
	return BroadcastInDim(Equal(found, ids), updates.Shape, inU)
}

// narrow leaves out the dimensions of the operand that the window spans whole
// and that starts do not move along. It returns the remaining dimension numbers,
// and which dimensions of the operand and of the result (of the given rank)
// remain.
func (d GatherDims) narrow(sizes, shape []int, rank int) (n GatherDims, operand, result []int) {
	var whole, gone []int
	for i, o := range d.window(len(shape)) {
		if sizes[o] == shape[o] && !slices.Contains(d.StartIndexMap, o) {
			whole, gone = append(whole, o), append(gone, d.OffsetDims[i])
		}
	}
	operand, result = without(seq(0, len(shape)), whole...), without(seq(0, rank), gone...)
	renumber := func(dims, kept []int) (out []int) {
		for _, x := range dims {
			out = append(out, slices.Index(kept, x))
		}
		return out
	}
	n = GatherDims{
		OffsetDims:               renumber(without(d.OffsetDims, gone...), result),
		CollapsedSliceDims:       renumber(d.CollapsedSliceDims, operand),
		OperandBatchingDims:      renumber(d.OperandBatchingDims, operand),
		StartIndicesBatchingDims: d.StartIndicesBatchingDims,
		StartIndexMap:            renumber(d.StartIndexMap, operand),
		IndexVectorDim:           d.IndexVectorDim,
	}
	return n, operand, result
}

// fewUpdates is how many updates along a dimension are worth comparing every
// place with the index of each.
const fewUpdates = 8

// scatterInto adds updates up into zeros of type t. A few updates for each row
// (the label of a token, its experts) are marked to be spelt as comparisons:
// those fuse with what uses them and can be split over devices in any way, while
// a scatter goes through its updates one by one.
func scatterInto(t Type, indices, updates *Value, d GatherDims, o indexOptions) *Value {
	at := scatterAttr{dims: d, kind: CombineAdd, indexOptions: o}
	if len(d.StartIndexMap) == 1 {
		dim, it := d.StartIndexMap[0], indices.typ
		at.compare = d.equal(alongDims(t.Rank(), dim)) && it.Rank() == t.Rank()+1 && it.Shape[dim] <= fewUpdates &&
			indexType(it.DType, t.Shape[dim]) == it.DType
	}
	return indices.b().emit1(opScatter, at, indices.b().Zeros(t), indices, updates)
}

func (d GatherDims) equal(o GatherDims) bool {
	return d.IndexVectorDim == o.IndexVectorDim && slices.Equal(d.OffsetDims, o.OffsetDims) && slices.Equal(d.CollapsedSliceDims, o.CollapsedSliceDims) &&
		slices.Equal(d.OperandBatchingDims, o.OperandBatchingDims) && slices.Equal(d.StartIndicesBatchingDims, o.StartIndicesBatchingDims) && slices.Equal(d.StartIndexMap, o.StartIndexMap)
}
