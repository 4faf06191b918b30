package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
)

// contractions counts the arithmetic of the matrix products of f's gradients, and of
// f itself if its value is asked for.
func contractions(t *testing.T, value bool, types []graph.Type, f func(in []*graph.Value) *graph.Value) float64 {
	t.Helper()
	m, err := graph.Trace("step", nil, func(b *graph.Builder) error {
		var in []*graph.Value
		for i, typ := range types {
			in = append(in, b.Input(string(rune('a'+i)), typ))
		}
		y := graph.Sum(f(in))
		for i, g := range graph.Grad(y, in...) {
			b.Output(string(rune('a'+i)), g)
		}
		if value {
			b.Output("y", y)
		}
		return nil
	})
	require.NoError(t, err)
	c := m.Cost()
	require.Empty(t, c.UnknownTrips)
	return c.Global[graph.CostContraction].Flops
}

// Loops whose length depends on the data, or on the iteration around them, count as
// often as they run in the mean.
func TestLoopsAreCounted(t *testing.T) {
	const S, H, K, h = 2048, 4, 2, 16
	types := []graph.Type{graph.T(dtype.F32, 1, S, H, h), graph.T(dtype.F32, 1, S, K, h), graph.T(dtype.F32, 1, S, K, h)}
	for block, within := range map[int]float64{128: 0.07, 64: 0.04} { // written out, and looped over
		got := contractions(t, false, types, func(in []*graph.Value) *graph.Value {
			return attention(in[0], in[1], in[2], nil, AttentionOptions{Block: block}, nil)
		})
		// Two products forward and five backward, of half of all pairs.
		require.InEpsilon(t, 7*2*h*H*S*S/2, got, within, "blocks of %d", block)
	}

	const N, D, F, E, k = 1024, 32, 64, 4, 2
	types = []graph.Type{graph.T(dtype.F32, N, D), graph.T(dtype.F32, N, k), graph.T(dtype.F32, E, D, F), graph.T(dtype.F32, E, D, F), graph.T(dtype.F32, E, F, D)}
	experts := func(in []*graph.Value) *graph.Value {
		experts := graph.Rem(in[0].Builder().Iota(graph.T(dtype.S32, N, k), 0), in[0].Builder().Int(dtype.S32, E))
		y, _ := groupedFFN{experts: E, topK: k, place: Single{}}.apply(in[0], in[1], experts, in[2:])
		return y
	}
	// Three products forward and six backward, for every row and half a block of
	// padding for each expert; and counting, in chunks of 128 rows. Gradients alone,
	// as in a layer that is computed again, do not need the third.
	size := blockRows(0, N*k, E)
	product := 2 * D * F * (N*k + E*size/2)
	require.InEpsilon(t, 9*product+2*N*k*128*E, contractions(t, true, types, experts), 0.001)
	require.InEpsilon(t, 8*product+2*N*k*128*E, contractions(t, false, types, experts), 0.001)
}
