package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// meshes have 2, 4 and 8 devices.
func meshes(t testing.TB) []*mesh.Mesh {
	return []*mesh.Mesh{
		newMesh(t, axis("a", 2)),
		newMesh(t, axis("a", 2), axis("b", 2)),
		newMesh(t, axis("a", 2), axis("b", 2), axis("c", 2)),
	}
}

// randomSpec splits an array over randomly chosen axes, evenly.
func randomSpec(r *rand.Rand, m *mesh.Mesh, shape ...int) sharding.Spec {
	dims := make([][]string, len(shape))
	left := append([]int(nil), shape...)
	for _, a := range r.Perm(len(m.Axes())) {
		ax := m.Axes()[a]
		if len(shape) == 0 {
			break
		}
		if d := r.IntN(len(shape) + 1); d < len(shape) && left[d]%ax.Size == 0 {
			dims[d] = append(dims[d], ax.Name)
			left[d] /= ax.Size
		}
	}
	args := make([]any, len(shape))
	for i, d := range dims {
		if d != nil {
			args[i] = d
		}
	}
	return sharding.P(args...)
}

// However inputs, intermediate values and results are split, values and
// gradients are those of one device.
func TestIndexingSharded(t *testing.T) {
	const rows, cols, n = 16, 8, 16
	program := func(m *mesh.Mesh, r *rand.Rand) *Module {
		split := func(v *Value) *Value {
			if m == nil {
				return v
			}
			return Constrain(v, randomSpec(r, m, v.Shape()...))
		}
		port := func(shape ...int) PortOption {
			if m == nil {
				return nil
			}
			return Sharded(randomSpec(r, m, shape...))
		}
		return trace(t, m, func(b *Builder) {
			x := b.Input("x", T(F32, rows, cols), port(rows, cols))
			u := b.Input("u", T(F32, n, cols), port(n, cols))
			ids := b.Input("ids", T(S32, n), port(n))
			e := split(Embedding(x, ids))
			y := split(IndexUpdate(x, ids, split(Mul(e, u)), 0))
			s := SortBy(y, 1, []*Value{Mul(x, x)})
			v, i := TopK(split(Add(s[0], s[1])), 4)
			y = split(ScatterAdd(y, split(i), split(Cumsum(v, 1)), 1))
			y = Add(TakeAlong(x, Argsort(split(y), 0), 0), split(Cumsum(y, 0, FromEnd(), Exclusive())))
			for k, o := range append(append([]*Value{y, v}, Grad(Sum(Mul(y, y)), x, u)...), i, ArgMax(split(y), 0)) {
				b.Output(fmt.Sprint(k), o, port(o.Shape()...))
			}
		})
	}
	ids := array{T(S32, n), nil}
	r := rand.New(rand.NewPCG(3, 3))
	for range n {
		ids.data = append(ids.data, float64(r.IntN(rows+4)-2))
	}
	in := []array{normal(1, rows, cols).as(F32), normal(2, n, cols).as(F32), ids}
	want := run(t, program(nil, nil), in...)
	for i, m := range meshes(t) {
		got := run(t, program(m, rand.New(rand.NewPCG(uint64(i), 9))), in...)
		for k := range want {
			requireClose(t, want[k], got[k], 2e-6, "mesh %v, result %d", m, k)
		}
	}
}

// XLA's partitioner adds up batched scatters wrongly when operand and updates
// are split like this; the program must be spelt so that it does not. Indices of
// a narrow type must still count all batches.
func TestBatchedScatterSharded(t *testing.T) {
	m := newMesh(t, axis("a", 2), axis("b", 2), axis("c", 2))
	ab, bc := []string{"a", "b"}, []string{"b", "c"}
	const rows = 320
	build := func(m *mesh.Mesh) *Module {
		port := func(dims ...any) PortOption {
			if m == nil {
				return nil
			}
			return Sharded(sharding.P(dims...))
		}
		return trace(t, m, func(b *Builder) {
			x, u := b.Input("x", T(F32, rows, 8), port("c", ab)), b.Input("u", T(F32, rows, 8), port(nil, []string{"b", "a"}))
			i := b.Input("i", T(U8, rows, 8), port([]string{"b", "a"}, "c"))
			b.Output("y", ScatterAdd(x, i, u, 1), port("a", bc))
		})
	}
	in := []array{normal(1, rows, 8).as(F32), normal(2, rows, 8).as(F32), {T(U8, rows, 8), nil}}
	r := rand.New(rand.NewPCG(4, 4))
	for range rows * 8 {
		in[2].data = append(in[2].data, float64(r.IntN(10)))
	}
	requireClose(t, run(t, build(nil), in...)[0], run(t, build(m), in...)[0], 1e-6, "sharded")
}

