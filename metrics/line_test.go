package metrics

import (
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func window() *Window {
	return &Window{
		Step: 10, Time: time.Unix(1_800_000_000, 5e8), Steps: 9, Tokens: 900, Padding: 100, TokensSeen: 16_777_217,
		Loss: 6.99123456, GradNorm: 1.23456, Seconds: 18, DataSeconds: 0.9,
		LR: map[string]float64{"default": 8e-4, "embed": 1e-4}, More: map[string]float64{"moe/aux_loss": 1.5},
		Memory: Memory{Active: 30 << 30, Reserved: 40 << 30, Limit: 80 << 30},
		Rates:  Rates{TPS: 2059.4, TFLOPs: [2]float64{1119.25, 90.5}, MFU: [2]float64{12.0612, 9.15}, HasMFU: true},
	}
}

// The shape is TorchTitan's: scripts that read its logs read these.
func TestLine(t *testing.T) {
	w := window()
	require.Equal(t, "step: 10  loss:  6.99123  grad_norm:  1.2346  memory: 40.00GiB(50.00%)  tps: 2,059  tflops: 1,119.25  mfu: 12.06%", w.Line(false))
	w.Done, w.Left = 0.0123, 3*time.Hour+5*time.Minute+7*time.Second
	require.Contains(t, w.Line(false), "mfu: 12.06%  done: 1.2%  left: 3h05m")
	w.Done, w.Left = 1, 0
	require.Regexp(t, "done: 100.0%$", w.Line(false))
	for d, want := range map[time.Duration]string{1: "1s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 50 * time.Hour: "2d02h"} {
		require.Equal(t, want, roughly(d))
	}
	w.Done = 0
	w.HasMFU, w.Step, w.TPS, w.Memory = false, 12345, 1234567.5, Memory{Active: 3 << 30}
	require.Equal(t, "step: 12345  loss:  6.99123  grad_norm:  1.2346  memory:  3.00GiB  tps: 1,234,568  tflops: 1,119.25  mfu: N/A", w.Line(false))
	coloured := w.Line(true)
	require.Contains(t, coloured, "\x1b[")
	require.True(t, strings.HasSuffix(coloured, "\x1b[39m"))
	require.Equal(t, w.Line(false), regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(coloured, ""))

	v := &Validation{Step: 5, Loss: 6.5, Memory: Memory{Reserved: 1 << 29, Limit: 1 << 30}, TPS: 999.6}
	require.Equal(t, "validate step:  5  loss:  6.5000  memory:  0.50GiB(50.00%)  tps: 1,000", v.Line(false))
}

func TestThousands(t *testing.T) {
	for _, c := range []struct {
		v      float64
		places int
		want   string
	}{{0, 0, "0"}, {999, 0, "999"}, {1000, 0, "1,000"}, {-1234567.891, 2, "-1,234,567.89"}, {-12, 0, "-12"}, {123456, 1, "123,456.0"},
		{math.NaN(), 0, "nan"}, {math.Inf(-1), 2, "-inf"}, {1e21, 0, "1,000,000,000,000,000,000,000"}} {
		require.Equal(t, c.want, thousands(c.v, c.places))
	}
}

func TestColour(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	require.NoError(t, err)
	defer f.Close()
	require.False(t, DefaultConfig().Colour(f), "a file is no terminal")
}

func TestSummary(t *testing.T) {
	c := newClock()
	m := NewMeter(MeterOptions{Devices: 8, LogFreq: 10, Flops: Flops{Matmul: 1e9, Attention: 2e9}, Peak: 1e12, Now: c.now, PartialAttention: true})
	c.sleep(1)
	resume := m.Pause(Compile)
	c.sleep(12.3456)
	resume()
	m.Begin(0)
	for n := int64(1); n <= 300; n++ {
		c.sleep(0.5)
		m.Step(Step{Step: n, Tokens: 4000, Padding: 1000, Loss: 8 - float64(n)/100, DataWait: seconds / 100, Skipped: n == 7, Memory: Memory{Reserved: 1 << 30, Limit: 4 << 30}})
	}
	resume = m.Pause(Checkpoint)
	c.sleep(2)
	resume()
	m.Validated(300, 5.125, 100, 1, Memory{})
	s := m.Summary()
	s.Lost = []Loss{{Name: "metrics.jsonl", Events: 3, Err: os.ErrClosed}}
	require.Equal(t, `steps            300 (1 to 300)
loss             7.99000 at step 1, 5.00000 at step 300
validation loss  5.1250 at step 300
tokens           1,200,000, 1,200,000 since step 1; 20.00% of the positions were padding
tps              1,000 tokens a second and device
warm             1,000 tokens a second and device over 300 steps, mfu 300.00% (torchtitan), 200.00% (causal)
step time        mean 500ms, p50 500ms, p95 500ms, p99 500ms, longest 500ms
stalls           0 steps waited for input, 1 saves held training up
tflops           3.00 (torchtitan: all of attention's square), 2.00 (causal: the half below its diagonal)
mfu              300.00% (torchtitan: all of attention's square), 200.00% (causal: the half below its diagonal)
                 attention is counted over whole rows, but keeps to the documents in them
memory           1.00GiB(25.00%)
first compile    12.35s
goodput          90.4% of 2m45s; lost to compile 12.35s (7.5%), checkpoint 2s (1.2%), startup 1s (0.6%), skipped 500ms (0.3%)
skipped steps    1
LOST             3 metric records of metrics.jsonl: file already closed
`, s.String())
	e := s.Event(c.now())
	require.EqualValues(t, "summary", e.Kind)
	got := map[string]float64{}
	for _, x := range e.Scalars {
		got[x.Name] = x.Value
	}
	require.InDelta(t, 12.3456, got["time/compile(s)"], 1e-9)
	require.InDelta(t, 147, got["time/train(s)"], 1e-6)
}
