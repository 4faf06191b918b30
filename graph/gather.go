package graph

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// GatherDims says how the dimensions of operand, indices and result of Gather
// belong together. The fields have the names and meanings of StableHLO's gather.
//
// The indices are an array of index vectors, which lie along IndexVectorDim (or
// have one element each, when that is the rank of the indices). Element k of a
// vector is where the window starts along dimension StartIndexMap[k] of the
// operand; elsewhere it starts at 0. The result has the dimensions of the
// indices but IndexVectorDim, in order, and between them, at OffsetDims, the
// dimensions of the window but those in CollapsedSliceDims and
// OperandBatchingDims, which must have size 1 in it.
//
// OperandBatchingDims[i] of the operand and StartIndicesBatchingDims[i] of the
// indices run together: a window is taken at the same position in both.
type GatherDims struct {
	OffsetDims               []int
	CollapsedSliceDims       []int
	OperandBatchingDims      []int
	StartIndicesBatchingDims []int
	StartIndexMap            []int
	IndexVectorDim           int
}

// indexOptions are promises about the indices.
type indexOptions struct{ sorted, unique bool }

// IndexOption promises something about the indices of a gather or scatter, so
// that the compiler can do better. If a promise is broken the result is
// undefined.
type IndexOption func(*indexOptions)

// SortedIndices promises that the index vectors are in ascending order.
func SortedIndices() IndexOption { return func(o *indexOptions) { o.sorted = true } }

// UniqueIndices promises that no two windows overlap, for a gather also after
// its windows have been moved inside the operand.
func UniqueIndices() IndexOption { return func(o *indexOptions) { o.unique = true } }

func indexOpts(opts []IndexOption) (o indexOptions) {
	for _, f := range opts {
		f(&o)
	}
	return o
}

type gatherAttr struct {
	dims  GatherDims
	sizes []int
	indexOptions
}

func init() {
	define(opGather, opDef{
		name: "gather",
		infer: func(op *Op) ([]Type, error) {
			at, x := op.attr.(gatherAttr), op.operands[0].typ
			shape, err := at.dims.result(x, op.operands[1].typ, at.sizes)
			return []Type{{x.DType, shape}}, err
		},
		wideCT: true,
		vjp:    gatherVJP,
		print: func(p *printer, op *Op) {
			at := op.attr.(gatherAttr)
			p.assign(op)
			p.write(`"stablehlo.gather"(`)
			p.operands(op.operands)
			p.write(") <{dimension_numbers = #stablehlo.gather<")
			p.indexDims(at.dims, [5]string{"offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map"})
			fmt.Fprintf(&p.sb, ">, indices_are_sorted = %v, slice_sizes = array<i64", at.sorted)
			if len(at.sizes) > 0 {
				p.write(": " + joinInts(at.sizes, ", "))
			}
			p.write(">}> : ")
			p.signature(op)
		},
	})
}

// indexDims writes dimension numbers under the names that gather or scatter
// have for them.
func (p *printer) indexDims(d GatherDims, names [5]string) {
	for i, dims := range [5][]int{d.OffsetDims, d.CollapsedSliceDims, d.OperandBatchingDims, d.StartIndicesBatchingDims, d.StartIndexMap} {
		if len(dims) > 0 {
			p.write(names[i] + " = ")
			p.ints(dims)
			p.write(", ")
		}
	}
	p.write("index_vector_dim = ")
	p.int(d.IndexVectorDim)
}

// result checks d against the operand, the indices and the window's sizes, as
// the StableHLO specification asks, and gives the shape of the result.
func (d GatherDims) result(x, indices Type, sizes []int) ([]int, error) {
	if !indices.DType.IsInt() {
		return nil, fmt.Errorf("indices have element type %v, not an integer type", indices.DType)
	}
	if d.IndexVectorDim < 0 || d.IndexVectorDim > indices.Rank() {
		return nil, fmt.Errorf("index vectors along dimension %d of indices of rank %d", d.IndexVectorDim, indices.Rank())
	}
	vector := 1
	if d.IndexVectorDim < indices.Rank() {
		vector = indices.Shape[d.IndexVectorDim]
	}
	if len(d.StartIndexMap) != vector {
		return nil, fmt.Errorf("index vectors have %d elements, start_index_map %v has %d", vector, d.StartIndexMap, len(d.StartIndexMap))
	}
	gone := slices.Concat(d.CollapsedSliceDims, d.OperandBatchingDims)
	batch := without(seq(0, indices.Rank()), d.IndexVectorDim)
	rank := len(batch) + len(d.OffsetDims)
	for _, c := range []struct {
		name   string
		dims   []int
		rank   int
		sorted bool
	}{
		{"offset_dims", d.OffsetDims, rank, true},
		{"collapsed_slice_dims", d.CollapsedSliceDims, x.Rank(), true},
		{"operand_batching_dims", d.OperandBatchingDims, x.Rank(), true},
		{"start_indices_batching_dims", d.StartIndicesBatchingDims, indices.Rank(), false},
		{"collapsed_slice_dims and operand_batching_dims", gone, x.Rank(), false},
		{"start_index_map and operand_batching_dims", slices.Concat(d.StartIndexMap, d.OperandBatchingDims), x.Rank(), false},
	} {
		if err := checkDims(c.dims, c.rank); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if c.sorted && !slices.IsSorted(c.dims) {
			return nil, fmt.Errorf("%s %v must be in ascending order", c.name, c.dims)
		}
	}
	if x.Rank() != len(d.OffsetDims)+len(gone) {
		return nil, fmt.Errorf("the operand has %d dimensions; offset_dims, collapsed_slice_dims and operand_batching_dims name %d", x.Rank(), len(d.OffsetDims)+len(gone))
	}
	if len(d.OperandBatchingDims) != len(d.StartIndicesBatchingDims) {
		return nil, fmt.Errorf("operand_batching_dims %v and start_indices_batching_dims %v differ in number", d.OperandBatchingDims, d.StartIndicesBatchingDims)
	}
	for i, o := range d.OperandBatchingDims {
		j := d.StartIndicesBatchingDims[i]
		if j == d.IndexVectorDim || x.Shape[o] != indices.Shape[j] {
			return nil, fmt.Errorf("dimension %d of the operand cannot be batched with dimension %d of the indices", o, j)
		}
	}
	if len(sizes) != x.Rank() {
		return nil, fmt.Errorf("the window has %d dimensions, the operand %d", len(sizes), x.Rank())
	}
	for i, n := range sizes {
		if n < 0 || n > x.Shape[i] {
			return nil, fmt.Errorf("the window has size %d in dimension %d of the operand, which has %d", n, i, x.Shape[i])
		}
		if n != 1 && slices.Contains(gone, i) {
			return nil, fmt.Errorf("the window has size %d in dimension %d, which the result lacks; it must be 1", n, i)
		}
	}
	shape := make([]int, rank)
	for i, o := range d.window(x.Rank()) {
		shape[d.OffsetDims[i]] = sizes[o]
	}
	for i, r := range d.batchDims(rank) {
		shape[r] = indices.Shape[batch[i]]
	}
	return shape, nil
}