// Random arrays are bit for bit the same for any sharding, and every device
// makes only its own part.
func TestRandomSharded(t *testing.T) {
	shape := []int{16, 24}
	program := func(m *mesh.Mesh, r *rand.Rand) *Module {
		return trace(t, m, func(b *Builder) {
			key := NewKey(7, "weights")
			for k, v := range []*Value{
				b.RandomBits(key.Named("a"), T(U32, shape...)),
				b.RandomUniform(key.Named("c"), T(F32, shape...), -1, 3),
				b.RandomNormal(key.Named("d"), T(F32, shape...)),
				b.RandomNormal(key.Named("d").FoldIn(b.Int(S32, 3)), T(BF16, 8, 32)),
				b.RandomTruncatedNormal(key.Named("e"), T(F32, shape...), -2, 2),
				Dropout(b.RandomNormal(key.Named("g"), T(F32, shape...)), 0.5, key.Named("h")),
			} {
				if m == nil {
					b.Output(fmt.Sprint(k), v)
					continue
				}
				if r.IntN(2) == 0 {
					v = Constrain(v, randomSpec(r, m, v.Shape()...))
				}
				b.Output(fmt.Sprint(k), v, Sharded(randomSpec(r, m, v.Shape()...)))
			}
		})
	}
	want := run(t, program(nil, nil))
	for i, m := range meshes(t) {
		got := run(t, program(m, rand.New(rand.NewPCG(uint64(i), 11))))
		for k := range want {
			for e, x := range want[k].data {
				if y := got[k].data[e]; math.Float64bits(x) != math.Float64bits(y) {
					require.Failf(t, "sharding changes the draw", "mesh %v, array %d, element %d: %v and %v", m, k, e, x, y)
				}
			}
		}
	}

	m := newMesh(t, axis("a", 8))
	big := trace(t, m, func(b *Builder) {
		b.Output("x", b.RandomNormal(NewKey(1), T(F32, 1024, 1024)), Sharded(sharding.P("a")))
	})
	stats, err := compile(t, big).exe.MemoryStats()
	require.NoError(t, err)
	require.Equal(t, int64(4<<20/8), stats.Outputs)
	require.Less(t, stats.Temp, int64(4<<20/8), "a device makes more than its part")
}

// In a manual region a device draws its part by saying which it is.
func TestRandomPartInShardMap(t *testing.T) {
	m := newMesh(t, axis("a", 2), axis("b", 4))
	spec := sharding.P("b", "a")
	mod := trace(t, m, func(b *Builder) {
		key := NewKey(5)
		local := T(F32, 2, 8)
		parts := b.ShardMap(nil, nil, []sharding.Spec{spec, spec, sharding.P()}, func([]*Value) []*Value {
			row := Mul(b.AxisIndex("b"), b.Int(S32, 2))
			col := Mul(b.AxisIndex("a"), b.Int(S32, 8))
			part := PartOf([]int{8, 16}, row, col)
			bits := b.RandomBitsAt(key, U32, []int{8, 16}, []*Value{row, col}, []int{2, 8})
			return []*Value{b.RandomNormal(key, local, part), bits, b.RandomNormal(key, local)}
		})
		whole := []*Value{b.RandomNormal(key, T(F32, 8, 16)), b.RandomBits(key, T(U32, 8, 16)), b.RandomNormal(key, local)}
		for i := range parts {
			b.Output("part", parts[i], Sharded([]sharding.Spec{spec, spec, sharding.P()}[i]))
			b.Output("whole", whole[i], Sharded(sharding.P()))
		}
	})
	got := run(t, mod)
	for i := 0; i < len(got); i += 2 {
		require.Equal(t, got[i+1].data, got[i].data)
	}
}
