package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is a time that moves when told.
type clock struct{ t time.Time }

func newClock() *clock                  { return &clock{time.Unix(1_800_000_000, 0)} }
func (c *clock) now() time.Time         { return c.t }
func (c *clock) sleep(s float64)        { c.t = c.t.Add(time.Duration(s * 1e9)) }
func (c *clock) at(s float64) time.Time { return c.t.Add(time.Duration(s * 1e9)) }

const seconds = time.Second

// 4 devices; a token costs 2e9 FLOPs, of which the attention's square is half.
func meterAt(c *clock, freq int) *Meter {
	return NewMeter(MeterOptions{Devices: 4, LogFreq: freq, Flops: Flops{Matmul: 1e9, Attention: 1e9}, Peak: 1e12, Now: c.now})
}

func TestWindows(t *testing.T) {
	c := newClock()
	m := meterAt(c, 5)
	resume := m.Pause(Compile)
	c.sleep(30)
	resume()
	m.Begin(0)
	var windows []*Window
	for step := range int64(12) {
		c.sleep(2)
		w := m.Step(Step{Step: step + 1, Tokens: 800, Padding: 200, Loss: 10 - float64(step), GradNorm: 1, DataWait: seconds / 2, Skipped: step == 6,
			LR: map[string]float64{"default": 0.1}, Memory: Memory{Active: step, Reserved: 100 - step, Limit: 1000}})
		if w != nil {
			windows = append(windows, w)
		}
	}
	require.Len(t, windows, 3) // 1, 5, 10
	for i, w := range windows {
		require.Equal(t, []int64{1, 5, 10}[i], w.Step)
		// The first windows are shorter than log_freq and divide by what is in them.
		require.Equal(t, []int{1, 4, 5}[i], w.Steps)
		require.InDelta(t, 2, w.EndToEnd(), 1e-9)
		require.InDelta(t, 0.5, w.DataLoading(), 1e-9)
		require.InDelta(t, 25, w.DataShare(), 1e-9)
		require.InDelta(t, 100, w.TPS, 1e-9, "800 tokens, 2 seconds, 4 devices; padding is no token")
		require.InDelta(t, 0.2, w.TFLOPs[TorchTitan], 1e-9)
		require.InDelta(t, 0.15, w.TFLOPs[Causal], 1e-9)
		require.True(t, w.HasMFU)
		require.InDelta(t, 20, w.MFU[TorchTitan], 1e-9)
		require.InDelta(t, 15, w.MFU[Causal], 1e-9)
		require.Equal(t, 800*w.Step, w.TokensSeen)
		require.Equal(t, 11-float64(w.Step), w.Loss)
	}
	require.Equal(t, []int64{0, 0, 1}, []int64{windows[0].Skipped, windows[1].Skipped, windows[2].Skipped})
	require.EqualValues(t, 1, windows[2].SkippedInAll)
	require.Equal(t, Memory{9, 95, 1000}, windows[2].Memory, "the most of the window")
	require.Equal(t, "1 of the last 5 steps changed nothing: the loss or a gradient was not finite (1 since the start)", windows[2].Note())
	require.Empty(t, windows[1].Note())
}

// What is no training is in no window: neither the one in which it happens nor
// the next, however late the steps are reported.
func TestPausesAreInNoWindow(t *testing.T) {
	c := newClock()
	m := meterAt(c, 2)
	m.Begin(0)
	step := func(n int64, end time.Time) *Window {
		return m.Step(Step{Step: n, Tokens: 400, End: end})
	}
	c.sleep(1)
	require.InDelta(t, 1, step(1, time.Time{}).Seconds, 1e-9)

	// Step 2 ends; a checkpoint and a validation follow; only then it is reported.
	two := c.at(1)
	c.sleep(1)
	resume := m.Pause(Checkpoint)
	c.sleep(100)
	resume()
	resume() // again: nothing
	resume = m.Pause(Validate)
	inner := m.Pause(Compile)
	c.sleep(7)
	inner()
	c.sleep(3)
	w := step(2, two)
	require.InDelta(t, 1, w.Seconds, 1e-9)
	require.InDelta(t, 100, w.TPS, 1e-9)
	resume()

	// Step 3 was in flight during the pauses' last second... and is charged one.
	c.sleep(1)
	require.Nil(t, step(3, c.now()))
	c.sleep(1)
	w = step(4, time.Time{})
	require.InDelta(t, 2, w.Seconds, 1e-9)
	require.InDelta(t, 1, w.EndToEnd(), 1e-9)

	s := m.Summary()
	require.Equal(t, map[Kind]time.Duration{Checkpoint: 100 * seconds, Recompile: 7 * seconds, Validate: 3 * seconds}, s.Paused)
	require.Equal(t, 4*seconds, s.Train.Round(time.Microsecond))
	require.Equal(t, 114*seconds, s.Wall)
	require.InDelta(t, 0, s.Other().Seconds(), 1e-6)
}

