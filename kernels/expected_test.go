package kernels

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
)

// What a grid does on typical data is counted with the very numbers that the program
// computes for such data.
func TestTypicalDataIsLaidOutAsByTheProgram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := xlatest.CPU(t)
	s32 := func(x []int) xlatest.Array {
		v := make([]int32, len(x))
		for i := range x {
			v[i] = int32(x[i])
		}
		return xlatest.S32(v)
	}
	const E, M, size = 5, 64, 8
	for _, all := range []bool{true, false} {
		m, err := graph.Trace("groups", nil, func(b *graph.Builder) error {
			sizes, first := b.Input("sizes", graph.T(dtype.S32, E)), b.Input("first", graph.T(dtype.S32))
			g := group(sizes, first, M, size, all)
			for _, x := range []*graph.Value{g.bound, g.group, g.tile, g.lhsTile, g.rows} {
				b.Output("out", x)
			}
			return nil
		})
		require.NoError(t, err)
		for range 20 {
			first, sizes := rng.IntN(3)*rng.IntN(20), make([]int, E)
			for g, left := 0, M-first; g < E; g++ {
				sizes[g] = rng.IntN(left+1) * rng.IntN(2)
				left -= sizes[g]
			}
			out := xlatest.Run(t, c, m.StableHLO(), 1, xlatest.Same(1, s32(sizes), xlatest.Array{DType: dtype.S32, Dims: []int{}, Data: s32([]int{first}).Data}))[0]
			g := groupOf(sizes, first, M, size, all)
			require.Equal(t, []int32{int32(g.bound)}, out[0].Int32s(), "%v from %d", sizes, first)
			for k, want := range [][]int32{g.group, g.tile, g.lhsTile, g.rows} {
				n := len(want)
				if k < 3 { // what lies behind the last visit but one is not read
					n = g.bound
				}
				require.Equal(t, want[:n], out[k+1].Int32s()[:n], "%d of sizes %v from %d", k, sizes, first)
			}
			require.Equal(t, g.group[g.bound], out[1].Int32s()[g.bound], "and none follows")
		}
	}

	s := attentionShape{G: 4, R: 2, Q: 64, T: 96, H: 8, B: 2, tiles: AttentionTiles{16, 32}}
	m, err := graph.Trace("visits", nil, func(b *graph.Builder) error {
		lo, hi := b.Input("lo", graph.T(dtype.S32, s.Q)), b.Input("hi", graph.T(dtype.S32, s.Q))
		rows := func(x *graph.Value) *graph.Value { return graph.BroadcastInDim(x, []int{s.B, s.Q}, []int{1}) }
		p := Attention{Q: lo, Lo: rows(lo), Hi: rows(hi)}.plan(s)
		for _, v := range []attentionVisits{p.byQuery(), p.byKey()} {
			for _, x := range v.operands(p) {
				b.Output("out", x)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for try := range 20 {
		lo, hi := s.typicalIntervals()
		if try > 0 {
			for q := range lo {
				lo[q] = rng.IntN(s.T)
				hi[q] = lo[q] + rng.IntN(s.T-lo[q]+1)
			}
		}
		out := xlatest.Run(t, c, m.StableHLO(), 1, xlatest.Same(1, s32(lo), s32(hi)))[0]
		for k, byKey := range []bool{false, true} {
			bound, vectors := s.operandsOf(lo, hi, byKey)
			got := out[7*k : 7*k+7]
			require.Equal(t, []int32{int32(bound)}, got[0].Int32s())
			for i, want := range vectors {
				n := len(want)
				if i < 2 {
					n = bound
				}
				require.Equal(t, want[:n], got[1+i].Int32s()[:n], "vector %d of %v, %v", i, lo, hi)
			}
		}
	}
}

// A causal attention of 4 tiles visits 10, of which 4 are masked, for each head;
// what is copied are the tiles of keys that change, and one tile of queries each.
func TestExpectedOfAttention(t *testing.T) {
	chip, err := mesh.ChipOf("tpu7x")
	require.NoError(t, err)
	const G, R, S, h, tile = 2, 3, 1024, 128, 256
	s := attentionShape{G: G, R: R, Q: S, T: S, H: h, B: 1, in: dtype.BF16, tiles: AttentionTiles{tile, tile}, causal: true}
	k := attentionForward(s, 16, dtype.BF16)
	spec := k.spec(Target{Chip: &chip})
	e, ok, err := ExpectedOf(k.mosaic())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []Conditional{{0, false}, {0, true}, {0, true}, {0, false}}, e.Conditionals, "begin, seen whole, masked, end")
	require.Equal(t, 2, e.Parallel)
	counts := map[string]float64{}
	for _, x := range e.Steps {
		counts[x.Ran] += x.Count
	}
	require.Equal(t, map[string]float64{"1011": 6, "1100": 18, "0100": 18, "0011": 18}, counts)
	require.Equal(t, 60.0, e.Count())
	// Of each head: 4 tiles of queries, with their intervals, in, and as many out with
	// the row of logarithms; of the 10 tiles of keys, and of values, the second is
	// that of the step before.
	const tiled = tile * h * 2
	require.Equal(t, float64(G*R*(4*(tiled+2*tile*4)+4*(tiled+tile*4)+2*tiled*9)), e.Bytes(), "%+v", e)
	require.Equal(t, e.Bytes(), spec.Bytes)
}

// Of a grouped product the matrix of a group is copied once for all its rows.
func TestExpectedOfGroups(t *testing.T) {
	const E, M, K, N = 4, 4096, 512, 256
	s := groupedShape{E: E, M: M, K: K, N: N, in: dtype.BF16, out: dtype.BF16, products: 1}
	k := groupedKernel(s, MatmulTiles{256, 512, 256}, M/256+E-1, M, false)
	e := k.expected()
	require.Equal(t, float64(M/256+E-1), e.Count(), "groups end inside of tiles")
	const x, y, z = 256 * 512 * 2, 512 * 256 * 2, 256 * 256 * 2
	require.Equal(t, float64(M/256*x+E*y+M/256*z), e.Bytes())
	ran := map[string]float64{}
	for _, v := range e.Steps {
		ran[v.Ran] += v.Count
	}
	require.Equal(t, map[string]float64{"1100": 13, "1010": 6}, ran, "whole tiles, shared ones")

	half := groupedKernel(s, MatmulTiles{256, 512, 256}, M/256+E-1, M/2, false).expected()
	require.Equal(t, 8.0, half.Steps[0].Count, "tiles without a group are made zero")
	require.Equal(t, "0001", half.Steps[0].Ran)
}

// A grid too large to go through one by one is scaled from a part.
func TestExpectedOfLargeGrids(t *testing.T) {
	walk := func(n int) *Expected {
		k := New("large")
		i, j := k.Grid(n, Parallel), k.Grid(300, Sequential)
		x := k.In("x", graph.T(dtype.F32, 8*n, 128), []int{8, 128}, i, k.Int(0))
		out := k.Out("out", graph.T(dtype.F32, 8*n, 128), []int{8, 128}, i, k.Int(0))
		k.If(Equal(j, k.Int(0)), func() { out.Store(x.Load()) })
		k.Expect(nil)
		require.NoError(t, k.err)
		return k.expected()
	}
	small, large := walk(100), walk(100_000)
	require.Equal(t, 300*100_000.0, large.Count())
	require.InEpsilon(t, 1000*small.Bytes(), large.Bytes(), 0.01)
}

func TestExpectRefuses(t *testing.T) {
	for _, f := range []func(k *Kernel){
		func(k *Kernel) { k.Expect(nil, []int32{1, 2}) },
		func(k *Kernel) { k.Expect([]int{9}, []int32{1, 2}) },
		func(k *Kernel) { k.Expect([]int{0}, []int32{1, 2}) },
		func(k *Kernel) { k.Expect([]int{2}, []int32{1}) },
		func(k *Kernel) { k.Expect([]int{2}) },
	} {
		k := New("k")
		k.DynamicGrid(8, 4)
		k.Prefetch("v", 2)
		f(k)
		require.ErrorContains(t, k.err, "want a bound, from 1 to the most there are, for each dynamic dimension of the grid and vectors of [2]")
	}
	_, ok, err := ExpectedOf("module {\n}\n")
	require.False(t, ok)
	require.NoError(t, err)
	_, _, err = ExpectedOf("module {\n}\n" + expectedLine + strings.Repeat("{", 3) + "\n")
	require.ErrorContains(t, err, "what is expected of a kernel")
}
