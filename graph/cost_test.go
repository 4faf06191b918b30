package graph_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

func costed(t *testing.T, m *mesh.Mesh, f func(b *Builder)) *Module {
	t.Helper()
	mod, err := Trace("cost", m, func(b *Builder) error { f(b); return nil })
	require.NoError(t, err)
	return mod
}

func costMesh(t *testing.T, pairs ...any) *mesh.Mesh {
	t.Helper()
	var as []mesh.Axis
	for i := 0; i < len(pairs); i += 2 {
		as = append(as, mesh.Axis{Name: pairs[i].(string), Size: pairs[i+1].(int)})
	}
	m, err := mesh.New(as, nil)
	require.NoError(t, err)
	return m
}

// costSent gives the bytes of the collectives of one kind over one axis.
func costSent(c Cost, kind string, axes ...string) (bytes float64) {
	for _, cc := range c.Collectives {
		if cc.Kind == kind && strings.Join(cc.Axes, ",") == strings.Join(axes, ",") {
			bytes += cc.Bytes
		}
	}
	return bytes
}

func TestCostOfMatrixChain(t *testing.T) {
	c := costed(t, nil, func(b *Builder) {
		x, y, z := b.Input("x", T(F32, 3, 5)), b.Input("y", T(F32, 5, 7)), b.Input("z", T(F32, 7, 11))
		b.Output("o", MatMul(MatMul(x, y), z))
	}).Cost()
	require.Equal(t, 1, c.Devices)
	require.Equal(t, 2*3*5*7.+2*3*7*11, c.Global[CostContraction].Flops)
	require.Equal(t, 4*(15+35+21.)+4*(21+77+33.), c.Global[CostContraction].Bytes)
	require.Equal(t, c.Global, c.Device)
	require.Equal(t, Size{4 * (15 + 35 + 77), 4 * (15 + 35 + 77)}, c.Inputs)
	require.Equal(t, Size{4 * 33, 4 * 33}, c.Outputs)
	require.Empty(t, c.Collectives)
	top := c.Top(1)
	require.Equal(t, "dot", top[0].Op)
	require.Equal(t, T(F32, 3, 11), top[0].Result)
	require.True(t, strings.HasPrefix(top[0].Pos, "graph/cost_test.go:"))
	require.Len(t, c.Top(99), 2)
}