// A pause in the middle of a step and one that is still open are left out too;
// one forgotten inside another ends with it.
func TestPauseWithinStep(t *testing.T) {
	c := newClock()
	m := meterAt(c, 1)
	m.Begin(0)
	c.sleep(1)
	resume := m.Pause(Checkpoint)
	m.Pause(Compile)
	c.sleep(5)
	resume()
	c.sleep(1)
	w := m.Step(Step{Step: 1, Tokens: 4})
	require.InDelta(t, 2, w.Seconds, 1e-9)
	c.sleep(1)
	m.Pause(Checkpoint)
	c.sleep(5)
	w = m.Step(Step{Step: 2, Tokens: 4, DataWait: 50 * seconds})
	require.InDelta(t, 1, w.Seconds, 1e-9)
	require.InDelta(t, 100, w.DataShare(), 1e-9, "never above the step")
	require.Equal(t, 5*seconds, m.Summary().Paused[Recompile])
	require.Equal(t, 5*seconds, m.Summary().Paused[Checkpoint])
}

// A run that goes on counts the tokens from where it was, and the time from now.
func TestResume(t *testing.T) {
	c := newClock()
	m := meterAt(c, 10)
	c.sleep(20)
	m.Begin(1_000_000)
	for n := int64(57); n <= 60; n++ {
		c.sleep(2)
		w := m.Step(Step{Step: n, Tokens: 800, Loss: float64(n)})
		if n < 60 {
			require.Nil(t, w)
			continue
		}
		require.Equal(t, 4, w.Steps)
		require.InDelta(t, 100, w.TPS, 1e-9)
		require.EqualValues(t, 1_003_200, w.TokensSeen)
	}
	v := m.Validated(60, 3.25, 4000, 10, Memory{})
	require.InDelta(t, 100, v.TPS, 1e-9)
	s := m.Summary()
	require.Equal(t, []float64{57, 60}, []float64{s.FirstLoss, s.LastLoss})
	require.Equal(t, 20*seconds, s.Other().Round(time.Microsecond))
	require.Equal(t, v, s.Validation)
}

// Nothing is divided by a time that did not pass, or by what is not known.
func TestUnknowns(t *testing.T) {
	c := newClock()
	m := NewMeter(MeterOptions{Devices: 1, LogFreq: 1, Now: c.now})
	w := m.Step(Step{Step: 1, Tokens: 5, End: c.at(-10), Loss: math.NaN(), GradNorm: math.Inf(1)})
	require.Zero(t, w.Seconds)
	require.Zero(t, w.TPS)
	require.Zero(t, w.DataShare())
	require.False(t, w.HasMFU)
	require.Equal(t, "step:  1  loss:      nan  grad_norm:     inf  memory: N/A  tps: 0  tflops: 0.00  mfu: N/A", w.Line(false))
	c.sleep(1)
	w = m.Step(Step{Step: 2, Tokens: 5})
	require.False(t, w.HasMFU, "a peak or a cost that is not known gives no utilisation")
	require.InDelta(t, 5, w.TPS, 1e-9)
	for _, e := range w.Event().Scalars {
		require.NotContains(t, e.Name, "mfu")
		require.NotContains(t, e.Name, "tflops")
	}
	require.NotContains(t, m.Summary().String(), "mfu")
	require.Regexp(t, "^steps +none\n", NewMeter(MeterOptions{Now: c.now}).Summary().String())
}

// Products in 8-bit floats have no utilisation: the peak is of bf16.
func TestQuantized(t *testing.T) {
	for _, quantized := range []bool{false, true} {
		c := newClock()
		m := NewMeter(MeterOptions{Devices: 1, LogFreq: 1, Flops: Flops{Matmul: 1e9}, Peak: 1e12, Now: c.now, Quantized: quantized})
		c.sleep(1)
		w := m.Step(Step{Step: 1, Tokens: 5})
		require.Equal(t, !quantized, w.HasMFU)
		require.Positive(t, w.TFLOPs[TorchTitan])
		if quantized {
			require.Contains(t, m.Summary().String(), "N/A: products are partly in 8-bit floats")
		}
	}
}
