package metrics

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every second of a process is productive or lost to one cause.
func TestGoodput(t *testing.T) {
	c := newClock()
	m := NewMeter(MeterOptions{Devices: 4, LogFreq: 1, Flops: Flops{Matmul: 1e9, Attention: 1e9}, Peak: 1e12, Now: c.now, Warmup: 2, Steps: 10})
	pause := func(k Kind, s float64) {
		resume := m.Pause(k)
		c.sleep(s)
		resume()
	}
	c.sleep(5)
	pause(Compile, 30)
	pause(Restore, 4)
	require.Equal(t, map[Kind]float64{Startup: 5, Compile: 30, Restore: 4}, m.Goodput().Lost)
	c.sleep(1)
	m.Begin(0)
	var w *Window
	step := func(n int64, took, stall float64, skipped bool) {
		c.sleep(took)
		wait := time.Duration(stall * 1e9)
		w = m.Step(Step{Step: n, Tokens: 400, Loss: 1, DataWait: 2 * wait, Stall: wait, Skipped: skipped})
	}
	step(1, 10, 0, false)
	step(2, 1, 0.5, false)
	step(3, 2, 0.001, false)
	step(4, 2, 0, true)
	pause(Checkpoint, 3)
	pause(Compile, 7) // a shape has changed
	pause(Validate, 6)
	step(5, 4, 1, false)
	require.InDelta(t, 0.5, w.Done, 1e-9)
	// 4 steps and the pauses took 25 s since the first; 5 are to come.
	require.Equal(t, time.Duration(31.25*1e9), w.Left)
	require.Equal(t, []float64{4}, w.StepSeconds)

	s := m.Summary()
	g := s.Goodput
	require.InDelta(t, 75, g.Wall, 1e-9)
	for k, want := range map[Kind]float64{
		Startup: 6, Compile: 30, Restore: 4, Recompile: 7, Input: 1.501, SkippedStep: 2, Checkpoint: 3, Validate: 6,
	} {
		require.InDelta(t, want, g.Lost[k], 1e-9, k)
	}
	require.Len(t, g.Lost, 8)
	require.InDelta(t, 19-1.501-2, g.Productive, 1e-9)
	require.InDelta(t, 100*15.499/75, g.Percent(), 1e-9)

	require.Equal(t, 1, s.Recompiles)
	require.Equal(t, 1, s.CheckpointStalls)
	require.EqualValues(t, 2, s.InputStalls, "a thousandth of a step is no stall")
	require.Equal(t, 3, s.Warm.Steps)
	require.InDelta(t, 400.*3/8/4, s.Warm.TPS, 1e-9)
	require.InDelta(t, 400.*5/19/4, s.All.TPS, 1e-9)
	require.Equal(t, StepTimes{3, 8. / 3, 2, 4, 4, 4}, s.StepTime)
	f := s.Figures()
	require.InDelta(t, 30, f.FirstCompile, 1e-9)
	text := s.String()
	require.Contains(t, text, "goodput        20.7% of 1m15s; lost to compile 30s (40.0%), recompile 7s (9.3%), ")
	require.Contains(t, text, "recompiles     1 after the first step, 7s: a shape had changed")
	require.Contains(t, text, "step time      mean 2.67s, p50 2s, p95 4s, p99 4s, longest 4s")
	require.Contains(t, text, "warm           38 tokens a second and device over 3 steps, mfu 7.50% (torchtitan)")

	// What is kept can be read back.
	f.LastLoss = Number(math.NaN())
	raw, err := json.Marshal(f)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"last_loss":null`)
	var back Figures
	require.NoError(t, json.Unmarshal(raw, &back))
	require.True(t, math.IsNaN(float64(back.LastLoss)))
	back.LastLoss, f.LastLoss = 0, 0
	require.Equal(t, f, back)
}

func TestNothingWarm(t *testing.T) {
	c := newClock()
	m := NewMeter(MeterOptions{Devices: 1, LogFreq: 1, Now: c.now, Warmup: 3})
	m.Begin(0)
	c.sleep(1)
	w := m.Step(Step{Step: 1, Tokens: 5})
	require.Zero(t, w.Left, "how many steps there are is not known")
	s := m.Summary()
	require.Zero(t, s.Warm)
	require.Zero(t, s.StepTime)
	require.Contains(t, s.String(), "N/A: the first 3 steps after a start are warm-up")
	for _, e := range s.Event(c.now()).Scalars {
		require.NotContains(t, e.Name, "warm")
	}
}

func TestTimesOf(t *testing.T) {
	var s []float64
	for i := range 100 {
		s = append(s, float64(100-i))
	}
	require.Equal(t, StepTimes{100, 50.5, 50, 95, 99, 100}, TimesOf(s))
	require.Equal(t, 100., s[0], "the list is the caller's")
	require.Equal(t, StepTimes{1, 7, 7, 7, 7, 7}, TimesOf([]float64{7}))
}

func TestLosing(t *testing.T) {
	var g Goodput
	g.Merge(Goodput{Wall: 10, Productive: 6, Lost: map[Kind]float64{Compile: 4}})
	g.Lose(Repeated, 20)
	g.Lose(Repeated, -1)
	g.Waste(Idle, 5)
	g.Waste(Idle, -5)
	require.Equal(t, Goodput{Wall: 15, Lost: map[Kind]float64{Compile: 4, Repeated: 6, Idle: 5}}, g)
}
