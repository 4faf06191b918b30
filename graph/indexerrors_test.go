package graph_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// Mistakes name the op, the operands, what is wrong and the line.
func TestIndexingMistakes(t *testing.T) {
	type ops struct {
		b            *Builder
		x, i, u, f   *Value
		rows, scalar *Value
	}
	rows := GatherDims{OffsetDims: []int{1}, CollapsedSliceDims: []int{0}, StartIndexMap: []int{0}, IndexVectorDim: 1}
	with := func(change func(d *GatherDims)) GatherDims {
		d := rows
		change(&d)
		return d
	}
	for _, c := range []struct {
		name string
		f    func(o ops)
		want []string
	}{
		{"gather by floats", func(o ops) { Gather(o.x, o.f, rows, []int{1, 3}) }, []string{"gather(f32[4,3], f32[2,1])", "not an integer"}},
		{"gather vector dim", func(o ops) { Gather(o.x, o.i, with(func(d *GatherDims) { d.IndexVectorDim = 3 }), []int{1, 3}) }, []string{"dimension 3 of indices of rank 2"}},
		{"gather map", func(o ops) {
			Gather(o.x, o.i, with(func(d *GatherDims) { d.StartIndexMap = []int{0, 1} }), []int{1, 3})
		}, []string{"1 elements", "start_index_map [0 1] has 2"}},
		{"gather map out of range", func(o ops) {
			Gather(o.x, o.i, with(func(d *GatherDims) { d.StartIndexMap = []int{2} }), []int{1, 3})
		}, []string{"start_index_map", "dimension 2 of a value of rank 2"}},
		{"gather unsorted offsets", func(o ops) {
			Gather(o.x, o.i, GatherDims{OffsetDims: []int{2, 1}, StartIndexMap: []int{0}, IndexVectorDim: 1}, []int{1, 3})
		}, []string{"offset_dims [2 1]", "ascending"}},
		{"gather offset twice", func(o ops) {
			Gather(o.x, o.i, GatherDims{OffsetDims: []int{1, 1}, StartIndexMap: []int{0}, IndexVectorDim: 1}, []int{1, 3})
		}, []string{"offset_dims", "given twice"}},
		{"gather too few dims", func(o ops) {
			Gather(o.x, o.i, with(func(d *GatherDims) { d.OffsetDims = nil }), []int{1, 3})
		}, []string{"has 2 dimensions", "name 1"}},
		{"gather batching sizes", func(o ops) {
			Gather(o.x, o.i, GatherDims{OffsetDims: []int{1}, OperandBatchingDims: []int{1}, StartIndicesBatchingDims: []int{0}, StartIndexMap: []int{0}, IndexVectorDim: 1}, []int{1, 1})
		}, []string{"dimension 1 of the operand cannot be batched with dimension 0 of the indices"}},
		{"gather batching number", func(o ops) {
			Gather(o.x, o.i, GatherDims{OffsetDims: []int{1}, OperandBatchingDims: []int{1}, StartIndexMap: []int{0}, IndexVectorDim: 1}, []int{1, 1})
		}, []string{"differ in number"}},
		{"gather window too large", func(o ops) { Gather(o.x, o.i, rows, []int{1, 4}) }, []string{"size 4 in dimension 1", "which has 3"}},
		{"gather window rank", func(o ops) { Gather(o.x, o.i, rows, []int{1}) }, []string{"the window has 1 dimensions, the operand 2"}},
		{"gather collapsed window", func(o ops) { Gather(o.x, o.i, rows, []int{2, 3}) }, []string{"size 2 in dimension 0", "must be 1"}},
		{"scatter types", func(o ops) { Scatter(o.x, o.i, Convert(o.u, BF16), CombineAdd, rows) }, []string{"scatter(f32[4,3], s32[2,1], bf16[2,3])", "f32 and bf16"}},
		{"scatter shape", func(o ops) { Scatter(o.x, o.i, o.x, CombineAdd, rows) }, []string{"updates have shape [4,3], the indices ask for [2,3]"}},
		{"scatter window", func(o ops) { Scatter(o.u, o.i, o.b.Zeros(T(F32, 2, 4)), CombineAdd, rows) }, []string{"size 4 in dimension 1"}},
		{"scatter rank", func(o ops) { Scatter(o.x, o.i, o.scalar, CombineAdd, rows) }, []string{"offset_dims [1] of updates of rank 0"}},
		{"scatter offsets", func(o ops) {
			Scatter(o.x, o.i, o.u, CombineAdd, with(func(d *GatherDims) { d.OffsetDims = []int{0, 1} }))
		}, []string{"has 2 dimensions", "name 3"}},
		{"scatter add of bools", func(o ops) {
			Scatter(Convert(o.x, Bool), o.i, Convert(o.u, Bool), CombineAdd, rows)
		}, []string{"add of element type bool"}},
		{"scatter kind", func(o ops) { Scatter(o.x, o.i, o.u, Combine(9), rows) }, []string{"unknown way"}},
		{"scatter mul", func(o ops) { Grad(Sum(Scatter(o.x, o.i, o.u, CombineMul, rows)), o.u) }, []string{"scatter(", "UniqueIndices"}},
		{"take dim", func(o ops) { Take(o.x, o.rows, 2) }, []string{"take", "dimension 2 of a value of rank 2"}},
		{"take by floats", func(o ops) { Take(o.x, o.f, 0) }, []string{"gather(f32[4,3], f32[2,1,1])", "not an integer"}},
		{"take from nothing", func(o ops) { Take(o.b.Zeros(T(F32, 0, 2)), o.rows, 0) }, []string{"take(f32[0,2], s32[2])", "dimension 0 is empty"}},
		{"embedding rank", func(o ops) { Embedding(o.rows, o.i) }, []string{"embedding(s32[2], s32[2,1])", "two dimensions"}},
		{"take_along rank", func(o ops) { TakeAlong(o.x, o.rows, 0) }, []string{"take_along(f32[4,3], s32[2])", "as many dimensions"}},
		{"take_along sizes", func(o ops) { TakeAlong(o.x, o.b.Zeros(T(S32, 4, 2)), 0) }, []string{"take_along", "all dimensions but 0"}},
		{"take_along from nothing", func(o ops) { TakeAlong(o.b.Zeros(T(F32, 2, 0)), o.b.Zeros(T(S32, 2, 1)), 1) }, []string{"dimension 1 is empty"}},
		{"index_add shape", func(o ops) { IndexAdd(o.x, o.rows, o.x, 0) }, []string{"index_add(f32[4,3], s32[2], f32[4,3])", "must have type f32[2,3]"}},
		{"index_update type", func(o ops) { IndexUpdate(o.x, o.rows, Convert(o.u, F64), 0) }, []string{"index_update(", "must have type f32[2,3]"}},
		{"scatter_add shape", func(o ops) { ScatterAdd(o.x, o.i, o.u, 0) }, []string{"scatter_add(f32[4,3], s32[2,1], f32[2,3])", "all dimensions but 0"}},
		{"sort dim", func(o ops) { Sort(o.x, -3) }, []string{"sort", "dimension -3 of a value of rank 2"}},
		{"sort shapes", func(o ops) { SortBy(o.x, 0, []*Value{o.u}) }, []string{"sort(f32[4,3], f32[2,3]", "cannot follow keys of shape [4,3]"}},
		{"argsort of scalar", func(o ops) { Argsort(o.scalar, 0) }, []string{"argsort", "rank 0"}},
		{"top_k", func(o ops) { TopK(o.x, 4) }, []string{"top_k(f32[4,3])", "k = 4"}},
		{"top_k of 0", func(o ops) { TopK(o.x, 0) }, []string{"k = 0"}},
		{"argmax of nothing", func(o ops) { ArgMax(o.b.Zeros(T(F32, 2, 0)), 1) }, []string{"arg_reduce(f32[2,0]", "dimension 1 has size 0"}},
		{"cumsum of bools", func(o ops) { Cumsum(Convert(o.x, Bool), 0) }, []string{"cumsum(bool[4,3])", "convert it"}},
		{"erf_inv of integers", func(o ops) { ErfInv(o.i) }, []string{"erf_inv(s32[2,1])", "not a float"}},
		{"bits type", func(o ops) { o.b.RandomBits(NewKey(1), T(F32, 2)) }, []string{"random_bits", "u8, u16, u32 or u64"}},
		{"part too large", func(o ops) { o.b.RandomBits(NewKey(1), T(U32, 3), PartOf([]int{2}, o.b.Int(S32, 0))) }, []string{"a part of shape [3] in an array of shape [2]"}},
		{"part rank", func(o ops) { o.b.RandomBits(NewKey(1), T(U32, 3), PartOf([]int{2, 3}, o.b.Int(S32, 0))) }, []string{"with 1 starts in an array of shape [2,3]"}},
		{"part start", func(o ops) { o.b.RandomBits(NewKey(1), T(U32, 1), PartOf([]int{2}, o.f)) }, []string{"start 0 must be an integer scalar"}},
		{"uniform of integers", func(o ops) { o.b.RandomUniform(NewKey(1), T(S32, 2), 0, 1) }, []string{"random_uniform", "over floats"}},
		{"empty interval", func(o ops) { o.b.RandomUniform(NewKey(1), T(F32, 2), 1, 1) }, []string{"no floats", "[1, 1)"}},
		{"interval of no bf16", func(o ops) { o.b.RandomUniform(NewKey(1), T(BF16, 2), 1, 1.0001) }, []string{"no floats"}},
		{"endless interval", func(o ops) { o.b.RandomUniform(NewKey(1), T(F32, 2), 0, math.Inf(1)) }, []string{"no floats"}},
		{"far tail", func(o ops) { o.b.RandomTruncatedNormal(NewKey(1), T(F32, 2), 8, 9) }, []string{"holds no probability"}},
		{"probability", func(o ops) { o.b.Bernoulli(NewKey(1), 1.5, nil) }, []string{"1.5", "between 0 and 1"}},
		{"rate", func(o ops) { Dropout(o.x, 1, NewKey(1)) }, []string{"dropout(f32[4,3])", "less than 1"}},
		{"key words", func(o ops) { KeyOf(o.x) }, []string{"key(f32[4,3])", "u32[2]"}},
		{"fold_in", func(o ops) { NewKey(1).FoldIn(o.x) }, []string{"fold_in(f32[4,3])", "integer scalar"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			msg := traceError(t, nil, func(b *Builder) {
				x, i := b.Input("x", T(F32, 4, 3)), b.Input("i", T(S32, 2, 1))
				c.f(ops{b: b, x: x, i: i, u: b.Input("u", T(F32, 2, 3)), f: Convert(i, F32), rows: Reshape(i, 2), scalar: b.Scalar(F32, 1)})
				b.Output("x", x)
			})
			for _, w := range c.want {
				require.Contains(t, msg, w)
			}
			require.Contains(t, msg, "graph/indexerrors_test.go:")
			require.NotContains(t, msg, "panicked")
		})
	}
}