// window lists the operand dimensions that the result keeps.
func (d GatherDims) window(rank int) []int {
	return without(without(seq(0, rank), d.CollapsedSliceDims...), d.OperandBatchingDims...)
}

// batchDims lists the dimensions of a result of the given rank that come from
// the indices.
func (d GatherDims) batchDims(rank int) []int { return without(seq(0, rank), d.OffsetDims...) }

func (d GatherDims) clone() GatherDims {
	return GatherDims{slices.Clone(d.OffsetDims), slices.Clone(d.CollapsedSliceDims), slices.Clone(d.OperandBatchingDims),
		slices.Clone(d.StartIndicesBatchingDims), slices.Clone(d.StartIndexMap), d.IndexVectorDim}
}

// Gather takes from x, for every index vector, the window of the given sizes
// that starts there. Starts are moved so that the window lies inside x; the
// gradient follows the moved window. See Take and TakeAlong for the usual cases.
//
// The cotangent of x is a scatter-add, taken in the type that GradIn gives x and
// at least in f32.
func Gather(x, indices *Value, dims GatherDims, sizes []int, opts ...IndexOption) *Value {
	return x.b().emit1(opGather, gatherAttr{dims.clone(), slices.Clone(sizes), indexOpts(opts)}, x, indices)
}

func gatherVJP(a *adjoint, op *Op, cts []*Value) {
	at, x := op.attr.(gatherAttr), op.operands[0]
	if !a.wants(x) {
		return
	}
	d := sumType(wider(cts[0].typ.DType, a.gradDType(x)))
	starts := moveInside(a.val(op.operands[1]), at.dims, at.sizes, x.typ.Shape)
	sum := scatterInto(Type{d, x.typ.Shape}, starts, Convert(cts[0], d), at.dims, at.indexOptions)
	a.add(x, Convert(sum, a.gradDType(x)))
}

// sumType is the type in which floats of type d are added up.
func sumType(d DType) DType {
	if d.IsFloat() && d.Size() < 4 {
		return F32
	}
	return d
}

// lastStarts gives the largest start of a window inside an array of the given
// shape, as a value that broadcasts against the indices.
func lastStarts(indices *Value, d GatherDims, sizes, shape []int) *Value {
	b, t := indices.b(), indices.typ
	limit := 1<<(8*t.DType.Size()-1) - 1 // larger starts do not fit the type of the indices
	if t.DType.Size() < 8 && !t.DType.IsSigned() {
		limit = 1<<(8*t.DType.Size()) - 1
	}
	var data []byte
	for _, o := range d.StartIndexMap {
		last := min(shape[o]-sizes[o], limit)
		data = append(data, binary.LittleEndian.AppendUint64(nil, uint64(last))[:t.DType.Size()]...)
	}
	v := b.Const(T(t.DType, len(d.StartIndexMap)), data)
	if d.IndexVectorDim == t.Rank() {
		return BroadcastInDim(Reshape(v), t.Shape, nil)
	}
	return BroadcastInDim(v, t.Shape, []int{d.IndexVectorDim})
}

// moveInside moves starts as Gather does.
func moveInside(indices *Value, d GatherDims, sizes, shape []int) *Value {
	v := Min(indices, lastStarts(indices, d, sizes, shape))
	if indices.typ.DType.IsSigned() {
		v = Max(v, ZerosLike(v))
	}
	return v
}

// gatherInside is Gather with zeros for windows that do not lie inside x: what
// scatter leaves out.
func gatherInside(x, indices *Value, d GatherDims, sizes []int, o indexOptions) *Value {
	g := x.b().emit1(opGather, gatherAttr{d, sizes, o}, x, indices)
	inside := LessEqual(indices, lastStarts(indices, d, sizes, x.typ.Shape))
	if indices.typ.DType.IsSigned() {
		inside = And(inside, GreaterEqual(indices, ZerosLike(indices)))
	}
	if d.IndexVectorDim < indices.Rank() {
		inside = All(inside, d.IndexVectorDim)
	}
	inside = BroadcastInDim(inside, g.typ.Shape, d.batchDims(g.Rank()))
	return Select(inside, g, ZerosLike(g))
}