func TestCostOfOps(t *testing.T) {
	for _, c := range []struct {
		name  string
		class CostClass
		want  Work
		f     func(b *Builder, x *Value) *Value // x is f32[8,16], 512 bytes
	}{
		{"exp", CostElementwise, Work{128, 1024}, func(b *Builder, x *Value) *Value { return Exp(x) }},
		{"add", CostElementwise, Work{128, 1536}, func(b *Builder, x *Value) *Value { return Add(x, x) }},
		{"convert", CostElementwise, Work{0, 768}, func(b *Builder, x *Value) *Value { return Convert(x, BF16) }},
		{"sum", CostReduction, Work{128, 512 + 4 + 32}, func(b *Builder, x *Value) *Value { return Sum(x, 1) }},
		{"cumsum", CostReduction, Work{128, 1024}, func(b *Builder, x *Value) *Value { return Cumsum(x, 1) }},
		{"argmax", CostReduction, Work{128, 512 + 4 + 32}, func(b *Builder, x *Value) *Value { return ArgMax(x, 1) }},
		{"sort", CostReduction, Work{0, 4 * 512} /* with the permutation that its derivative needs */, func(b *Builder, x *Value) *Value { return Sort(x, 1) }},
		{"transpose", CostMovement, Work{0, 1024}, func(b *Builder, x *Value) *Value { return Transpose(x, 1, 0) }},
		{"slice", CostMovement, Work{0, 2 * 64}, func(b *Builder, x *Value) *Value { return SliceDim(x, 0, 3, 4) }},
		{"broadcast", CostMovement, Work{0, 3 * 512}, func(b *Builder, x *Value) *Value { return BroadcastTo(x, 2, 8, 16) }},
		{"dynamic_slice", CostMovement, Work{0, 2*64 + 8}, func(b *Builder, x *Value) *Value { return DynamicSliceDim(x, 0, b.Int(S32, 3), 1) }},
		{"dynamic_update_slice", CostMovement, Work{0, 2*64 + 8}, func(b *Builder, x *Value) *Value {
			return DynamicUpdateSliceDim(x, b.Zeros(T(F32, 1, 16)), 0, b.Int(S32, 3))
		}},
		{"to host", CostMovement, Work{0, 1024}, func(b *Builder, x *Value) *Value { return ToHost(x) }},
		{"gather", CostIndexing, Work{0, 3*4 + 2*3*64}, func(b *Builder, x *Value) *Value { return Take(x, b.ConstS32([]int{3}, []int32{1, 2, 3}), 0) }},
		{"scatter", CostIndexing, Work{48, 3*4 + 3*3*64}, func(b *Builder, x *Value) *Value {
			return IndexAdd(x, b.ConstS32([]int{3}, []int32{1, 2, 3}), b.Zeros(T(F32, 3, 16)), 0)
		}},
		{"custom call", CostCustomCall, Work{77, 99}, func(b *Builder, x *Value) *Value {
			return b.CustomCall(CustomCallSpec{Target: "t", Results: []Type{T(F32)}, Flops: 77, Bytes: 99}, x)[0]
		}},
		{"custom call that says nothing", CostCustomCall, Work{0, 516}, func(b *Builder, x *Value) *Value {
			return b.CustomCall(CustomCallSpec{Target: "t", Results: []Type{T(F32)}}, x)[0]
		}},
		{"dot", CostContraction, Work{2 * 8 * 16 * 8, 2*512 + 256}, func(b *Builder, x *Value) *Value { return Einsum("ab,cb->ac", x, x) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := costed(t, nil, func(b *Builder) { b.Output("o", c.f(b, b.Input("x", T(F32, 8, 16)))) }).Cost()
			require.Equal(t, c.want, got.Global[c.class])
		})
	}
	free := costed(t, nil, func(b *Builder) {
		x := Name(StopGradient(Reshape(b.Input("x", T(F32, 8, 16)), 128)), "x")
		b.Output("o", Barrier(x, b.Zeros(T(F32, 4)))[0])
	}).Cost()
	require.Equal(t, Totals{}, free.Global)
	require.Empty(t, free.Ops)
}

func TestCostOfRegions(t *testing.T) {
	body := func(x *Value) *Value { return Exp(Sin(x)) }
	scalar := func(f func(b *Builder, x *Value) *Value) Cost {
		return costed(t, nil, func(b *Builder) { b.Output("o", f(b, b.Input("x", T(F32, 10)))) }).Cost()
	}
	c := scalar(func(b *Builder, x *Value) *Value {
		ys, _ := b.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) {
			in, _ := b.Scan([]*Value{c[0]}, nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{body(c[0])}, nil }, Iterations(3))
			return in, nil
		}, Iterations(7))
		return ys[0]
	})
	require.Equal(t, Work{7 * 3 * 20, 7 * 3 * 160}, c.Global[CostElementwise])
	require.Equal(t, 21., c.Top(1)[0].Times)
	require.Empty(t, c.UnknownTrips)

	c = scalar(func(b *Builder, x *Value) *Value {
		return b.While([]*Value{x}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F32, 1)) }, func(c []*Value) []*Value { return []*Value{body(c[0])} })[0]
	})
	require.Equal(t, 20., c.Global[CostElementwise].Flops)
	require.Len(t, c.UnknownTrips, 1)
	require.Contains(t, c.UnknownTrips[0], "graph/cost_test.go:")
	require.Contains(t, c.String(), "while loop")

	c = scalar(func(b *Builder, x *Value) *Value {
		return b.While([]*Value{x}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F32, 1)) }, func(c []*Value) []*Value { return []*Value{body(c[0])} }, ExpectedTrips(2.5))[0]
	})
	require.Equal(t, 50., c.Global[CostElementwise].Flops)
	require.Empty(t, c.UnknownTrips)

	c = scalar(func(b *Builder, x *Value) *Value {
		return b.Switch(b.Input("i", T(S32)), func() []*Value { return []*Value{Exp(x)} }, func() []*Value { return []*Value{body(body(x))} }, func() []*Value { return []*Value{body(x)} })[0]
	})
	require.Equal(t, Work{40, 320}, c.Global[CostElementwise], "the costliest branch")

	c = scalar(func(b *Builder, x *Value) *Value {
		return CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{body(a[0])}, nil }, nil)[0]
	})
	require.Equal(t, 20., c.Global[CostElementwise].Flops)
}

