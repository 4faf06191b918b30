package decoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/kernels"
	"titan/pjrt"
)

// smallTiles have few rows, so that experts share tiles and have several.
var smallTiles = kernels.GroupedTiles{Product: kernels.MatmulTiles{M: 8}, LHS: kernels.MatmulTiles{M: 16}, RHS: kernels.MatmulTiles{M: 8}}

// Experts by groups equal every expert applied to every row.
func TestExperts(t *testing.T) {
	const N, D, F, E, k = 40, 6, 10, 5, 2
	r := rand.New(rand.NewPCG(3, 4))
	types := []graph.Type{
		graph.T(dtype.F32, N, D), graph.T(dtype.F32, D, E), graph.T(dtype.F32, E, D, F), graph.T(dtype.F32, E, D, F), graph.T(dtype.F32, E, F, D), graph.T(dtype.F32, N, D),
	}
	var data [][]byte
	for _, typ := range types {
		data = append(data, normals(r, typ.Elements()))
	}
	plain := func(m *MoE, in []*graph.Value) *graph.Value {
		x, router := in[0], in[1]
		probs := graph.Softmax(graph.Einsum("nd,de->ne", x, router), -1)
		_, best := graph.TopK(graph.StopGradient(probs), k)
		hot := graph.OneHot(best, E, dtype.F32) // [N, k, E]
		kept := graph.Mul(probs, graph.Sum(hot, 1))
		if m.NormTopK {
			kept = graph.Div(kept, graph.ExpandDims(graph.Sum(kept, -1), -1))
		}
		h := graph.Mul(graph.Silu(graph.Einsum("nd,edf->nef", x, in[2])), graph.Einsum("nd,edf->nef", x, in[3]))
		return graph.Einsum("ned,ne->nd", graph.Einsum("nef,efd->ned", h, in[4]), kept)
	}
	run := func(f func(in []*graph.Value) *graph.Value) [][]float32 {
		return program(t, types, data, func(b *graph.Builder, in []*graph.Value) []*graph.Value {
			out := f(in)
			return append([]*graph.Value{out}, graph.VJP([]*graph.Value{out}, []*graph.Value{in[5]}, in[:5])...)
		})
	}
	for _, norm := range []bool{false, true} {
		m := &MoE{Experts: E, TopK: k, HiddenDim: F, NormTopK: norm}
		want := run(func(in []*graph.Value) *graph.Value { return plain(m, in) })
		strict := &kernels.Target{Strict: true}
		for _, g := range []groupedFFN{{}, {block: 3}, {block: 16}, {kernels: strict, tiles: smallTiles}} {
			t.Run(fmt.Sprintf("block %d tiles %v norm=%v", g.block, g.kernels != nil, norm), func(t *testing.T) {
				got := run(func(in []*graph.Value) *graph.Value {
					to := m.route(in[0], in[1], nil, false)
					g.experts, g.topK, g.place = E, k, Single{}
					y, _ := g.apply(in[0], to.weights, to.experts, in[2:5])
					return y
				})
				for i, what := range []string{"output", "dx", "drouter", "dgate", "dup", "ddown"} {
					requireClose(t, want[i], got[i], 5e-6, what)
				}
			})
		}
	}
}

// Counting in two levels is counting.
func TestCountUp(t *testing.T) {
	const n, e = 512, 3
	x := make([]int32, n*e)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range n {
		x[i*e+r.IntN(e)] = 1
	}
	got := program(t, []graph.Type{graph.T(dtype.S32, n, e)}, [][]byte{pjrt.AsBytes(x)}, func(_ *graph.Builder, in []*graph.Value) []*graph.Value {
		return []*graph.Value{countUp(in[0])}
	})[0]
	var sum [e]int32
	for i := range n {
		for c := range e {
			sum[c] += x[i*e+c]
			require.EqualValues(t, sum[c], got[i*e+c])
		}
	}
}

// Sorting is counting, also where numbers of expert and row do not fit together.
func TestSortedRows(t *testing.T) {
	const n, E = 300, 9
	r := rand.New(rand.NewPCG(7, 8))
	x := make([]int32, n)
	for i := range x {
		x[i] = r.Int32N(E - 2)
	}
	res := program(t, []graph.Type{graph.T(dtype.S32, n)}, [][]byte{pjrt.AsBytes(x)}, func(_ *graph.Builder, in []*graph.Value) []*graph.Value {
		want, got := countedRows(in[0], E), sortedRows(in[0], E)
		return []*graph.Value{want.order, got.order, want.place, got.place, want.counts, got.counts, want.order, rowOrder(in[0], math.MaxInt32)}
	})
	for i := 0; i < len(res); i += 2 {
		require.Equal(t, res[i], res[i+1])
	}
}
