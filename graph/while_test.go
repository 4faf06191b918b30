package graph_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// A loop computes nothing that is not read: neither what only it carries on, nor
// what that alone is made of.
func TestWhileCarriesThatNothingReads(t *testing.T) {
	program := func(read int) *Module {
		return trace(t, nil, func(b *Builder) {
			x, w, i := b.Input("x", T(F32, 4)), b.Input("w", T(F32, 4)), b.Input("i", T(S32))
			out := b.While([]*Value{x, i, x, x},
				func(c []*Value) *Value { return Less(c[1], b.Int(S32, 5)) },
				func(c []*Value) []*Value {
					return []*Value{Add(c[0], Exp(w)), Add(c[1], b.Int(S32, 1)), Add(c[2], c[3]), Sin(c[3])}
				})
			b.Output("y", out[read])
		})
	}
	in := []array{arr(T(F32, 4), 1, 2, 3, 4), arr(T(F32, 4), 0, 0, 0, 0), arr(T(S32), 3)}
	sin := math.Sin
	for read, c := range []struct {
		without  []string
		expected []float64
	}{
		{[]string{"stablehlo.sine"}, []float64{3, 4, 5, 6}},
		{[]string{"stablehlo.sine", "stablehlo.exponential"}, []float64{5}},
		{[]string{"stablehlo.exponential"}, []float64{1 + 1 + sin(1), 2 + 2 + sin(2), 3 + 3 + sin(3), 4 + 4 + sin(4)}},
		{[]string{"stablehlo.exponential"}, []float64{sin(sin(1)), sin(sin(2)), sin(sin(3)), sin(sin(4))}},
	} {
		m := program(read)
		text := m.StableHLO()
		for _, op := range c.without {
			require.NotContains(t, text, op)
		}
		got := run(t, m, in...)
		require.InDeltaSlice(t, c.expected, got[0].data, 1e-6, "carry %d", read)
	}
}
