package sweep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/metrics"
)

// The published figures agree with each other, and MFU with titan's count of FLOPs.
func TestReferences(t *testing.T) {
	require.Equal(t, []string{"llama3_8b_v6e", "qwen3_235b_v7x"}, References())
	for _, name := range References() {
		s, err := Reference(name)
		require.NoError(t, err)
		require.Equal(t, name, s.Name)
		for _, p := range s.Points {
			if p.StepSeconds > 0 {
				require.InEpsilon(t, float64(p.GlobalBatch*s.SeqLen)/p.StepSeconds/float64(p.Devices), p.TPSDevice, 0.003)
			}
			require.InDelta(t, p.TPSDevice*float64(p.Devices), p.TPSChip*float64(p.Chips), 1e-6)
		}
	}
	s, err := Reference("qwen3_235b_v7x.toml")
	require.NoError(t, err)
	require.InDelta(t, 0.941, s.Points[1].Efficiency, 0.001)
	r, _, err := configs.Load("qwen3_235b_a22b", nil)
	require.NoError(t, err)
	c, err := r.Decoder()
	require.NoError(t, err)
	flops, peak := metrics.ShapeOf(&c).FlopsPerToken(s.SeqLen), 0.0
	peak, err = metrics.PeakBF16(s.Kind)
	require.NoError(t, err)
	require.Equal(t, r.Model.Name+" "+r.Model.Flavor, s.Model)
	for _, p := range s.Points {
		require.InDelta(t, flops.Utilization(metrics.Causal, p.TPSDevice, peak).Percent, p.MFU, 0.06)
		require.Equal(t, p.MFU, s.ByConvention(p).Causal)
		require.Zero(t, s.ByConvention(p).Full)
	}
}

func TestReferenceMistakes(t *testing.T) {
	good, err := references.ReadFile("references/qwen3_235b_v7x.toml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "mine.toml")
	for _, c := range []struct{ old, now, says string }{
		{"", "", ""},
		{"schema = 1", "schema = 2", "schema is 2; this titan reads 1"},
		{"seq_len = 4096\n", "", "seq_len is missing"},
		{"convention = \"causal\"", "convention = \"half\"", `convention is "half" and must be causal or full`},
		{"mode = \"weak\"", "mode = \"week\"", `mode is "week"`},
		{"chips = 1024", "chips = 0", "point 1: chips is 0"},
		{"tokens_per_second_device = 2104\n", "", "point 2 of 8192 chips: tokens_per_second_device or tokens_per_second_chip is missing"},
		{"devices = 2048", "device = 2048", "unknown key points.device"},
		{"devices = 2048", "devices = ", "line 21, column 11: unexpected character"},
		{"kind = \"tpu7x\"", "kind = 7", "line 6, column 8"},
	} {
		text := strings.Replace(string(good), c.old, c.now, 1)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		s, err := Reference(file)
		if c.says == "" {
			require.NoError(t, err)
			require.Equal(t, "mine", s.Name)
			continue
		}
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, "mine.toml")
	}
	_, err = Reference("qwen3_235b_v8x")
	require.ErrorContains(t, err, `did you mean "qwen3_235b_v7x"?`)
	_, err = Reference("no/such.toml")
	require.ErrorContains(t, err, "no/such.toml")
}
