package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
	"titan/plan"
)

func TestPlanMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"plan"}, 2, "--config"},
		{[]string{"plan", "--config", "llama3_8b", "--effort", "O3"}, 2, `--effort "O3" is not known: there are O1, O2, default, quick`},
		{[]string{"plan", "--config", "llama3_8b", "--quick", "--effort", "O1"}, 2, "--quick is --effort quick"},
		{[]string{"plan", "--config", "llama3_8b", "--tries", "2"}, 2, "--tries is for --choose"},
		{[]string{"plan", "--config", "llama3_8b", "--choose", "--tries", "x"}, 2, `invalid argument "x" for "--tries" flag: invalid syntax`},
		{[]string{"plan", "--config", "llama3_8b", "--topology", ""}, 2, "--topology is empty"},
		{[]string{"plan", "--config", "llama3_8b", "--json", ""}, 2, "--json is empty"},
		{[]string{"plan", "--config", "llama3_8b", "--json", "-", "--html", "-"}, 2, "--html cannot be the standard output"},
		{[]string{"plan", "--config", "llama3_8b", "--json", "a/../x", "--html", "x"}, 2, "--json and --html are both x"},
		{[]string{"plan", "--config", "llama3_8b", "--json", "/no/such/x.json"}, 1, "--json: there is no folder /no/such"},
		{[]string{"plan", "--config", "llama3_8b", "--html", "."}, 1, "--html: . is a folder"},
		{[]string{"plan", "--config", "llama3_8b", "--choose", "--tries", "0"}, 2, "at least 1"},
		{[]string{"plan", "x"}, 2, "no arguments"},
		{[]string{"plan", "--config", "llama3_8b", "--topology", "v5e:3x3"}, 1, "titan: --topology: v5e slices do not come as v5e:3x3; the nearest valid shape is v5e:2x4\n"},
		{[]string{"plan", "--config", "llama3_8b", "--topology", "v5:2x4"}, 1, "unknown TPU kind \"v5\""},
		{[]string{"plan", "--config", "llama3_70b", "--topology", "v5e:4x4"}, 1, "parameters and optimizer state alone take"},
		{[]string{"plan", "--config", "llama4"}, 1, "llama4"},
	} {
		code, out, errs := titan(t, c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Empty(t, out)
		require.Contains(t, errs, c.says)
	}
}

func TestListTopologies(t *testing.T) {
	code, out, _ := titan(t, "plan", "--list-topologies")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^v5e +1 +197 +16 +1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16$`, out)
	require.Regexp(t, `(?m)^tpu7x +2 +2307 +192 +1x1x1 .* 4x4x16 … sides multiples of 4, ascending, up to 9,216 chips$`, out)
}

// The plan as JSON is the report, and the second time it is not compiled.
func TestPlanAsJSON(t *testing.T) {
	xlatest.TPU(t)
	t.Setenv("TITAN_COMPILE_CACHE", t.TempDir())
	file := filepath.Join(t.TempDir(), "plan.json")
	args := []string{"plan", "--config", "llama3_debug", "--topology", "v5e:2x2", "--quick", "--set", "training.seq_len=128", "--set", "validation.seq_len=128", "--set", "model.override.n_layers=1"}
	code, out, errs := titan(t, append(args, "--json", file)...)
	require.Zero(t, code, errs)
	require.Contains(t, out, "fits: ")
	require.Contains(t, out, "predicted from rooflines")
	code, out, errs = titan(t, append(args, "--json", "-")...)
	require.Zero(t, code, errs)
	var r plan.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.True(t, r.Memory.Fits)
	require.Contains(t, r.Compile.Cache, "loaded from the compile cache")
	require.Equal(t, "v5e:2x2", r.Topology)
	require.Positive(t, r.TokensPerSecond)
}

// A recipe that computes everything again, with room to spare, is not what is chosen.
func TestPlanChooses(t *testing.T) {
	xlatest.TPU(t)
	t.Setenv("TITAN_COMPILE_CACHE", t.TempDir())
	code, out, errs := titan(t, "plan", "--config", "llama3_debug", "--topology", "v5e:2x2", "--quick", "--choose", "--tries", "1", "--json", "-",
		"--set", "training.seq_len=128", "--set", "validation.seq_len=128", "--set", "model.override.n_layers=1",
		"--set", "training.local_batch_size=1", "--set", "training.global_batch_size=32", "--set", "activation_checkpoint.mode=full")
	require.Zero(t, code, errs)
	require.Contains(t, errs, "weighing ")
	var r plan.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Len(t, r.Choices.Compiled, 2)
	require.Equal(t, 1, r.Choices.Chosen)
	best := r.Choices.Compiled[1]
	require.Equal(t, r.Prediction.Seconds, best.Seconds)
	require.Less(t, best.Seconds, r.Choices.Compiled[0].Seconds)
	require.Less(t, best.Passes, 8)
	require.Equal(t, 32, r.Sequences)
	require.Contains(t, r.String(), "chosen    --set ")
}

// Attention without tile kernels over which libtpu ended the process at little effort,
// in a process of its own.
func TestPlainAttentionAtLittleEffort(t *testing.T) {
	xlatest.TPU(t)
	cmd := exec.Command(os.Args[0], "plan", "--config", "llama3_8b", "--topology", "v6e:2x2", "--quick", "--no-cache", "--set", "kernels.attention=plain",
		"--set", "model.override.n_layers=1", "--set", "model.override.vocab_size=8192", "--set", "training.seq_len=1024", "--set", "training.local_batch_size=2",
		"--set", "activation_checkpoint.mode=full", "--set", "activation_checkpoint.offload=[]")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "memory    fits")
}
