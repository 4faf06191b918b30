package compare

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/resulttest"
)

func load(t *testing.T, path string) *Input {
	t.Helper()
	in, warnings, err := Load(path)
	require.NoError(t, err)
	require.Empty(t, warnings)
	return in
}

func runOf(t *testing.T, name string, o resulttest.RunOptions) *Result {
	t.Helper()
	return load(t, resulttest.Run(t, filepath.Join(t.TempDir(), name), o)).Results[0]
}

func row(t *testing.T, c *Comparison, key string) Row {
	t.Helper()
	for _, r := range c.Rows {
		if r.Key == key {
			return r
		}
	}
	require.Fail(t, "no row", key)
	return Row{}
}

func compared(t *testing.T, o Options, results ...*Result) *Comparison {
	t.Helper()
	c, err := New(results, o)
	require.NoError(t, err)
	return c
}

func TestTwoRunsAreRanked(t *testing.T) {
	a := runOf(t, "a", resulttest.RunOptions{})
	b := runOf(t, "b", resulttest.RunOptions{Factor: 1.25, Loss: 0.5, Recipe: "[optimizer]\nlr = 0.1\n"})
	c := compared(t, Options{}, a, b)
	require.Equal(t, []Difference{{Key: "optimizer.lr", Values: []string{"", "0.1"}}}, c.Differences)
	require.Empty(t, c.Marks[0])
	require.Empty(t, c.Marks[1])
	for _, key := range []string{TPSChip, TPSDevice, MFUTorchTitan, MFUCausal, StepSeconds, StepP95, StepP99, CostToken} {
		r := row(t, c, key)
		require.False(t, r.Cells[0].Best, key)
		require.True(t, r.Cells[1].Best, key)
	}
	require.InDelta(t, 25, *row(t, c, TPSDevice).Cells[1].Change, 0.01)
	require.InDelta(t, -20, *row(t, c, StepSeconds).Cells[1].Change, 0.01)
	require.True(t, row(t, c, LossTokens).Cells[0].Best)
	require.False(t, row(t, c, LossTokens).Cells[1].Best)
	// A device is a chip of v6e; 1e9 tokens take 1e9/tps/3600 chip-hours of 2.7.
	tps := *row(t, c, TPSDevice).Cells[0].Value
	require.Equal(t, tps, *row(t, c, TPSChip).Cells[0].Value)
	require.InEpsilon(t, 2.7*1e9/tps/3600, *row(t, c, CostToken).Cells[0].Value, 1e-12)

	text := c.Text(100)
	require.Contains(t, text, "optimizer.lr")
	require.Contains(t, text, "* the best of what can be compared")
	require.NotContains(t, text, markSign)
	require.Contains(t, c.Markdown(), "| tokens/s a chip |")
	require.Regexp(t, `\| tokens/s a chip \| [\d,]+ \| \*\*[\d,]+ \(\+25\.0%\)\*\* \|`, c.Markdown())
}

func TestLossAtEqualTokensAndTime(t *testing.T) {
	long, short := runOf(t, "long", resulttest.RunOptions{}), runOf(t, "short", resulttest.RunOptions{Steps: 20, Factor: 2})
	c := compared(t, Options{}, long, short)
	cells := row(t, c, LossTokens).Cells
	// The same model by the same steps: at 20 steps of 65,536 tokens the losses are
	// the same, and so is the mean of the last 5%, one step.
	require.InDelta(t, 2+6*math.Exp(-20./15), *cells[0].Value, 1e-5)
	require.Equal(t, *cells[0].Value, *cells[1].Value)
	require.False(t, cells[0].Best || cells[1].Best, "equals have no best")
	require.InDelta(t, 2.1+6*math.Exp(-20./15), *row(t, c, ValTokens).Cells[0].Value, 1e-5)
	// The short run is twice as fast.
	cells = row(t, c, LossTime).Cells
	require.Greater(t, *cells[0].Value, *cells[1].Value)
	require.True(t, cells[1].Best)
}

