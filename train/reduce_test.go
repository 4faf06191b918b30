package train

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
)

// Gradients that devices add up in bfloat16 travel as such, and differ from those of
// float32 by what rounding the devices' parts and their sums can make of them.
func TestReduceInBF16(t *testing.T) {
	quickly(t)
	for _, c := range []parityCase{
		{mesh: "dp_replicate=2 dp_shard=4"},
		{mesh: "dp_replicate=2 dp_shard=2 ep=2", moe: true, passes: 2, change: expertTiles},
	} {
		t.Run(c.String(), func(t *testing.T) {
			params := parityParams(parityModel(c.moe))
			exact := c.run(t, params)
			narrow, change := c, c.change
			narrow.change = func(o *StepOptions) {
				if change != nil {
					change(o)
				}
				o.Placement.Reduce = dtype.BF16
			}
			exe, _ := narrow.gradientProgram(t, narrow.options(t))
			scattered := 0
			for line := range strings.Lines(exe.Module.String()) {
				if strings.Contains(line, "reduce_scatter") {
					scattered++
					require.NotContains(t, line, "f32", "a matrix's gradient is added up wide")
				}
			}
			exe.Close()
			require.Positive(t, scattered)
			got := narrow.run(t, params)
			worst, name := exact.compare(got)
			t.Logf("largest difference %.1e of the largest gradient of %s", worst, name)
			// 8 bits: half an ulp of each part and of up to 7 sums, in one direction.
			require.Less(t, worst, 8*0x1p-8)
			require.Greater(t, worst, 0x1p-12, "nothing was rounded")
			require.Equal(t, exact.scalars[MetricLoss], got.scalars[MetricLoss])
		})
	}
}
