package decoder

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
)

// Turning by a product gives the very numbers that exchanging halves does, and
// gradients that differ by their last rounding at most; f32 is never turned so.
func TestRopeByProduct(t *testing.T) {
	const B, S, H, h = 2, 12, 3, 16
	c := Config{HeadDim: h, RopeTheta: 100}
	r := rand.New(rand.NewPCG(5, 6))
	typ := graph.T(dtype.F32, B, S, H, h)
	args := []xlatest.Array{{DType: dtype.F32, Dims: typ.Shape, Data: normals(r, B*S*H*h)}, {DType: dtype.F32, Dims: typ.Shape, Data: normals(r, B*S*H*h)}}
	text := func(product bool, d dtype.DType) string {
		mod, err := graph.Trace("rope", nil, func(b *graph.Builder) error {
			x := graph.Convert(b.Input("x", typ), d)
			ct := graph.Convert(b.Input("ct", typ), d)
			turn := c.newRope(b, b.Iota(graph.T(dtype.S32, S), 0), product)
			y := turn.apply(x)
			b.Output("y", graph.Convert(y, dtype.F32))
			b.Output("dx", graph.Convert(graph.VJP([]*graph.Value{y}, []*graph.Value{ct}, []*graph.Value{x})[0], dtype.F32))
			return nil
		})
		require.NoError(t, err)
		return mod.StableHLO()
	}
	require.Equal(t, text(false, dtype.F32), text(true, dtype.F32))
	require.Contains(t, text(true, dtype.BF16), "dot_general")
	run := func(product bool) []xlatest.Array {
		return xlatest.Run(t, xlatest.CPU(t), widenDots(text(product, dtype.BF16)), 1, [][]xlatest.Array{args})[0]
	}
	want, got := run(false), run(true)
	require.Equal(t, want[0].Float32s(), got[0].Float32s())
	requireClose(t, want[1].Float32s(), got[1].Float32s(), 1.0/256, "dx")
}
