package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/sweep"
)

func TestSweepMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, "needs --config"},
		{[]string{"x"}, 2, "no arguments"},
		{[]string{"--config", "qwen3_moe_debug", "--mode", "week"}, 2, `--mode is "week" and must be weak or strong`},
		{[]string{"--config", "qwen3_moe_debug", "--mode", "weak", "--devices", "1,x"}, 2, `--devices: counts "1,x": "x" is no number`},
		{[]string{"--config", "qwen3_moe_debug", "--vary", "steps"}, 2, `--vary: vary "steps": there is no section.key`},
		{[]string{"--config", "qwen3_moe_debug", "--vary", "training.steps=1", "--vary", "training.steps=2"}, 2, "--vary names training.steps twice"},
		{[]string{"--config", "qwen3_moe_debug", "--quick"}, 2, "are for --plan"},
		{[]string{"--config", "qwen3_moe_debug", "--plan", "--extrapolate"}, 2, "needs --timeout or --max-compile-chips"},
		{[]string{"--config", "qwen3_moe_debug", "--plan", "--steps", "3"}, 2, "--steps and --warmup are for runs"},
		{[]string{"--config", "qwen3_moe_debug", "--steps", "5"}, 2, "--warmup is 5 and --steps is 5"},
		{[]string{"--config", "qwen3_moe_debug", "--name", "../x"}, 2, `--name is "../x"`},
		{[]string{"--config", "qwen3_moe_debug", "--reference", "qwen3_235b_v8x", "--vary", "debug.seed=1"}, 1, `did you mean "qwen3_235b_v7x"?`},
		{[]string{"--config", "qwen3_moe_debug", "--mode", "weak"}, 1, "weak mode needs several numbers"},
		{[]string{"--config", "qwen3_moe_debug", "--devices", "1,2"}, 2, "--mode is needed with several numbers"},
		{[]string{"--config", "qwen3_moe_debug", "--mode", "weak", "--devices", "1,2", "--csv", "-", "--markdown", "-"}, 2, "--csv and --markdown are both -"},
		{[]string{"--config", "qwen3_moe_debug", "--plan", "--mode", "weak", "--topologies", "v5e:3x3"}, 1, "the nearest valid shape is v5e:2x4"},
	} {
		code, out, errs := titan(t, append([]string{"sweep"}, c.args...)...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Empty(t, out)
		require.Contains(t, errs, c.says)
	}
}

// The points of the published series, without trying them.
func TestSweepDryRun(t *testing.T) {
	code, out, errs := titan(t, "sweep", "--config", "qwen3_235b_a22b", "--plan", "--mode", "weak", "--chips", "64,128,...,8192", "--reference", "qwen3_235b_v7x", "--dry-run")
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^8192 +tpu7x:8x8x16\*8 +16384 +dp_replicate=64 dp_shard=256 +262,144 .* pending$`, out)
	require.Regexp(t, `(?m)^8192 .* 2,104 .* published$`, out)
}

// A sweep trains its points, keeps them, and does not repeat them.
func TestSweepRuns(t *testing.T) {
	r := newTrainRun(t)
	t.Setenv("TITAN_COMPILE_CACHE", r.cache)
	t.Setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
	folder := t.TempDir()
	args := []string{"sweep", "--config", r.recipe, "--mode", "weak", "--devices", "1,2", "--steps", "3", "--warmup", "1", "--folder", folder, "--name", "two",
		"--set", "model.override.n_layers=1", "--json", "-"}
	code, out, errs := titan(t, args...)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "[2/2] devices-2: ")
	var s sweep.Sweep
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.Len(t, s.Points, 2)
	for i, p := range s.Points {
		require.Equal(t, sweep.OK, p.Status, p.Error)
		require.Equal(t, i+1, p.Devices)
		require.EqualValues(t, 16*(i+1), p.Tokens)
		require.Positive(t, p.StepSeconds)
		require.InEpsilon(t, p.TPSDevice*float64(p.Devices), p.TPS, 1e-9)
		require.Positive(t, p.Efficiency)
		require.NotNil(t, p.Loss)
		require.NotEmpty(t, p.Versions.Plugin)
		require.NoFileExists(t, filepath.Join(folder, "two", p.RunDir, "checkpoint"))
	}
	kept, warnings, err := sweep.Open(filepath.Join(folder, "two"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, s.Points, kept.Points)
	code, _, errs = titan(t, args...)
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "devices-")
}