// TestCostOfManualRegion: inside, shapes are one device's.
func TestCostOfManualRegion(t *testing.T) {
	const dp, tp = 2, 4
	c := costed(t, costMesh(t, "dp", dp, "tp", tp), func(b *Builder) {
		x := b.Input("x", T(F32, 8, 16), Sharded(sharding.P("dp", "tp")))
		w := b.Input("w", T(F32, 16, 32), Sharded(sharding.P("tp", nil)))
		y := b.ShardMap([]*Value{x, w}, []sharding.Spec{sharding.P("dp", "tp"), sharding.P("tp")}, []sharding.Spec{sharding.P("dp", "tp")}, func(l []*Value) []*Value {
			part := MatMul(l[0], l[1])                                      // [4,4] · [4,32]
			y := ReduceScatter(part, 1, "tp")                               // [4,8]
			y = Add(y, AllReduce(Sum(y), "dp"))                             // scalar
			y = Shift(AllToAll(AllGather(y, 1, "tp"), 0, 0, "tp"), 1, "tp") // [4,32]
			return []*Value{y}
		})
		b.Output("y", y[0])
	}).Cost()
	require.Equal(t, 2.*4*4*32, c.Device[CostContraction].Flops)
	require.Equal(t, 2.*4*4*32*8, c.Global[CostContraction].Flops)
	// Here the whole product was to be computed once, so the parts add up to it.
	require.Equal(t, 2.*8*16*32, c.Global[CostContraction].Flops)
	for kind, want := range map[string]float64{"reduce_scatter": 4 * 32 * 4, "all_gather": 4 * 32 * 4, "all_to_all": 4 * 32 * 4, "collective_permute": 4 * 32 * 4} {
		require.Equal(t, want, costSent(c, kind, "tp"), kind)
	}
	require.Equal(t, 4., costSent(c, "all_reduce", "dp"))
	for _, cc := range c.Collectives {
		require.False(t, cc.Implied, "%+v", cc)
		require.Equal(t, 1., cc.Count)
		share := map[string]float64{"all_reduce": 2 * 1. / 2, "collective_permute": 1}[cc.Kind]
		if share == 0 {
			share = 3. / 4
		}
		require.Equal(t, share*cc.Bytes, cc.Wire, cc.Kind)
	}
	require.Equal(t, Size{4 * (8*16 + 16*32), 4 * (8*16/8. + 16*32/4.)}, c.Inputs)
}

// TestCostLeavesAxesToTheCompiler: a region manual over dp only shares its work
// over tp as the compiler does.
func TestCostLeavesAxesToTheCompiler(t *testing.T) {
	c := costed(t, costMesh(t, "dp", 2, "tp", 4), func(b *Builder) {
		x := b.Input("x", T(F32, 8, 16), Sharded(sharding.P("dp")))
		w := b.Input("w", T(F32, 16, 32), Sharded(sharding.P(nil, "tp")))
		y := b.ShardMap([]*Value{x, w}, []sharding.Spec{sharding.P("dp"), sharding.P()}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value {
			return []*Value{MatMul(l[0], l[1])}
		}, ManualOver("dp"))
		b.Output("y", y[0])
	}).Cost()
	require.Equal(t, 2.*8*16*32, c.Global[CostContraction].Flops)
	require.Equal(t, 2.*8*16*32/8, c.Device[CostContraction].Flops)
	require.Empty(t, c.Collectives)
}