func TestTargetLoss(t *testing.T) {
	a := runOf(t, "a", resulttest.RunOptions{})
	c := compared(t, Options{TargetLoss: 4}, a)
	// Validation is every 10 steps: 2.1 + 6·exp(-s/15) ≤ 4 from step 20 on.
	require.Equal(t, 20.0*65536, *row(t, c, TargetTokens).Cells[0].Value)
	seconds := *row(t, c, TargetTime).Cells[0].Value
	for _, p := range a.Curve {
		if p.Step == 20 {
			require.Equal(t, p.Seconds, seconds)
		}
	}
	require.InEpsilon(t, 8*2.7*seconds/3600, *row(t, c, TargetCost).Cells[0].Value, 1e-12)
	c = compared(t, Options{TargetLoss: 1}, a)
	require.Contains(t, strings.Join(c.Notes, "\n"), "a has not reached a loss of 1")
}

// A resumed run counts the steps that were kept, and the time of both processes.
func TestResumedRun(t *testing.T) {
	r := runOf(t, "r", resulttest.RunOptions{Resumed: true})
	require.Len(t, r.Curve, 40)
	for i, p := range r.Curve {
		require.EqualValues(t, i+1, p.Step)
		require.True(t, i == 0 || p.Seconds > r.Curve[i-1].Seconds)
	}
	require.Contains(t, strings.Join(r.Notes, "\n"), "2 processes")
}

func TestWhatCannotBeComparedIsMarked(t *testing.T) {
	base := runOf(t, "base", resulttest.RunOptions{})
	for _, x := range []struct {
		name   string
		other  resulttest.RunOptions
		aspect Aspect
		says   string
		loss   bool // is spoiled
	}{
		{"model", resulttest.RunOptions{Flavor: "70B"}, Model, "another model: llama3 70B, the base's is llama3 8B", true},
		{"override", resulttest.RunOptions{Recipe: "[model.override]\nn_layers = 4\n"}, Model, "llama3 8B with n_layers=4", true},
		{"length", resulttest.RunOptions{SeqLen: 8192}, SeqLen, "another sequence length: 8,192, the base's is 4,096", true},
		{"float8", resulttest.RunOptions{Recipe: "[data]\nisolate_documents = true\n"}, Packing, "attention keeps to documents", true},
		{"routing", resulttest.RunOptions{Recipe: "[debug]\nmoe_force_load_balance = true\n"}, Routing, "forced balance", true},
		{"peak", resulttest.RunOptions{Recipe: "[metrics]\npeak_tflops = 500.0\n"}, Peak, "500 TFLOP/s", false},
		{"few", resulttest.RunOptions{Steps: 6}, Warm, "3 steps were timed after the warm-up", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := compared(t, Options{}, base, runOf(t, x.name, x.other))
			cell := row(t, c, MFUCausal).Cells[1]
			require.True(t, cell.Marked)
			require.Contains(t, cell.Why, x.aspect)
			require.Contains(t, strings.Join(c.Reasons(), "\n"), x.says)
			require.Contains(t, c.Text(100), x.says)
			require.Contains(t, c.Markdown(), markSign)
			for _, r := range c.Rows {
				if r.Cells[1].Marked {
					require.False(t, r.Cells[0].Best || r.Cells[1].Best, r.Key)
					require.Nil(t, r.Cells[1].Change, r.Key)
				}
			}
			require.Equal(t, x.loss, row(t, c, LossTokens).Cells[1].Marked)
			require.True(t, c.Marked())
		})
	}
}

// A prediction beside a measurement has a change, and no best.
func TestPlanBesideRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	resulttest.WriteJSON(t, file, resulttest.Plan())
	p := load(t, file).Results[0]
	c := compared(t, Options{}, p, runOf(t, "run", resulttest.RunOptions{}))
	cells := row(t, c, TPSChip).Cells
	require.True(t, cells[1].Marked)
	require.Equal(t, []Aspect{Evidence}, cells[1].Why)
	require.NotNil(t, cells[1].Change)
	require.False(t, cells[0].Best || cells[1].Best)

	quick := resulttest.Plan()
	quick.Effort = "quick"
	c = compared(t, Options{}, p, FromPlan(quick))
	require.Equal(t, []Aspect{Effort}, row(t, c, MemoryBytes).Cells[1].Why)
}