// Rows of a bf16 table that many ids name get the sum of their cotangents,
// added in f32, in the type that GradIn asks for.
func TestEmbeddingGradientIsWide(t *testing.T) {
	const n, v, d = 512, 4, 8
	build := func(mark func(w *Value) *Value) *Module {
		return trace(t, nil, func(b *Builder) {
			table, ids := b.Input("table", T(F32, v, d)), b.Input("ids", T(S32, n))
			ct := b.Input("ct", T(BF16, n, d))
			w := mark(Convert(table, BF16))
			b.Output("g", VJP([]*Value{Embedding(w, ids)}, []*Value{ct}, []*Value{table})[0])
		})
	}
	ids, ct := array{T(S32, n), nil}, normal(1, n, d).as(BF16)
	want := array{T(F32, v, d), make([]float64, v*d)}
	for i := range n {
		ids.data = append(ids.data, float64(i%3))
		for k := range d {
			want.data[i%3*d+k] += ct.data[i*d+k]
		}
	}
	worst := func(m *Module) (e float64) {
		for i, x := range run(t, m, normal(2, v, d).as(F32), ids, ct)[0].data {
			e = max(e, math.Abs(x-want.data[i]))
		}
		return e
	}
	wide := build(func(w *Value) *Value { return WithGradIn(w, F32) })
	plain := build(func(w *Value) *Value { return w })
	require.Equal(t, []string{"f32"}, resultTypes(wide, "\"stablehlo.scatter"))
	require.Less(t, worst(wide), 1e-4)
	require.Less(t, worst(plain), 0.1, "rounded once to bf16, of sums around 10")
	require.Greater(t, worst(plain), 1e-3)
}
