package dtype

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every code of the narrow types must survive decode and encode, and values
// half-way between two codes must round to the even one.
func TestNarrowFloatsRoundTrip(t *testing.T) {
	for _, d := range []DType{F8E4M3, F8E5M2, F16, BF16} {
		n := 1 << (8 * d.Size())
		for c := range n {
			raw := []byte{byte(c), byte(c >> 8)}[:d.Size()]
			x := Float(d, raw, 0)
			got := AppendFloat(nil, d, x)
			if math.IsNaN(x) {
				require.True(t, math.IsNaN(Float(d, got, 0)), "%v %#x", d, c)
				continue
			}
			require.Equal(t, raw, got, "%v %#x = %v", d, c, x)
		}
		for c := range n/2 - 1 {
			code := func(c int) float64 { return Float(d, []byte{byte(c), byte(c >> 8)}[:d.Size()], 0) }
			lo, hi := code(c), code(c+1)
			if math.IsNaN(hi) || math.IsInf(hi, 0) {
				break
			}
			want := lo
			if c%2 == 1 {
				want = hi
			}
			require.Equal(t, want, Float(d, AppendFloat(nil, d, (lo+hi)/2), 0), "%v between %v and %v", d, lo, hi)
		}
	}
}

func TestKnownValues(t *testing.T) {
	for _, c := range []struct {
		d    DType
		x    float64
		want float64
	}{
		{F8E4M3, 448, 448}, {F8E4M3, 460, 448}, {F8E5M2, 57344, 57344}, {F8E5M2, 1e6, math.Inf(1)},
		{F16, 65504, 65504}, {F16, 65520, math.Inf(1)}, {BF16, 1.00390625, 1}, {BF16, 1.01171875, 1.015625},
		{S8, 300, 127}, {S8, -300, -128}, {U8, -1, 0}, {S32, -1.9, -1}, {Bool, 2, 1}, {S64, 1e30, math.MaxInt64},
	} {
		require.Equal(t, c.want, Float(c.d, AppendFloat(nil, c.d, c.x), 0), "%v %v", c.d, c.x)
	}
	require.True(t, math.IsNaN(Float(F8E4M3, AppendFloat(nil, F8E4M3, 500), 0)), "f8e4m3 has no infinity")
}

func TestParse(t *testing.T) {
	for s, want := range map[string]DType{"bf16": BF16, "torch.bfloat16": BF16, "F8_E4M3": F8E4M3, "float32": F32, "int64": S64, "BOOL": Bool} {
		got, err := Parse(s)
		require.NoError(t, err)
		require.Equal(t, want, got, s)
	}
	_, err := Parse("float31")
	require.ErrorContains(t, err, `"float31"`)
}
