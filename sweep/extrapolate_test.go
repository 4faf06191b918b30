package sweep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Plans give their points the figures, and one that does not fit is no mistake.
func TestPlan(t *testing.T) {
	s := execute(t, t.TempDir(), onChips(32, 64, 256), fakeOptions(""))
	p := s.Points[0]
	require.Equal(t, Failed, p.Status)
	require.Equal(t, OutOfMemory, p.Failure)
	require.Equal(t, "does not fit: arguments and temporaries take 100.00 GiB of 90.00 GiB a device", p.Error)
	fits, known := p.Fits()
	require.True(t, known && !fits)
	p = s.Points[2]
	require.Equal(t, OK, p.Status, p.Error)
	require.InDelta(t, 10.2, p.StepSeconds, 1e-9)
	require.InDelta(t, 0.2, *p.Exposed, 1e-9)
	require.InDelta(t, 32*4096/10.2, p.TPSChip, 1e-6)
	require.InDelta(t, 10/10.2, p.Efficiency, 1e-9)
	require.Equal(t, "tpu7x-4x4x4", p.Baseline)
	require.EqualValues(t, 80<<30, p.Memory)
	require.InDelta(t, 10, p.Breakdown["matmul"], 1e-9)
	require.Equal(t, "points/tpu7x-4x8x8/plan.json", p.PlanFile)
	fits, known = p.Fits()
	require.True(t, known && fits)
}

// Points too large to be compiled come from smaller ones: with the same slices
// from the time that more copies take, else from the trend.
func TestExtrapolate(t *testing.T) {
	dir := t.TempDir()
	spec := onChips(64, 128, 256, 512, 1024, 2048, 8192)
	spec.MaxCompileChips = 256
	s := execute(t, dir, spec, fakeOptions(""))
	tried, _ := attempts(t, dir)
	require.Equal(t, []string{"tpu7x-4x4x4", "tpu7x-4x4x8", "tpu7x-4x8x8"}, tried)
	for i, exposed := range map[int]float64{3: 0.3, 4: 0.4, 5: 0.5, 6: 0.7} { // the line that the compiled ones lie on
		p := s.Points[i]
		require.Equal(t, OK, p.Status, p.Error)
		require.Equal(t, Extrapolated, p.Source)
		require.InDelta(t, exposed, *p.Exposed, 1e-9)
		require.InDelta(t, 10+exposed, p.StepSeconds, 1e-9)
		require.InDelta(t, float64(p.Tokens)/(10+exposed)/float64(p.Devices)/100, p.MFU.Causal, 1e-6)
		require.InDelta(t, 10/(10+exposed), p.Efficiency, 1e-9)
		require.Contains(t, p.Rule, "computation is 1 times that of tpu7x-4x8x8")
		require.Len(t, p.From, 3)
		require.Empty(t, p.Memory)
		require.Equal(t, i > 4, len(p.Rule) > 0 && p.Topology != "" && slicesOf(p.Topology) > 1)
	}
	require.NotContains(t, s.Points[4].Rule, "slices")
	require.Contains(t, s.Points[6].Rule, "traffic between 8 slices is in none of them")

	// With one slice of that shape compiled, what is new is adding up gradients.
	spec.MaxCompileChips = 1024
	s = execute(t, dir, spec, fakeOptions(""))
	base, two, eight := s.Points[4], s.Points[5], s.Points[6]
	require.Equal(t, Plan, base.Source)
	require.Equal(t, []string{base.ID}, eight.From)
	require.Contains(t, eight.Rule, "a device does what it does in tpu7x-8x8x16")
	// 459 MB of a device's gradients over 5 GB/s: 2·7/8 of that, and 2·1/2.
	gradients := 4 * float64(base.Parameters) / 2048
	require.InDelta(t, 2*7.0/8*gradients/5e9, *eight.Exposed-*base.Exposed, 1e-4)
	require.InDelta(t, 2*1.0/2*gradients/5e9, *two.Exposed-*base.Exposed, 1e-4)
	require.InDelta(t, eight.StepSeconds, 10+*eight.Exposed, 1e-9)
	require.Equal(t, base.Memory, eight.Memory)
	require.Less(t, eight.LowSeconds, base.StepSeconds)
	require.Greater(t, eight.HighSeconds, eight.StepSeconds)

	// A point that was compiled is not replaced.
	spec.MaxCompileChips = 64
	s = execute(t, dir, spec, fakeOptions(""))
	require.Equal(t, Plan, s.Points[4].Source)
	require.Equal(t, Extrapolated, s.Points[5].Source)
}

// In strong mode the computation goes by the tokens of a device.
func TestExtrapolateStrong(t *testing.T) {
	spec := onChips(256, 512)
	spec.Mode, spec.MaxCompileChips = Strong, 256
	p := execute(t, t.TempDir(), spec, fakeOptions("")).Points[1]
	require.Equal(t, Extrapolated, p.Source)
	require.InDelta(t, 5+0.2, p.StepSeconds, 1e-9)
	require.Contains(t, p.Rule, "computation is 0.5 times that of tpu7x-4x8x8")
	require.Contains(t, p.Rule, "of the only compiled point")
}

// What takes too long to compile is extrapolated where that is wanted, and nothing
// is where there is nothing to extrapolate from.
func TestExtrapolateTimeout(t *testing.T) {
	dir := t.TempDir()
	spec := onChips(64, 128)
	execute(t, dir, onChips(64), fakeOptions(""))
	spec.Extrapolate = true
	o := fakeOptions("256=waits")
	o.Timeout = 100 * time.Millisecond
	p := execute(t, dir, spec, o).Points[1]
	require.Equal(t, OK, p.Status)
	require.Equal(t, Extrapolated, p.Source)
	require.Equal(t, "took longer than 100.0 ms", p.Error)
	require.InDelta(t, 10, p.StepSeconds, 1e-9)
	require.NotEmpty(t, p.Rule)
	require.Equal(t, p, execute(t, dir, spec, o).Points[1])
	tried, _ := attempts(t, dir)
	require.Len(t, tried, 2)

	spec = onChips(32, 2048)
	spec.MaxCompileChips = 64
	p = execute(t, t.TempDir(), spec, fakeOptions("")).Points[1]
	require.Equal(t, Failed, p.Status)
	require.Equal(t, "not extrapolated: there is no smaller point that was compiled", p.Error)
}
