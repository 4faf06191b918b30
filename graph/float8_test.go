package graph_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	. "titan/graph"
	"titan/internal/xlatest"
)

// The two 8-bit floats multiply as they are, and bf16 is what holds both: e4m3
// would lose the range of e5m2, and e5m2 the digits of e4m3.
func TestMixedFloat8(t *testing.T) {
	mod, err := Trace("mixed", nil, func(b *Builder) error {
		x, y := b.Input("x", T(F8E5M2, 1, 2)), b.Input("y", T(F8E4M3, 2, 1))
		z := Einsum("ab,bc->ac", x, y)
		require.Equal(t, BF16, z.DType())
		b.Output("z", z)
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, mod.StableHLO(), "(tensor<1x2xf8E5M2>, tensor<2x1xf8E4M3FN>) -> tensor<1x1xbf16>")
	in := func(d DType, dims []int, xs ...float32) xlatest.Array {
		raw, err := dtype.FromFloat32(d, xs)
		require.NoError(t, err)
		return xlatest.Array{DType: d, Dims: dims, Data: raw}
	}
	args := []xlatest.Array{in(F8E5M2, []int{1, 2}, 49152, 0), in(F8E4M3, []int{2, 1}, 1.125, 1)}
	got := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), 1, [][]xlatest.Array{args})[0][0].Float32s()[0]
	require.False(t, math.IsNaN(float64(got)))
	require.Equal(t, float32(49152*1.125), got)
}