func TestSweepAndPublishedSeries(t *testing.T) {
	sweep := load(t, resulttest.Sweep(t, t.TempDir()))
	require.Len(t, sweep.Results, 5)
	failed := sweep.Results[4]
	require.Equal(t, "failed", failed.State)
	require.Empty(t, failed.Figures)
	require.Equal(t, []string{"128 chips: the step does not fit"}, failed.Notes)
	series := load(t, "llama3_8b_v6e")
	c := compared(t, Options{}, append(sweep.Results, series.Results...)...)
	speed := row(t, c, TPSChip)
	require.True(t, speed.Cells[0].Best)
	require.False(t, speed.Cells[1].Marked, "points of a sweep can be compared")
	require.True(t, row(t, c, StepSeconds).Cells[1].Marked, "but not their steps: they have other batches")
	require.Equal(t, []Aspect{Evidence, Packing, Padding, Routing}, speed.Cells[5].Why)
	require.NotNil(t, speed.Cells[5].Change, "how far the prediction is off")
	require.Contains(t, strings.Join(c.Reasons(), "\n"), "F–K: a figure of another kind: published, the base's is predicted")

	// The published series by itself: its points can be compared with each other.
	c = compared(t, Options{}, series.Results...)
	require.False(t, row(t, c, TPSChip).Cells[1].Marked)
	// MFU by another convention is another figure.
	other := *series.Results[1]
	other.Basis = Basis{}
	for k, v := range series.Results[1].Basis {
		other.Basis[k] = v
	}
	qwen := load(t, "qwen3_235b_v7x")
	a, b := *qwen.Results[0], *qwen.Results[1]
	b.Figures = map[string]float64{TPSChip: 1, MFUTorchTitan: 40}
	b.Basis = Basis{}
	for k, v := range a.Basis {
		b.Basis[k] = v
	}
	b.conventions()
	c = compared(t, Options{}, &a, &b)
	require.Contains(t, strings.Join(c.Reasons(), "\n"), "MFU by another convention: torchtitan, the base's is causal")
	for _, key := range []string{MFUCausal, MFUTorchTitan} {
		for _, cell := range row(t, c, key).Cells {
			require.False(t, cell.Best)
		}
	}
}

func TestFormsAgree(t *testing.T) {
	c := compared(t, Options{TargetLoss: 4}, runOf(t, "a", resulttest.RunOptions{}), runOf(t, "b|c", resulttest.RunOptions{Factor: 2}), runOf(t, "d", resulttest.RunOptions{SeqLen: 128}))
	text, err := c.JSON()
	require.NoError(t, err)
	var back Comparison
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back.Rows, len(c.Rows))
	lines, err := c.CSV()
	require.NoError(t, err)
	table, err := csv.NewReader(strings.NewReader(string(lines))).ReadAll()
	require.NoError(t, err)
	require.Len(t, table, 1+3*len(c.Rows))
	i := 0
	for _, r := range back.Rows {
		for k, cell := range r.Cells {
			i++
			require.Equal(t, []string{r.Key, Letter(k)}, table[i][:2])
			if cell.Value == nil {
				require.Empty(t, table[i][4])
				continue
			}
			var v float64
			require.NoError(t, json.Unmarshal([]byte(table[i][4]), &v))
			require.Equal(t, *cell.Value, v)
			require.Contains(t, c.Text(200), cell.Text)
		}
	}
	require.Contains(t, c.Markdown(), `b\|c`)
	// A narrow terminal gets several tables, each with the base.
	narrow := c.Text(70)
	for _, l := range strings.Split(narrow, "\n") {
		if strings.HasPrefix(l, "tokens/s a chip") || strings.HasPrefix(l, "figure") {
			require.LessOrEqual(t, len([]rune(l)), 70)
		}
	}
	require.Equal(t, 2, strings.Count(narrow, "tokens/s a device"))
}

func TestLetters(t *testing.T) {
	for i, want := range map[int]string{0: "A", 25: "Z", 26: "AA", 51: "AZ", 52: "BA", 701: "ZZ", 702: "AAA"} {
		require.Equal(t, want, Letter(i))
	}
	require.Equal(t, "A, C–E, G, H", span([]int{0, 2, 3, 4, 6, 7}))
}

func TestWhatIsNoResult(t *testing.T) {
	_, _, err := Load("qwen3_235b_v7y")
	require.ErrorContains(t, err, `name a run's or a sweep's folder, the JSON of a plan, or a published series; did you mean "qwen3_235b_v7x"?`)
	dir := t.TempDir()
	_, _, err = Load(dir)
	require.ErrorContains(t, err, "is no run")
	for name, text := range map[string]string{"a.json": "{", "b.json": "{}", "c.toml": "x", "d.json": ""} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, _, err = Load(file)
		require.ErrorContains(t, err, name)
	}
	_, err = New(nil, Options{})
	require.ErrorContains(t, err, "nothing to compare")
}