func TestCostTable(t *testing.T) {
	c := costed(t, costMesh(t, "dp", 4), func(b *Builder) {
		x := b.Input("x", T(F32, 64, 32), Sharded(sharding.P("dp")))
		w := b.Input("w", T(F32, 32, 16), Donated(), Sharded(sharding.P()))
		y := MatMul(x, w)
		b.Output("loss", Sum(y))
		b.Output("w", Sub(w, Grad(Sum(Exp(y)), w)[0]), Into(w))
	}).Cost()
	table := c.String()
	lines := strings.Split(table, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	for _, want := range []string{
		"4 devices flops bytes flops/device bytes/device",
		"contraction 131.07 k 28.67 k 32.77 k 10.24 k",
		"inputs 10.24 k 4.10 k",
		"donated 2.05 k 2.05 k",
		"all_reduce (implied) dp 2 2.05 k 3.08 k",
	} {
		require.Contains(t, lines, want, table)
	}
	require.Contains(t, table, "graph/cost_test.go:")
	require.NotContains(t, table, "while")
}

// TestCostOfEmbedding: with the table split over the vocabulary every device
// looks up what it has and the results are added; its gradient needs nothing.
// With the tokens split the gradients of the table are added.
func TestCostOfEmbedding(t *testing.T) {
	const v, d, b, s = 32, 8, 4, 6
	count := func(table, ids sharding.Spec) Cost {
		return costed(t, costMesh(t, "dp", 2, "tp", 4), func(bu *Builder) {
			w := bu.Input("table", T(F32, v, d), Sharded(table))
			i := bu.Input("ids", T(S32, b, s), Sharded(ids))
			x := Embedding(w, i)
			bu.Output("x", Exp(x), Sharded(ids))
			bu.Output("g", Grad(Sum(Exp(x)), w)[0], Sharded(table))
		}).Cost()
	}
	c := count(sharding.P("tp"), sharding.P())
	require.Equal(t, 4.*b*s*d, costSent(c, "all_reduce", "tp"))
	require.Len(t, c.Collectives, 1)
	c = count(sharding.P(), sharding.P("dp"))
	require.Equal(t, 4.*v*d, costSent(c, "all_reduce", "dp"))
	require.Len(t, c.Collectives, 1)
	c = count(sharding.P("tp"), sharding.P("dp"))
	require.Equal(t, 4.*b*s*d/2, costSent(c, "all_reduce", "tp"))
	require.Equal(t, 4.*v*d/4, costSent(c, "all_reduce", "dp"))
	require.Len(t, c.Collectives, 2)
}

// TestCostOfResharding: what moves is what lies elsewhere afterwards.
func TestCostOfResharding(t *testing.T) {
	const bytes = 8 * 16 * 4.
	for _, c := range []struct {
		name     string
		from, to sharding.Spec
		kind     string
		axes     []string
		want     float64
	}{
		{"same", sharding.P("dp", "tp"), sharding.P("dp", "tp"), "", nil, 0},
		{"gather", sharding.P("dp", "tp"), sharding.P(nil, "tp"), "all_gather", []string{"dp"}, bytes / 4},
		{"gather both", sharding.P([]string{"dp", "tp"}), sharding.P(), "all_gather", []string{"dp", "tp"}, bytes},
		{"slice", sharding.P("dp"), sharding.P("dp", "tp"), "", nil, 0},
		{"exchange", sharding.P("dp", nil), sharding.P(nil, "dp"), "all_to_all", []string{"dp"}, bytes / 2},
		{"slice, then gather", sharding.P("dp"), sharding.P(nil, "tp"), "all_gather", []string{"dp"}, bytes / 4},
		{"another order", sharding.P([]string{"dp", "tp"}), sharding.P([]string{"tp", "dp"}), "collective_permute", []string{"dp", "tp"}, bytes / 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := costed(t, costMesh(t, "dp", 2, "tp", 4), func(b *Builder) {
				x := b.Input("x", T(F32, 8, 16), Sharded(c.from))
				b.Output("y", Neg(Constrain(x, c.to)), Sharded(c.to))
			}).Cost()
			if c.kind == "" {
				require.Empty(t, got.Collectives)
				return
			}
			require.Len(t, got.Collectives, 1)
			require.Equal(t, c.want, costSent(got, c.kind, c.axes...), "%+v", got.Collectives)
		})
	}
}
