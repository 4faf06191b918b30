package train

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/metrics"
	"titan/runs"
)

// timeline reads a trace: how often each event is there, by the step that it says.
func timeline(t *testing.T, path string) map[string][]int {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var doc struct {
		TraceEvents []struct {
			Name, Ph string
			Dur      float64
			Args     struct{ Step int }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &doc))
	out := map[string][]int{}
	for _, e := range doc.TraceEvents {
		if e.Ph == "X" {
			require.GreaterOrEqual(t, e.Dur, 0.)
			out[e.Name] = append(out[e.Name], e.Args.Step)
		}
	}
	return out
}

// A run that is preempted and goes on tells all that it was: versions, machine,
// programs, checkpoints, figures, ends. Its traces have the steps that were asked for.
func TestRecord(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	r := recipe(t, data, "validation.enable=true", "validation.freq=3", "validation.steps=1", "validation.dataset_path="+data,
		"profiling.enable_profiling=true", "profiling.profile_freq=3", "profiling.profiler_active=2", "metrics.cold_steps=1", "checkpoint.keep_latest_k=2")
	_, first := runUntil(t, r, "step:  3 ")
	_, second := run(t, again(r, nil))
	_, err := os.Stat(filepath.Join(r.Job.DumpFolder, "run.json.tmp"))
	require.ErrorIs(t, err, os.ErrNotExist)

	got, warnings, err := runs.Open(r.Job.DumpFolder)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Len(t, got.Record.Attempts, 2)
	one, two := got.Record.Attempts[0], got.Record.Attempts[1]
	require.Equal(t, runs.Preempted, one.Reason(time.Now()))
	require.Equal(t, "terminated", one.Exit.Signal)
	require.Equal(t, runs.Finished, two.Reason(time.Now()))
	require.Equal(t, "test", two.Titan)
	require.Equal(t, r.Hash(), two.RecipeSHA256)
	require.Equal(t, int64(6), got.Recipe["training.steps"])
	require.Len(t, two.Plugin.SHA256, 64)
	require.Equal(t, "cpu", two.Plugin.Name)
	require.Regexp(t, `^\d+\.\d+$`, two.Plugin.API)
	require.Equal(t, 4, two.Machine.Devices)
	require.Equal(t, 1, two.Machine.Hosts)
	require.Contains(t, two.Machine.Mesh, runs.Axis{Name: "dp_shard", Size: 4})
	require.Equal(t, runs.Batch{SeqLen: 16, GlobalBatch: 4, Passes: 1, Tokens: 64, Data: two.Batch.Data, Steps: 6}, two.Batch)
	require.Positive(t, two.Model.FlopsPerToken.Causal)
	require.Less(t, two.Model.FlopsPerToken.Causal, two.Model.FlopsPerToken.TorchTitan)
	require.Len(t, two.Programs, 2)
	for i, p := range two.Programs {
		require.Equal(t, []string{"train_step", "evaluate"}[i], p.Name)
		require.True(t, p.CacheHit)
		require.Equal(t, one.Programs[i].SHA256, p.SHA256)
		require.Positive(t, p.Seconds)
	}
	from := one.Figures.LastStep
	require.True(t, two.Began)
	require.Equal(t, from, two.ResumedFrom)
	require.Contains(t, two.Source, "checkpoint/step-0000000")
	var kept []int
	for _, a := range got.Record.Attempts {
		for _, c := range a.Checkpoints {
			require.Equal(t, filepath.ToSlash(filepath.Clean(c.Path)), c.Path)
			if c.Kept {
				kept = append(kept, int(c.Step))
			}
		}
	}
	require.Equal(t, steps(t, r), kept, "those that are there")

	f := two.Figures
	require.EqualValues(t, 6-from, f.Steps)
	require.Equal(t, f.Steps-1, f.Warm.Steps)
	require.Equal(t, f.Steps-1, f.StepTime.Steps)
	require.Positive(t, f.StepTime.P50)
	require.Positive(t, f.FirstCompile)
	require.Zero(t, f.Recompiles, "batches have one shape")
	require.Positive(t, f.CheckpointStalls)
	g := got.Goodput()
	sum := g.Productive
	for _, x := range g.Lost {
		sum += x
	}
	require.InEpsilon(t, g.Wall, sum, 1e-6)
	for _, k := range []metrics.Kind{metrics.Startup, metrics.Compile, metrics.Checkpoint, metrics.Validate, metrics.Profile, metrics.Idle} {
		require.Positive(t, g.Lost[k], k)
	}
	require.Positive(t, one.Figures.Goodput.Lost[metrics.Initialise])
	require.NotContains(t, one.Figures.Goodput.Lost, metrics.Restore, "it began anew")
	require.Positive(t, two.Figures.Goodput.Lost[metrics.Restore])
	require.NotContains(t, two.Figures.Goodput.Lost, metrics.Initialise, "it went on from a checkpoint")
	require.Len(t, got.Train, 6)
	require.Len(t, got.Train[5].Lists[metrics.StepSeconds], 1)
	require.Contains(t, got.Train[5].Values, "goodput(%)")
	for _, name := range []string{"grad_norm", "lr/AdamW", "n_tokens_seen", "skipped_steps"} {
		require.Contains(t, got.Train[5].Values, name)
	}

	log, err := os.ReadFile(filepath.Join(r.Job.DumpFolder, "log.txt"))
	require.NoError(t, err)
	var lines []string
	for l := range strings.Lines(string(log)) {
		if !strings.HasPrefix(l, "=== attempt") {
			lines = append(lines, l)
		}
	}
	require.Equal(t, first+second, strings.Join(lines, ""), "what the terminal showed")

	traces := filepath.Join(r.Job.DumpFolder, "profile_traces")
	last := timeline(t, filepath.Join(traces, "step-00000006", "timeline.json"))
	for _, name := range []string{"data", "dispatch", "wait", "step"} {
		require.Equal(t, []int{5, 6}, last[name], name)
	}
	require.Equal(t, []int{6}, last["validation"])
	require.Contains(t, second, "the plugin has no profiler")
	require.FileExists(t, filepath.Join(traces, "step-00000003", "timeline.json"))
}

