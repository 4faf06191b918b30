package graph

import "slices"

// takeDims are the dimension numbers by which indices of the given rank, with a
// last dimension of size 1 added, select along dimension dim of x.
func takeDims(x *Value, indices, dim int) GatherDims {
	return GatherDims{
		OffsetDims:         slices.Concat(seq(0, dim), seq(dim+indices, x.Rank()-1+indices)),
		CollapsedSliceDims: []int{dim},
		StartIndexMap:      []int{dim},
		IndexVectorDim:     indices,
	}
}

// Take selects along dimension dim of x: the result has x's shape with dim
// replaced by the dimensions of the integer indices, as numpy.take. Indices
// outside 0…n-1 are moved to the nearest end (negative ones to 0), and the
// gradient follows them there.
func Take(x, indices *Value, dim int, opts ...IndexOption) *Value {
	dim = x.b().dim("take", dim, x.Rank())
	if x.typ.Shape[dim] == 0 {
		x.b().failAt(x.b().position(1), "take", []*Value{x, indices}, "dimension %d is empty", dim)
	}
	sizes := slices.Clone(x.typ.Shape)
	sizes[dim] = 1
	return Gather(x, ExpandDims(indices, -1), takeDims(x, indices.Rank(), dim), sizes, opts...)
}

// Embedding looks up the rows of table [V, D] that ids name; the result has the
// shape of ids followed by D. Ids outside 0…V-1 are moved to the nearest row.
// The rows' cotangents are added up in the type that GradIn gives the table, at
// least in f32.
func Embedding(table, ids *Value) *Value {
	if table.Rank() != 2 {
		table.b().failAt(table.b().position(1), "embedding", []*Value{table, ids}, "the table must have two dimensions: rows and features")
	}
	return Take(table, ids, 0)
}

// IndexAdd is x with updates added along dimension dim where Take with the same
// indices would read; updates has the shape of that Take's result. Updates at
// indices outside 0…n-1 are left out; several at one index add up.
func IndexAdd(x, indices, updates *Value, dim int, opts ...IndexOption) *Value {
	return scatterTaken("index_add", x, indices, updates, dim, CombineAdd, opts)
}

// IndexUpdate is x with updates written along dimension dim where Take with the
// same indices would read; updates has the shape of that Take's result. Updates
// at indices outside 0…n-1 are left out; of several at one index it is undefined
// which is kept, and only that one gets a cotangent.
func IndexUpdate(x, indices, updates *Value, dim int, opts ...IndexOption) *Value {
	return scatterTaken("index_update", x, indices, updates, dim, CombineSet, opts)
}

// scatterTaken combines updates into x where Take would read.
func scatterTaken(name string, x, indices, updates *Value, dim int, kind Combine, opts []IndexOption) *Value {
	b := x.b()
	dim = b.dim(name, dim, x.Rank())
	want := slices.Concat(x.typ.Shape[:dim], indices.typ.Shape, x.typ.Shape[dim+1:])
	if !updates.typ.Equal(Type{x.typ.DType, want}) {
		b.failAt(b.position(2), name, []*Value{x, indices, updates}, "the updates must have type %v, as what Take reads there", Type{x.typ.DType, want})
	}
	if x.typ.Elements() == 0 { // no index is inside
		return x
	}
	return scatter(x, ExpandDims(indices, -1), updates, kind, takeDims(x, indices.Rank(), dim), indexOpts(opts))
}

// alongDims are the dimension numbers of TakeAlong: all dimensions but dim run
// together.
func alongDims(rank, dim int) GatherDims {
	others := without(seq(0, rank), dim)
	return GatherDims{
		CollapsedSliceDims:       []int{dim},
		OperandBatchingDims:      others,
		StartIndicesBatchingDims: others,
		StartIndexMap:            []int{dim},
		IndexVectorDim:           rank,
	}
}

// TakeAlong selects along dimension dim of x by an index for every element of
// the result, as numpy.take_along_axis: result[i, j, k] = x[i, indices[i, j, k], k]
// for dim 1. The integer indices have x's rank and, but for dim, x's sizes; size
// 1 is repeated. Indices outside 0…n-1 are moved to the nearest end, and the
// gradient follows them there.
func TakeAlong(x, indices *Value, dim int, opts ...IndexOption) *Value {
	b := x.b()
	dim = b.dim("take_along", dim, x.Rank())
	if indices.Rank() != x.Rank() {
		b.failAt(b.position(1), "take_along", []*Value{x, indices}, "the indices must have as many dimensions as the array")
	}
	shape := slices.Clone(x.typ.Shape)
	shape[dim] = indices.typ.Shape[dim]
	if full, ok := broadcastShape(indices.typ.Shape, shape); !ok || !slices.Equal(full, shape) {
		b.failAt(b.position(1), "take_along", []*Value{x, indices}, "the indices must have the array's size, or 1, in all dimensions but %d", dim)
	}
	if x.typ.Shape[dim] == 0 {
		b.failAt(b.position(1), "take_along", []*Value{x, indices}, "dimension %d is empty", dim)
	}
	sizes := make([]int, x.Rank())
	for i := range sizes {
		sizes[i] = 1
	}
	if slices.Contains(x.typ.Shape, 0) {
		return b.Zeros(Type{x.typ.DType, shape})
	}
	return Gather(x, ExpandDims(BroadcastTo(indices, shape...), -1), alongDims(x.Rank(), dim), sizes, opts...)
}

// ScatterAdd is x with updates added along dimension dim where TakeAlong with
// the same indices would read: x[i, indices[i, j, k], k] += updates[i, j, k] for
// dim 1. Indices and updates have one shape, which is x's but for dim. Updates
// at indices outside 0…n-1 are left out; several at one index add up.
func ScatterAdd(x, indices, updates *Value, dim int, opts ...IndexOption) *Value {
	return scatterAlong("scatter_add", x, indices, updates, dim, CombineAdd, opts)
}

func scatterAlong(name string, x, indices, updates *Value, dim int, kind Combine, opts []IndexOption) *Value {
	b := x.b()
	dim = b.dim(name, dim, x.Rank())
	want := slices.Clone(x.typ.Shape)
	if indices.Rank() == x.Rank() {
		want[dim] = indices.typ.Shape[dim]
	}
	if !slices.Equal(indices.typ.Shape, want) || !updates.typ.Equal(Type{x.typ.DType, want}) {
		b.failAt(b.position(2), name, []*Value{x, indices, updates}, "the indices must have the array's size in all dimensions but %d, and the updates the shape of the indices and the array's element type", dim)
	}
	if x.typ.Elements() == 0 { // no index is inside
		return x
	}
	return scatter(x, ExpandDims(indices, -1), updates, kind, alongDims(x.Rank(), dim), indexOpts(opts))
}
