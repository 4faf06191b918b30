package optim_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/optim"
)

// 12 steps, 3 of warm-up, the last half decaying: so W=3, D=6, S=4. The decay
// ends one step after the last, which is step 11, and stays there.
func TestFactors(t *testing.T) {
	for _, c := range []struct {
		shape string
		min   float64
		decay []float64
	}{
		{"linear", 0, []float64{5. / 6, 4. / 6, 3. / 6, 2. / 6, 1. / 6, 0, 0}},
		{"linear", 0.1, []float64{0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.1}},
		{"sqrt", 0, []float64{0.59175171, 0.422649731, 0.292893219, 0.183503419, 0.087129071, 0, 0}},
		{"sqrt", 0.1, []float64{0.632576539, 0.480384758, 0.363603897, 0.265153077, 0.178416164, 0.1, 0.1}},
		{"cosine", 0, []float64{0.933012702, 0.75, 0.5, 0.25, 0.066987298, 0, 0}},
		{"cosine", 0.1, []float64{0.939711432, 0.775, 0.55, 0.325, 0.160288568, 0.1, 0.1}},
	} {
		s := optim.Schedule{WarmupSteps: 3, TotalSteps: -1, DecayRatio: ptr(0.5), DecayType: c.shape, MinLRFactor: c.min}
		curve, notes := s.Curve(12)
		require.Empty(t, notes)
		require.Equal(t, []int{3, 4, 6}, []int{curve.Warmup, curve.Stable, curve.Decay})
		want := append([]float64{1. / 3, 2. / 3, 1, 1, 1, 1, 1}, c.decay...)
		for step, f := range want {
			require.InDelta(t, f, curve.Factor(step), 1e-9, "%s, step %d", c.shape, step)
		}
	}
}

func TestScheduleLengths(t *testing.T) {
	for _, c := range []struct {
		name                 string
		warmup, total, steps int
		ratio                *float64
		wantW, wantS, wantD  int
		notes                int
		last                 float64 // the factor of the last step
	}{
		{"decay right after warm-up", 200, -1, 10000, nil, 200, 1, 9800, 0, 1. / 9800},
		{"its own length", 200, 1000, 100, nil, 200, 1, 800, 0, 0.5},
		{"no decay", 10, -1, 100, ptr(0), 10, 91, 0, 0, 1},
		{"all decay", 0, -1, 100, ptr(1), 0, 1, 100, 0, 0.01},
		{"no warm-up", 0, -1, 10, nil, 0, 1, 10, 0, 0.1},
		{"warm-up longer than the run", 200, -1, 50, nil, 50, 1, 0, 1, 1},
		{"warm-up and decay longer than the run", 60, -1, 100, ptr(0.5), 60, 1, 40, 1, 1. / 40},
		{"rounds half to even", 0, -1, 5, ptr(0.5), 0, 4, 2, 0, 0.5},
		{"beyond the end", 0, 10, 30, nil, 0, 1, 10, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := optim.DefaultSchedule()
			s.WarmupSteps, s.TotalSteps, s.DecayRatio = c.warmup, c.total, c.ratio
			curve, notes := s.Curve(c.steps)
			require.Equal(t, []int{c.wantW, c.wantS, c.wantD}, []int{curve.Warmup, curve.Stable, curve.Decay})
			require.Len(t, notes, c.notes)
			require.InDelta(t, c.last, curve.Factor(c.steps-1), 1e-12)
		})
	}
}

// Whatever the schedule, the factor stays between 0 and 1, rises in warm-up and
// never rises after it.
func TestFactorIsWellBehaved(t *testing.T) {
	for _, shape := range []string{"linear", "sqrt", "cosine"} {
		for warmup := range 8 {
			for steps := range 12 {
				for _, ratio := range []*float64{nil, ptr(0), ptr(0.3), ptr(1)} {
					s := optim.Schedule{WarmupSteps: warmup, TotalSteps: -1, DecayRatio: ratio, DecayType: shape, MinLRFactor: 0.05}
					c, _ := s.Curve(steps)
					before := 0.0
					for n := range steps + 5 {
						f := c.Factor(n)
						require.True(t, f >= 0 && f <= 1 && !math.IsNaN(f))
						if n < c.Warmup {
							require.Greater(t, f, before)
						} else if n > 0 {
							require.LessOrEqual(t, f, max(before, 1-min(1, float64(n-c.Warmup))), "%+v: step %d", c, n)
						}
						if n < steps {
							require.Positive(t, f, "no step of the run is without effect")
						}
						before = f
					}
				}
			}
		}
	}
}
