package graph_test

import (
	"math"
	"slices"
	"sort"
	"testing"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// s32 is an array of integers.
func s32(shape []int, xs ...float64) array { return arr(T(S32, shape...), xs...) }

// Indices are out of range in places and repeated in others: values must agree
// with a loop in Go, gradients with differences.
func TestIndexingGradients(t *testing.T) {
	x, u := normal(1, 4, 3), normal(2, 5, 3)
	ids := s32([]int{5}, 1, 3, 1, -2, 9)
	rows := func(x []array, combine func(old, u float64) float64) []array {
		out := array{x[0].Type, slices.Clone(x[0].data)}
		for i, r := range x[1].data {
			for c := range 3 {
				if r >= 0 && r < 4 {
					out.data[int(r)*3+c] = combine(out.data[int(r)*3+c], x[2].data[i*3+c])
				}
			}
		}
		return []array{out}
	}
	op := func(name string, f func(x, i, u *Value) *Value, combine func(old, u float64) float64) checked {
		c := fn(name, func(x []*Value) *Value { return f(x[0], x[1], x[2]) }, x, ids, u)
		c.want = func(x []array) []array { return rows(x, combine) }
		return c
	}
	scattered := func(kind Combine) func(x, i, u *Value) *Value {
		return func(x, i, u *Value) *Value {
			return Scatter(x, ExpandDims(i, 1), u, kind, GatherDims{OffsetDims: []int{1}, CollapsedSliceDims: []int{0}, StartIndexMap: []int{0}, IndexVectorDim: 1})
		}
	}
	looked := fn("embedding", func(x []*Value) *Value { return Embedding(x[0], x[1]) }, x, ids)
	looked.want = func(x []array) []array {
		out := array{T(F64, 5, 3), nil}
		for _, r := range x[1].data {
			k := int(min(max(r, 0), 3))
			out.data = append(out.data, x[0].data[k*3:k*3+3]...)
		}
		return []array{out}
	}
	along := s32([]int{4, 2}, 0, 2, 1, 1, -1, 7, 2, 0)
	picked := fn("take_along", func(x []*Value) *Value { return TakeAlong(x[0], x[1], -1) }, x, along)
	picked.want = func(x []array) []array {
		out := array{T(F64, 4, 2), nil}
		for i, k := range x[1].data {
			out.data = append(out.data, x[0].data[i/2*3+int(min(max(k, 0), 2))])
		}
		return []array{out}
	}
	added := fn("scatter_add", func(x []*Value) *Value { return ScatterAdd(x[0], x[1], x[2], 1) }, x, along, normal(3, 4, 2))
	added.want = func(x []array) []array {
		out := array{x[0].Type, slices.Clone(x[0].data)}
		for i, k := range x[1].data {
			if k >= 0 && k < 3 {
				out.data[i/2*3+int(k)] += x[2].data[i]
			}
		}
		return []array{out}
	}
	checkAll(t, nil, []checked{
		looked, picked, added,
		op("index_add", func(x, i, u *Value) *Value { return IndexAdd(x, i, u, 0) }, func(old, u float64) float64 { return old + u }),
		op("index_update", func(x, i, u *Value) *Value { return IndexUpdate(x, i, u, 0) }, func(_, u float64) float64 { return u }),
		op("scatter min", scattered(CombineMin), math.Min),
		op("scatter max", scattered(CombineMax), math.Max),
		fn("scatter mul by constants", func(x []*Value) *Value {
			return scattered(CombineMul)(x[0], x[1], x[0].Builder().Full(T(F64, 5, 3), -1.5))
		}, x, ids),
		fn("unique scatter mul", func(x []*Value) *Value {
			return Scatter(x[0], ExpandDims(x[1], 1), x[2], CombineMul, GatherDims{OffsetDims: []int{1}, CollapsedSliceDims: []int{0}, StartIndexMap: []int{0}, IndexVectorDim: 1}, UniqueIndices())
		}, x, s32([]int{3}, 2, 7, 0), normal(5, 3, 3)),
		fn("unique index_update", func(x []*Value) *Value { return IndexUpdate(x[0], x[1], x[2], 0, UniqueIndices()) }, x, s32([]int{3}, 2, 7, 0), normal(5, 3, 3)),
		fn("sorted take", func(x []*Value) *Value { return Take(x[0], x[1], 1, SortedIndices(), UniqueIndices()) }, x, s32([]int{2}, 0, 2)),
		fn("take with unsigned indices", func(x []*Value) *Value { return Take(x[0], x[1], 0) }, x, arr(T(U8, 3), 0, 255, 2)),
		fn("take by a scalar", func(x []*Value) *Value { return Take(x[0], x[1], 0) }, x, s32(nil, 2)),
		fn("take nothing", func(x []*Value) *Value { return Take(x[0], x[1], 0) }, x, s32([]int{0})),
		fn("index_add of nothing", func(x []*Value) *Value { return IndexAdd(x[0], x[1], x[2], 0) }, x, s32([]int{0}), normal(1, 0, 3)),
		fn("index_update of nothing", func(x []*Value) *Value { return IndexUpdate(x[0], x[1], x[2], 0) }, x, s32([]int{0}), normal(1, 0, 3)),
		fn("take_along of an empty array", func(x []*Value) *Value { return TakeAlong(x[0], x[1], 1) }, normal(1, 0, 3), s32([]int{0, 2})),
		fn("take_along with repeated indices", func(x []*Value) *Value { return TakeAlong(x[0], x[1], 0) }, x, s32([]int{2, 1}, 3, 1)),
	})
}

func TestOrderingGradients(t *testing.T) {
	x, v := normal(1, 3, 5), normal(2, 3, 5)
	sorted := fn("sort", func(x []*Value) *Value { return Sort(x[0], 1) }, x)
	sorted.want = func(x []array) []array {
		out := array{x[0].Type, slices.Clone(x[0].data)}
		for r := range 3 {
			sort.Float64s(out.data[r*5 : r*5+5])
		}
		return []array{out}
	}
	bySorting := fn("take_along argsort", func(x []*Value) *Value { return TakeAlong(x[0], Argsort(x[0], 1), 1) }, x)
	bySorting.want = sorted.want
	cum := func(name string, from, to func(i int) int, opts ...CumsumOption) checked {
		c := fn("cumsum "+name, func(x []*Value) *Value { return Cumsum(x[0], -1, opts...) }, x)
		c.want = func(x []array) []array {
			out := array{x[0].Type, make([]float64, 15)}
			for i := range out.data {
				for k := from(i % 5); k < to(i%5); k++ {
					out.data[i] += x[0].data[i/5*5+k]
				}
			}
			return []array{out}
		}
		return c
	}
	at := func(k int) func(int) int { return func(int) int { return k } }
	plus := func(k int) func(int) int { return func(i int) int { return i + k } }
	checkAll(t, nil, []checked{
		sorted,
		fn("sort descending, unstable", func(x []*Value) *Value { return Sort(x[0], 0, Descending(), Unstable()) }, x),
		{name: "sort by, three payloads", in: []array{x, v, s32([]int{3, 5}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)}, f: func(_ *Builder, x []*Value) []*Value {
			return SortBy(x[0], 1, []*Value{x[1], x[2], Mul(x[0], x[1])})
		}},
		{name: "sort by integer keys", in: []array{s32([]int{3, 5}, 2, 1, 2, 1, 0, 3, 3, 3, 3, 3, 9, 8, 7, 8, 9), v}, f: func(_ *Builder, x []*Value) []*Value {
			return SortBy(x[0], 1, []*Value{x[1]}, Descending())
		}},
		bySorting,
		{name: "top_k", in: []array{x}, f: func(_ *Builder, x []*Value) []*Value {
			v, i := TopK(x[0], 3)
			return []*Value{v, i}
		}},
		cum("forward", at(0), plus(1)), cum("back", plus(0), at(5), FromEnd()),
		cum("exclusive", at(0), plus(0), Exclusive()), cum("back, exclusive", plus(1), at(5), FromEnd(), Exclusive()),
		fn("cumsum of one", func(x []*Value) *Value { return Cumsum(x[0], 1) }, normal(3, 4, 1)),
		fn("exclusive cumsum of one", func(x []*Value) *Value { return Cumsum(x[0], 1, Exclusive()) }, normal(3, 4, 1)),
		fn("cumsum of nothing", func(x []*Value) *Value { return Cumsum(x[0], 1, Exclusive()) }, normal(3, 4, 0)),
		fn("erf_inv", func(x []*Value) *Value { return ErfInv(x[0]) }, uniform(3, -0.9, 0.9, 3, 4)).is(one(math.Erfinv)).within(1e-5),
		fn("sort of one", func(x []*Value) *Value { return Sort(x[0], 0) }, normal(3, 1)),
		fn("sort of nothing", func(x []*Value) *Value { return Sort(x[0], 1) }, normal(3, 2, 0)),
	})
}

// The same ops inside loops, branches, recomputed and manual regions, where
// residuals (indices, permutations, which update was kept) must travel.
func TestIndexingInRegions(t *testing.T) {
	body := func(x, ids, u *Value) *Value {
		y := IndexUpdate(x, ids, Mul(u, Sin(Take(x, ids, 0))), 0)
		s := SortBy(y, 1, []*Value{Mul(x, x)})
		v, i := TopK(Add(s[0], s[1]), 2)
		y = ScatterAdd(y, i, Cumsum(v, 1), 1)
		_, at := TopK(y, 3)
		return Add(y, Mul(TakeAlong(x, at, 1), Cos(y)))
	}
	x, u, ids := normal(1, 4, 3), normal(2, 6, 3), s32([]int{6}, 0, 3, 0, -1, 2, 3)
	rows := s32([]int{2, 6}, 0, 3, 0, -1, 2, 3, 1, 1, 1, 5, 3, 2)
	scan := func(wrap func(b *Builder, f func() []*Value) []*Value) func(b *Builder, x []*Value) []*Value {
		return func(b *Builder, x []*Value) []*Value {
			c, ys := b.Scan([]*Value{x[0]}, []*Value{x[1]}, func(c, r []*Value) (next, ys []*Value) {
				y := wrap(b, func() []*Value { return []*Value{body(c[0], r[0], x[2])} })
				return y, []*Value{Sum(y[0], 1)}
			})
			return []*Value{c[0], ys[0]}
		}
	}
	plain := func(_ *Builder, f func() []*Value) []*Value { return f() }
	recomputed := func(b *Builder, f func() []*Value) []*Value { return b.Checkpoint(SaveNothing(), f) }
	branch := func(b *Builder, f func() []*Value) []*Value {
		return b.Cond(Greater(b.Scalar(F32, 1), b.Scalar(F32, 0)), f, func() []*Value { return []*Value{b.Zeros(T(F64, 4, 3))} })
	}
	checkAll(t, nil, []checked{
		{name: "flat", in: []array{x, ids, u}, f: func(_ *Builder, x []*Value) []*Value { return []*Value{body(x[0], x[1], x[2])} }},
		{name: "checkpoint", in: []array{x, ids, u}, f: func(b *Builder, x []*Value) []*Value {
			return recomputed(b, func() []*Value { return []*Value{body(x[0], x[1], x[2])} })
		}},
		{name: "cond", in: []array{x, ids, u}, f: func(b *Builder, x []*Value) []*Value {
			return branch(b, func() []*Value { return []*Value{body(x[0], x[1], x[2])} })
		}},
		{name: "scan", in: []array{x, rows, u}, f: scan(plain)},
		{name: "scan of checkpoint", in: []array{x, rows, u}, f: scan(recomputed)},
		{name: "scan of cond", in: []array{x, rows, u}, f: scan(branch)},
	})

	// In a manual region the result must be that of each part by itself.
	m := newMesh(t, axis("d", 2), axis("e", 2))
	rowsOf := sharding.P("d")
	gradients := func(m *mesh.Mesh, f func(b *Builder, x, i, u *Value) *Value) []array {
		mod := trace(t, m, func(b *Builder) {
			in := func(name string, typ Type, s sharding.Spec) *Value {
				if m == nil {
					return b.Input(name, typ)
				}
				return b.Input(name, typ, Sharded(s))
			}
			x, i, u := in("x", T(F64, 8, 3), rowsOf), in("ids", T(S32, 6), sharding.P()), in("u", T(F64, 6, 3), sharding.P())
			y := f(b, x, i, u)
			for k, v := range append([]*Value{y}, Grad(Sum(Mul(y, y)), x, u)...) {
				if m != nil {
					b.Output("out", v, Sharded([]sharding.Spec{rowsOf, rowsOf, sharding.P()}[k]))
				} else {
					b.Output("out", v)
				}
			}
		})
		return run(t, mod, normal(3, 8, 3), ids, u)
	}
	whole := gradients(nil, func(_ *Builder, x, i, u *Value) *Value {
		return Concat(0, body(SliceDim(x, 0, 0, 4), i, u), body(SliceDim(x, 0, 4, 8), i, u))
	})
	for name, wrap := range map[string]func(b *Builder, f func() []*Value) []*Value{"plain": plain, "recomputed": recomputed} {
		parts := gradients(m, func(b *Builder, x, i, u *Value) *Value {
			return b.ShardMap([]*Value{x}, []sharding.Spec{rowsOf}, []sharding.Spec{rowsOf}, func(l []*Value) []*Value {
				return wrap(b, func() []*Value { return []*Value{body(l[0], i, u)} })
			})[0]
		})
		for k := range whole {
			requireClose(t, whole[k], parts[k], 1e-12, "%s: result %d", name, k)
		}
	}
}

// Gradients of gradients, of which the cotangent's own derivative is a part.
func TestIndexingGradOfGrad(t *testing.T) {
	f := func(b *Builder, x []*Value) []*Value {
		y := IndexUpdate(x[0], x[1], Mul(x[2], x[2]), 0)
		v, _ := TopK(Mul(Sort(y, 0), y), 2)
		loss := Sum(Mul(v, SliceDim(Cumsum(Take(x[0], b.ConstS32([]int{4}, []int32{1, 1, 0, 3}), 0), 1), 1, 0, 2)))
		return VJP([]*Value{loss}, []*Value{b.Scalar(F64, 1)}, []*Value{x[0], x[2]})
	}
	checkAll(t, nil, []checked{{name: "second derivative", in: []array{normal(1, 4, 3), s32([]int{3}, 1, 3, 1), normal(2, 3, 3)}, f: f, tol: 1e-5}})
}

// Every element type works, with the same result for numbers that all of them
// hold.
func TestIndexingTypes(t *testing.T) {
	x := arr(T(F64, 2, 5), 3, 1, 0, 1, 3, 2, 2, 3, 0, 1)
	u := arr(T(F64, 3, 5), 1, 0, 3, 2, 1, 5, 4, 0, 1, 1, 0, 2, 2, 1, 6)
	program := func(d DType) *Module {
		return trace(t, nil, func(b *Builder) {
			xv := Convert(b.Const(x.Type, x.encode(F64)), d)
			uv := Convert(b.Const(u.Type, u.encode(F64)), d)
			ids := b.ConstS32([]int{3}, []int32{1, 0, 7})
			out := func(v *Value) { b.Output("v", Convert(v, F64)) }
			out(Take(xv, ids, 0))
			out(IndexUpdate(xv, ids, uv, 0))
			out(Sort(xv, 1))
			out(Sort(xv, 0, Descending()))
			out(Argsort(xv, 1))
			v, i := TopK(xv, 3)
			out(v)
			out(i)
			out(ArgMax(xv, 1))
			out(ArgMin(xv, 0))
			if d != Bool {
				out(IndexAdd(xv, ids, uv, 0))
				out(Cumsum(xv, 1))
				out(Cumsum(xv, 0, FromEnd(), Exclusive()))
			}
		})
	}
	want := run(t, program(F64))
	for _, d := range []DType{S8, S16, S32, S64, U8, U16, U32, U64, F8E4M3, F8E5M2, F16, BF16, F32} {
		for k, got := range run(t, program(d)) {
			requireClose(t, want[k], got, 0, "%v: result %d", d, k)
		}
	}
	for i := range x.data {
		x.data[i] = float64(int(x.data[i]) % 2)
	}
	for i := range u.data {
		u.data[i] = float64(int(u.data[i]) % 2)
	}
	want = run(t, program(F64))
	for k, got := range run(t, program(Bool)) {
		requireClose(t, want[k], got, 0, "bool: result %d", k)
	}
}
