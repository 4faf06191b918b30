package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
)

var strict = kernels.Target{Strict: true}

func floats(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// groupedProgram gives out, dlhs and drhs of lhs, rhs, sizes, first and ct.
func groupedProgram(t *testing.T, M, K, N, E int, d dtype.DType, o kernels.GroupedOptions) string {
	t.Helper()
	m, err := graph.Trace("grouped", nil, func(b *graph.Builder) error {
		lhs, rhs := b.Input("lhs", graph.T(d, M, K)), b.Input("rhs", graph.T(d, E, K, N))
		sizes, first := b.Input("sizes", graph.T(dtype.S32, E)), b.Input("first", graph.T(dtype.S32))
		ct := b.Input("ct", graph.T(d, M, N))
		o.First = first
		out := kernels.GroupedMatmul(lhs, rhs, sizes, o)
		b.Output("out", out)
		for i, g := range graph.VJP([]*graph.Value{out}, []*graph.Value{ct}, []*graph.Value{lhs, rhs}) {
			b.Output([]string{"dlhs", "drhs"}[i], g)
		}
		return nil
	})
	require.NoError(t, err)
	return m.StableHLO()
}

// plainGrouped is the definition of a grouped product and of its gradients.
func plainGrouped(lhs, rhs, ct []float32, sizes []int32, first, M, K, N int) (out, dlhs, drhs []float32) {
	out, dlhs, drhs = make([]float32, M*N), make([]float32, M*K), make([]float32, len(rhs))
	row := first
	for e, n := range sizes {
		for ; n > 0 && row < M; n, row = n-1, row+1 {
			for k := range K {
				x := lhs[row*K+k]
				for j := range N {
					w, c := rhs[(e*K+k)*N+j], ct[row*N+j]
					out[row*N+j] += x * w
					dlhs[row*K+k] += c * w
					drhs[(e*K+k)*N+j] += x * c
				}
			}
		}
	}
	return out, dlhs, drhs
}

// groupSizes draws the rows of E groups: of any size, with empty ones, one giant
// one, whole tiles, or nothing at all; they may leave rows over or have too many.
func groupSizes(r *rand.Rand, E, M, tile int) (sizes []int32, first int) {
	sizes = make([]int32, E)
	left := M
	switch r.IntN(6) {
	case 0: // one giant group
		sizes[r.IntN(E)] = int32(M)
		return sizes, 0
	case 1: // no rows at all
		return sizes, r.IntN(M + 1)
	case 2: // whole tiles
		for e := range sizes {
			sizes[e] = int32(tile * r.IntN(2))
		}
		return sizes, tile * r.IntN(2)
	case 3: // more than there is room for
		for e := range sizes {
			sizes[e] = int32(r.IntN(M))
		}
		return sizes, 0
	case 4:
		first = r.IntN(M)
		left -= first
	}
	for e := range sizes {
		if r.IntN(3) > 0 {
			sizes[e] = int32(r.IntN(left + 1))
			left -= int(sizes[e])
		}
	}
	return sizes, first
}

func requireClose(t *testing.T, want, got []float32, tolerance float64, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if d := math.Abs(float64(want[i] - got[i])); !(d <= tolerance*(1+math.Abs(float64(want[i])))) {
			require.Failf(t, "differs", "%s: element %d is %v, not %v", fmt.Sprintf(what, args...), i, got[i], want[i])
		}
	}
}

