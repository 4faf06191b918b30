package llo

import (
	"compress/gzip"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The code of a product [512, 1024]×[1024, 512] in tiles of 256×512 and 512×256,
// for three chips, and what a step takes by the compiler's own simulation, copies
// not waited for: the first of two tiles along the contracted dimension, which
// begins by writing zeros, and the last, which stores the result.
var recorded = []struct {
	chip        string
	core        Core
	bundles     int
	first, last int
}{
	{"v5e", Core{16, 100}, 764, 863, 834},
	{"v6e", Core{8, 187}, 453, 558, 552},
	{"tpu7x", Core{8, 200}, 449, 597, 582},
}

func TestCyclesAreTheCompilers(t *testing.T) {
	for _, r := range recorded {
		t.Run(r.chip, func(t *testing.T) {
			f, err := os.Open("testdata/product_" + r.chip + ".txt.gz")
			require.NoError(t, err)
			defer f.Close()
			text, err := gzip.NewReader(f)
			require.NoError(t, err)
			code, err := Read(text)
			require.NoError(t, err)
			require.Len(t, code.Bundles, r.bundles)
			g, err := code.Grid(r.core)
			require.NoError(t, err)
			require.Equal(t, r.bundles, g.Bundles)
			require.Len(t, g.Branches, 2)
			for k, b := range g.Branches {
				require.Zero(t, b.Depth)
				require.False(t, b.Dot, "branch %d: the product is outside", k)
			}
			require.InEpsilon(t, r.first, g.Cycles([]bool{true, false}), 0.01)
			require.InEpsilon(t, r.last, g.Cycles([]bool{false, true}), 0.01)
			// Far from what counting bundles gives on the chips whose matrix units take
			// their time without being asked for it.
			idle, err := code.Grid(Core{1, 1})
			require.NoError(t, err)
			require.Less(t, float64(idle.Always), 0.95*float64(g.Always))
		})
	}
}

// code is a loop over a grid that waits for a block and has a branch with another
// inside.
func kernelText(inner ...string) string {
	bundles := []string{
		"LB: > { %s1_s0 = sld [smem:0] } /* Start region 1 */",
		": > { %2 = dma.done.wait %s1_s0 /* pipeline-emitter-dma-wait */ }",
		": > { %3 = sbr.rel (%p1_p0) target = $region2 }",
		": > {} /* End region 9 */",
	}
	bundles = append(bundles, inner...)
	bundles = append(bundles,
		"PF: > { %4 = sbr.rel (!%p2_p0) target = $region1 } /* Start/End empty region 2 */",
		": { %5 = sfence }")
	var b strings.Builder
	b.WriteString("= control target key start\nLB: loop body\n\n   0   : { %0 = sfence  ;;  %s9_s1 = smov.u32 0 }\n")
	for k, s := range bundles {
		fmt.Fprintf(&b, "  %#x %s\n", k+1, s)
	}
	return b.String()
}

func grid(t *testing.T, text string) (Grid, error) {
	t.Helper()
	c, err := Read(strings.NewReader(text))
	require.NoError(t, err)
	return c.Grid(Core{Interval: 8, Latency: 100})
}

func TestBranches(t *testing.T) {
	g, err := grid(t, kernelText(
		": > { %v1_v0 = vld [vmem:1] }",
		": > { %6 = sbr.rel (%p3_p0) target = $region3 }",
		": > {} /* End region 8 */",
		": > { %7 = vmatmul.mubr.bf16.gmra.mxu0 %v1_v0 }",
		": > { %8 = vmatmul.mubr.bf16.gmra.mxu0 %v1_v0 }",
		"PF: > { %v2_v0 = vadd.f32 %v1_v0, %v1_v0 } /* Start/End empty region 3 */",
		": > { %9 = vst [vmem:2] %v2_v0 }",
	))
	require.NoError(t, err)
	require.Equal(t, 14, g.Bundles)
	require.Equal(t, 2, g.Outside)
	require.Equal(t, 10, g.Always, "the scalar is loaded in 6 cycles; 4 bundles follow")
	require.Equal(t, []Branch{
		{Depth: 0, Cycles: 6, Dot: false}, // 5 bundles; the store waits for the sum
		{Depth: 1, Cycles: 9, Dot: true},  // the second waits for the unit
	}, g.Branches)
	require.Equal(t, 25, g.Cycles([]bool{true, true}))
	require.Equal(t, 16, g.Cycles([]bool{true, false}))
}

// Results of the matrix units are taken in order, or by address.
func TestResultsOfMatrixUnits(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		want int
	}{
		"in order":    {"%1 = vmatmul.f32.gmra.mxu1 %v0_v0|%2 = vmatmul.f32.gmra.mxu1 %v0_v0|%v1_v1 = vpop.f32.mrf.mxu1|%v2_v2 = vpop.f32.mrf.mxu1", 108 + 1},
		"two of each": {"%1 = vmatmul.f32.gmra.mxu1 %v0_v0|%v1_v1 = vpop.f32.mrf.mxu1|%v2_v2 = vpop.f32.mrf.mxu1", 101 + 1},
		"by address":  {"%1 = vmatmul.f32.gmra.mrb[0].mxu1 %v0_v0|%2 = vmatmul.f32.gmra.mrb[4].mxu1 %v0_v0|%v1_v1 = vpop.f32.mrb[5].mxu1|%v2_v2 = vpop.f32.mrb[2].mxu1", 109 + 1},
		"other units": {"%1 = vmatmul.f32.gmra.mxu1 %v0_v0|%2 = vmatmul.f32.gmra.mxu0 %v0_v0", 2},
	} {
		var bundles []string
		for _, s := range strings.Split(c.code, "|") {
			bundles = append(bundles, ": > { "+s+" }")
		}
		g, err := grid(t, kernelText(bundles...))
		require.NoError(t, err)
		require.Equal(t, c.want, g.Branches[0].Cycles, name)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"nothing":                "no bundles",
		"  0 : {}\n  0x2 : {}\n": "bundle 0x2 follows 0x0",
		"  0 : { %1 = sbr.rel target = $region7 }\n": "region 7, which begins nowhere",
		"  0 : { %1 = sbr.rel }\n":                   "does not say where to",
	} {
		_, err := Read(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
	_, err := grid(t, kernelText("LB: > {} /* Start region 5 */", ": > { %7 = sbr.rel target = $region5 }"))
	require.ErrorContains(t, err, "a loop inside of that over the grid")
	_, err = grid(t, strings.ReplaceAll(kernelText(), "pipeline-emitter-dma-wait", ""))
	require.ErrorContains(t, err, "not the code of a tile kernel")
}