// A failure is recorded with its message, also one before the first step.
func TestRecordOfFailure(t *testing.T) {
	r := recipe(t, filepath.Join(t.TempDir(), "none"))
	err, _ := fails(t, r)
	got, _, oerr := runs.Open(r.Job.DumpFolder)
	require.NoError(t, oerr)
	e := got.Last().Exit
	require.Equal(t, runs.Failed, e.Reason)
	require.Equal(t, err.Error(), e.Message)
	require.False(t, got.Last().Began)
	log, lerr := os.ReadFile(filepath.Join(r.Job.DumpFolder, "log.txt"))
	require.NoError(t, lerr)
	require.Contains(t, string(log), "failed: "+err.Error())
	// A signal before the first step is no failure.
	r = recipe(t, dataset(t, documents(1, 40, 5, 60)...))
	_, err = Run(ctx, RunOptions{Recipe: r, Version: "test", Out: &bytes.Buffer{}, Stop: signalled(syscall.SIGINT)})
	require.NoError(t, err)
	got, _, oerr = runs.Open(r.Job.DumpFolder)
	require.NoError(t, oerr)
	require.Equal(t, runs.Stopped, got.Last().Exit.Reason)
}

// Profiling a recipe leaves its run alone.
func TestProfile(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	r := recipe(t, data)
	var log bytes.Buffer
	res, dir, err := Profile(ctx, RunOptions{Recipe: r, Version: "test", Out: &log}, 1, 2)
	require.NoError(t, err, "%s", log.String())
	require.EqualValues(t, 3, res.Step)
	got := timeline(t, filepath.Join(dir, "step-00000003", "timeline.json"))
	for _, name := range []string{"data", "dispatch", "wait", "step"} {
		require.Equal(t, []int{2, 3}, got[name], name)
	}
	list, err := os.ReadDir(r.Job.DumpFolder)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, r.Checkpoint.Enable)

	// Steps that do not come cannot be traced.
	r.Training.Steps = 2
	_, _, err = Profile(ctx, RunOptions{Recipe: r, Version: "test", Out: &log}, 1, 2)
	require.EqualError(t, err, "train: training.steps is 2, and 1 before the 2 to trace are 3: trace fewer, or set training.steps to 3")
}

// Devices wait for a batch from when they had nothing left to do.
func TestIdle(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_800_000_000+int64(s), 0) }
	ended := func(s int) *Pending {
		p, when := &Pending{}, at(s)
		p.ended.Store(&when)
		return p
	}
	require.Equal(t, 10*time.Second, idle(nil, at(0), at(10)), "nothing is pending")
	require.Equal(t, 10*time.Second, idle([]*Pending{ended(-5)}, at(0), at(10)))
	require.Equal(t, 3*time.Second, idle([]*Pending{ended(0), ended(7)}, at(0), at(10)))
	require.Zero(t, idle([]*Pending{ended(20)}, at(0), at(10)))
}
