package kernels

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
)

// mutants changes comparisons and bounds of a kernel, one at a time.
func mutants(k *Kernel) (changes []func() (undo func())) {
	live := k.live()
	var walk func(b *block)
	walk = func(b *block) {
		for _, v := range b.ops {
			if !live[v] {
				continue
			}
			switch v.op {
			case opIf:
				changes = append(changes, func() func() { // never happens
					old := v.body
					v.body = &block{parent: b}
					return func() { v.body = old }
				})
				walk(v.body)
			case opCompare:
				changes = append(changes, func() func() {
					old := v.cmp
					v.cmp = []compare{notEqual, equal, lessEqual, less, greaterEqual, greater}[old] // off by one
					return func() { v.cmp = old }
				})
			case opAnd, opOr:
				changes = append(changes, func() func() {
					old := v.op
					v.op = opAnd + opOr - old
					return func() { v.op = old }
				})
			}
		}
	}
	walk(k.main)
	return changes
}

// Wrong kernels are found out: of the grouped product, each with one comparison off
// by one, one condition exchanged or one branch missing, the comparison with the
// plain product, in the strict interpreter, finds those that are not equivalent. All
// of them run with TITAN_LONG=1.
func TestMutantsAreFound(t *testing.T) {
	const M, K, N, E, tm = 24, 4, 4, 3, 8
	s := groupedShape{E, M, K, N, dtype.F32, dtype.F32, 1}
	tiles := MatmulTiles{tm, 2, 4}
	program := func(k *Kernel) string {
		m, err := graph.Trace("mutant", nil, func(b *graph.Builder) error {
			lhs, rhs, sizes := b.Input("lhs", graph.T(dtype.F32, M, K)), b.Input("rhs", graph.T(dtype.F32, E, K, N)), b.Input("sizes", graph.T(dtype.S32, E))
			g := group(sizes, nil, M, tm, true)
			b.Output("out", k.Call(Target{Strict: true}, g.bound, g.group, g.tile, g.lhsTile, g.rows, lhs, rhs)[0])
			return nil
		})
		require.NoError(t, err)
		return m.StableHLO()
	}
	r := rand.New(rand.NewPCG(7, 8))
	lhs, rhs := make([]float32, M*K), make([]float32, E*K*N)
	for _, x := range [][]float32{lhs, rhs} {
		for i := range x {
			x[i] = float32(1 + r.IntN(9)) // sums are exact
		}
	}
	cases := [][]int32{{5, 0, 13}, {8, 8, 8}, {24, 0, 0}, {1, 15, 2}, {0, 0, 0}, {3, 3, 3}}
	wrong := func(k *Kernel) bool {
		x := xlatest.Compile(t, xlatest.CPU(t), program(k), 1)
		for _, sizes := range cases {
			got := xlatest.RunExecutable(t, x, [][]xlatest.Array{{xlatest.F32(lhs, M, K), xlatest.F32(rhs, E, K, N), xlatest.S32(sizes)}})[0][0].Float32s()
			want := make([]float32, M*N)
			row := 0
			for e, n := range sizes {
				for ; n > 0; n, row = n-1, row+1 {
					for k := range K {
						for j := range N {
							want[row*N+j] += lhs[row*K+k] * rhs[(e*K+k)*N+j]
						}
					}
				}
			}
			for i := range want {
				if want[i] != got[i] || math.IsNaN(float64(got[i])) {
					return true
				}
			}
		}
		return false
	}
	k := groupedKernel(s, tiles, M/tm+E-1, M, false)
	require.False(t, wrong(k), "as it is")
	// Equivalent are: tiles of no group treated as one without rows (0), whole tiles
	// stored under a mask (8, 9), zeros written at another step along K (20).
	equivalent := []int{0, 8, 9, 20}
	changes := mutants(k)
	require.Len(t, changes, 23)
	for i, change := range changes {
		if i%5 != 1 && os.Getenv("TITAN_LONG") == "" {
			continue
		}
		undo := change()
		require.Equal(t, !slices.Contains(equivalent, i), wrong(k), "mutant %d", i)
		undo()
	}
	require.False(t, wrong(k), "as it is again")
}