// Values and gradients are those of the definition, for random groups, in tiles
// that share rows, with dimensions in one tile and in several.
func TestGroupedMatmulIsThePlainProduct(t *testing.T) {
	c := xlatest.CPU(t)
	r := rand.New(rand.NewPCG(1, 2))
	tiles := func(m, k, n int) kernels.MatmulTiles { return kernels.MatmulTiles{M: m, K: k, N: n} }
	for _, s := range []struct {
		M, K, N, E int
		tiles      kernels.MatmulTiles
	}{
		{40, 6, 10, 5, tiles(8, 3, 5)},
		{32, 4, 6, 3, tiles(8, 4, 6)},
		{37, 5, 4, 7, tiles(16, 5, 2)}, // rows are padded
		{16, 8, 8, 1, tiles(8, 2, 4)},
		{24, 4, 4, 9, tiles(24, 2, 4)}, // one tile
		{30, 6, 4, 4, kernels.MatmulTiles{}},
	} {
		o := kernels.GroupedOptions{Target: strict, Tiles: kernels.GroupedTiles{Product: s.tiles, LHS: kernels.MatmulTiles{M: s.tiles.M, K: s.tiles.N, N: s.tiles.K}, RHS: s.tiles}}
		x := xlatest.Compile(t, c, groupedProgram(t, s.M, s.K, s.N, s.E, dtype.F32, o), 1)
		for range 50 {
			sizes, first := groupSizes(r, s.E, s.M, max(s.tiles.M, 1))
			lhs, rhs, ct := floats(r, s.M*s.K), floats(r, s.E*s.K*s.N), floats(r, s.M*s.N)
			out, dlhs, drhs := plainGrouped(lhs, rhs, ct, sizes, first, s.M, s.K, s.N)
			// What rows of no group hold must not matter.
			end := first
			for _, n := range sizes {
				end += int(n)
			}
			for row := range s.M {
				if row < first || row >= end {
					lhs[row*s.K], ct[row*s.N] = float32(math.NaN()), float32(math.NaN())
				}
			}
			got := xlatest.RunExecutable(t, x, [][]xlatest.Array{{
				xlatest.F32(lhs, s.M, s.K), xlatest.F32(rhs, s.E, s.K, s.N), xlatest.S32(sizes),
				{DType: dtype.S32, Dims: []int{}, Data: xlatest.S32([]int32{int32(first)}).Data}, xlatest.F32(ct, s.M, s.N),
			}})[0]
			requireClose(t, out, got[0].Float32s(), 1e-5, "out: groups %v from %d of %+v", sizes, first, s)
			requireClose(t, dlhs, got[1].Float32s(), 1e-5, "dlhs: groups %v from %d of %+v", sizes, first, s)
			requireClose(t, drhs, got[2].Float32s(), 1e-5, "drhs: groups %v from %d of %+v", sizes, first, s)
		}
	}
}

// A sum of products is the sum of its products.
func TestGroupedSum(t *testing.T) {
	const M, K, N, E = 24, 8, 6, 3
	r := rand.New(rand.NewPCG(3, 4))
	args := []xlatest.Array{xlatest.S32([]int32{5, 0, 14})}
	for range 2 {
		args = append(args, xlatest.F32(floats(r, M*K), M, K), xlatest.F32(floats(r, E*N*K), E, N, K))
	}
	m, err := graph.Trace("sum", nil, func(b *graph.Builder) error {
		sizes := b.Input("sizes", graph.T(dtype.S32, E))
		var lhs, rhs []*graph.Value
		for range 2 {
			lhs, rhs = append(lhs, b.Input("lhs", graph.T(dtype.F32, M, K))), append(rhs, b.Input("rhs", graph.T(dtype.F32, E, N, K)))
		}
		o := kernels.GroupedOptions{Target: strict, Tiles: kernels.GroupedTiles{LHS: kernels.MatmulTiles{M: 8, K: 4, N: 3}}}
		b.Output("sum", kernels.GroupedSum(lhs, rhs, sizes, true, o))
		one := func(i int) *graph.Value { return kernels.GroupedProduct(lhs[i], rhs[i], sizes, true, o) }
		b.Output("want", graph.Add(one(0), one(1)))
		return nil
	})
	require.NoError(t, err)
	got := xlatest.Run(t, xlatest.CPU(t), m.StableHLO(), 1, [][]xlatest.Array{args})[0]
	require.NotZero(t, got[0].Float32s()[0])
	requireClose(t, got[1].Float32s(), got[0].Float32s(), 1e-6, "sum")
}
