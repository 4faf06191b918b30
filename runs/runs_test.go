package runs

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/metrics"
)

func TestRun(t *testing.T) {
	dir := twice(t)
	r, warnings, err := Open(dir)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Len(t, r.Record.ID, 16)
	require.Len(t, r.Record.Attempts, 2)
	first, last := r.Record.Attempts[0], r.Last()
	require.Nil(t, first.Exit)
	require.Equal(t, Killed, first.Reason(time.Now().Add(time.Hour)))
	require.Equal(t, Running, first.Reason(first.LastSeen.Add(time.Second)))
	require.Equal(t, Finished, last.Reason(time.Now()))
	require.Equal(t, last.Exit.Time, last.LastSeen)
	require.Equal(t, filepath.Base(dir), r.Name())
	require.False(t, last.Checkpoints[0].Step == 4)
	require.True(t, last.Checkpoints[0].Kept)

	// The second process did steps 5 and 6 again: its own count.
	var steps []int64
	var losses []float64
	for _, p := range r.Train {
		steps, losses = append(steps, p.Step), append(losses, p.Values["loss_metrics/global_avg_loss"])
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8}, steps)
	require.Equal(t, []float64{1.01, 1.02, 1.03, 1.04, 2.05, 2.06, 2.07, 2.08}, losses)
	require.Len(t, r.Superseded, 3, "two steps and a validation")
	require.Len(t, r.Validation, 1)
	require.EqualValues(t, 8, r.Validation[0].Step)
	require.Len(t, r.Summaries, 2)
	require.Equal(t, []float64{2, 2, 2, 2, 2, 2}, r.StepSeconds(1), "the first of each attempt is left out")

	g := r.Goodput()
	require.InDelta(t, 4, g.Lost[metrics.Repeated], 1e-9)
	require.InDelta(t, 2, g.Lost[metrics.Compile], 1e-9)
	require.InDelta(t, 16, g.Productive, 1e-9)
	sum := g.Productive
	for _, x := range g.Lost {
		sum += x
	}
	require.InDelta(t, g.Wall, sum, 1e-6)

	require.Equal(t, map[string]any{
		"training.steps": int64(8), "data.sources[0].path": "a", "data.sources[0].weight": 0.5, "metrics.save_json_file": "metrics.jsonl",
	}, r.Recipe)
	require.Equal(t, recipeText, r.RecipeText)

	log, err := os.ReadFile(filepath.Join(dir, "log.txt"))
	require.NoError(t, err)
	require.Regexp(t, `^=== attempt 1, \S+, titan v1\nstep: 6\n=== attempt 2, \S+, titan v1\nstep: 8\n$`, string(log))

	// A finished run that is started again, and finds nothing to do, has lost nothing.
	again := begin(t, dir, &told{})
	again.Update(func(_ *Record, a *Attempt) { a.Began, a.ResumedFrom = true, 8 })
	time.Sleep(time.Millisecond)
	again.End(Exit{Reason: Finished})
	r, _, err = Open(dir)
	require.NoError(t, err)
	require.Len(t, r.Record.Attempts, 3)
	require.Equal(t, 2, r.Trained().Number)
	require.Equal(t, g, r.Goodput())
	require.Len(t, r.Train, 8)
	// One that begins anew in the folder is another run.
	attempt(t, dir, 0, 2, &Exit{Reason: Finished})
	r, _, err = Open(dir)
	require.NoError(t, err)
	require.Len(t, r.Train, 2)
	require.InDelta(t, 4, r.Goodput().Productive, 1e-9)
	require.Zero(t, r.Goodput().Lost[metrics.Repeated])
}

// What a killed process did after it wrote its record last is in the metrics.
func TestCatchingUp(t *testing.T) {
	dir := t.TempDir()
	attempt(t, dir, 0, 6, nil)
	path := filepath.Join(dir, "run.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var old Record
	require.NoError(t, json.Unmarshal(raw, &old))
	f := &old.Attempts[0].Figures
	f.Steps, f.LastStep, f.All = 2, 2, metrics.Throughput{Steps: 2, Seconds: 4, TPS: 15}
	f.Goodput = metrics.Goodput{Wall: 5, Productive: 4, Lost: map[metrics.Kind]float64{metrics.Compile: 1}}
	raw, err = json.Marshal(old)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o666))
	r, _, err := Open(dir)
	require.NoError(t, err)
	got := r.Trained().Figures
	require.EqualValues(t, 6, got.LastStep)
	require.Equal(t, 6, got.All.Steps)
	require.InDelta(t, 35, got.All.TPS, 1e-9, "the mean of 10 to 60")
	require.InDelta(t, 12, got.Goodput.Productive, 1e-9)
	require.InDelta(t, 1.06, float64(got.LastLoss), 1e-9)
	// And so the steps that the next one does again are known.
	attempt(t, dir, 4, 8, &Exit{Reason: Finished})
	r, _, err = Open(dir)
	require.NoError(t, err)
	require.InDelta(t, 4, r.Goodput().Lost[metrics.Repeated], 1e-9)
}

func TestNoRun(t *testing.T) {
	dir := t.TempDir()
	_, _, err := Open(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "none")
	_, _, err = Open(dir)
	require.ErrorContains(t, err, "is no run: it has no run.json, no recipe.toml and no metrics.jsonl")
	file := filepath.Join(dir, "notes")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, _, err = Open(file)
	require.ErrorContains(t, err, "is no folder")
}

// A folder from before there was a record has its attempts in the metrics.
func TestNoRecord(t *testing.T) {
	dir := twice(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "run.json")))
	r, warnings, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, "[run.json: is missing]", strings.ReplaceAll(asText(warnings), "\n", ""))
	require.Len(t, r.Train, 8)
	require.Len(t, r.Record.Attempts, 2)
	require.EqualValues(t, 4, r.Record.Attempts[1].ResumedFrom)
	// The next process goes on with it.
	attempt(t, dir, 6, 9, &Exit{Reason: Stopped})
	r, warnings, err = Open(dir)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Len(t, r.Record.Attempts, 3)
	require.Len(t, r.Train, 9)
	require.Equal(t, 3, r.Train[8].Attempt)
}

func asText(w []Warning) string {
	var s []string
	for _, x := range w {
		s = append(s, x.String())
	}
	return "[" + strings.Join(s, "\n") + "]"
}

// Cutting a file off nearly anywhere costs a warning that names it, and what was cut.
func TestCutAnywhere(t *testing.T) {
	dir := twice(t)
	for _, name := range []string{"run.json", "metrics.jsonl", "recipe.toml", "log.txt"} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		for cut := range len(whole) {
			if cut%17 != 0 && cut < len(whole)-3 && whole[max(cut-1, 0)] != '\n' {
				continue // nearly anywhere
			}
			require.NoError(t, os.WriteFile(path, whole[:cut], 0o666))
			r, warnings, err := Open(dir)
			require.NoError(t, err, "%s at %d", name, cut)
			require.Len(t, r.Record.Attempts, 2)
			_ = r.Goodput()
			named := strings.Contains(asText(warnings), name+":")
			switch name {
			case "metrics.jsonl":
				require.Equal(t, cut > 0 && whole[cut-1] != '\n', named, "at %d: %v", cut, warnings)
			case "run.json":
				require.Equal(t, cut < len(whole)-1, named, "at %d: %v", cut, warnings)
			}
			if name != "metrics.jsonl" {
				require.Len(t, r.Train, 8)
			}
		}
		require.NoError(t, os.WriteFile(path, whole, 0o666))
	}
}

// Wrong bytes anywhere never fail, and lines that are no records are named.
func TestDamage(t *testing.T) {
	dir := twice(t)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 100 {
		name := []string{"run.json", "metrics.jsonl", "recipe.toml"}[rng.IntN(3)]
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		bad := append([]byte(nil), whole...)
		for range 1 + rng.IntN(8) {
			bad[rng.IntN(len(bad))] = byte(rng.IntN(256))
		}
		require.NoError(t, os.WriteFile(path, bad, 0o666))
		r, _, err := Open(dir)
		require.NoError(t, err)
		_, _ = r.Goodput(), r.StepSeconds(0)
		require.NoError(t, os.WriteFile(path, whole, 0o666))
	}
}

func TestOddLines(t *testing.T) {
	dir := t.TempDir()
	lines := []string{
		`{"kind":"start","step":0,"time":"2027-01-15T08:00:00Z","attempt":1}`,
		`nonsense`, `[]`, `{"kind":"train"}`, `{"kind":"train","step":1.5,"time":"2027-01-15T08:00:00Z"}`, `{"kind":"train","step":-1,"time":"2027-01-15T08:00:00Z"}`,
		`{"kind":"train","step":1,"time":"soon"}`, `{"step":1}`,
		`{"kind":"train","step":1,"time":"2027-01-15T08:00:00Z","loss_metrics/global_avg_loss":null,"moe/expert_tokens":[1,null]} {}`,
		`{"kind":"train","step":1,"time":"2027-01-15T08:00:00Z","grad_norm":null,"moe/expert_tokens":[1,null]}`,
		`{"kind":"of a later titan","step":1,"time":"2027-01-15T08:00:00Z"}`,
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o666))
	r, warnings, err := Open(dir)
	require.NoError(t, err)
	require.Len(t, r.Train, 1)
	require.True(t, math.IsNaN(r.Train[0].Values["grad_norm"]))
	require.Equal(t, 1., r.Train[0].Lists["moe/expert_tokens"][0])
	require.True(t, math.IsNaN(r.Train[0].Lists["moe/expert_tokens"][1]))
	text := asText(warnings)
	require.Contains(t, text, "metrics.jsonl:2: is left out: it is no JSON object")
	require.Contains(t, text, "metrics.jsonl: 3 more lines are left out")
}

// What a record says is not believed where it cannot be.
func TestOddRecord(t *testing.T) {
	for text, want := range map[string]string{
		`{"schema":1,"attempts":[null,{"number":7,"resumed_from":-3}]}`: "attempt 1 has the number 7",
		`{"schema":9}`: "has schema 9, this titan knows 1",
		`{"schema":1,"files":{"metrics":"../../etc/passwd"}}`: `names the file "../../etc/passwd", which is not in the folder`,
		`{"schema":1,"attempts":3}`:                           "is damaged and left out",
	} {
		dir := twice(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "run.json"), []byte(text), 0o666))
		r, warnings, err := Open(dir)
		require.NoError(t, err)
		require.Contains(t, asText(warnings), want)
		for _, a := range r.Record.Attempts {
			require.NotNil(t, a)
		}
		_ = r.Goodput()
	}
}

// A damaged record is put aside when the run goes on; one of a later titan is not
// touched.
func TestBeginOverDamage(t *testing.T) {
	dir := twice(t)
	path := filepath.Join(dir, "run.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"schema":1,`), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "log.txt"), []byte("begun"), 0o666))
	var w told
	record := begin(t, dir, &w)
	require.Len(t, w.all, 1)
	require.Contains(t, w.all[0], "is damaged: it is kept as run.json.damaged")
	require.Equal(t, 3, record.Number())
	record.End(Exit{Reason: Failed, Message: "why"})
	aside, err := os.ReadFile(path + ".damaged")
	require.NoError(t, err)
	require.Equal(t, `{"schema":1,`, string(aside))
	var r Record
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	require.Len(t, r.Attempts, 3)
	require.Equal(t, "why", r.Attempts[2].Exit.Message)
	require.NotNil(t, r.Attempts[2].Programs, "lists are lists, for other readers")
	log, err := os.ReadFile(filepath.Join(dir, "log.txt"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(log), "begun\n=== attempt 3"), "%s", log)

	later := []byte(`{"schema":2}`)
	require.NoError(t, os.WriteFile(path, later, 0o666))
	_, err = Begin(Options{Dir: dir, Warn: w.warn})
	require.ErrorContains(t, err, "has schema 2, of a later titan")
	raw, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, later, raw)
}

// A disk that fails while the run goes on is told once, and the run goes on.
func TestFailingDisk(t *testing.T) {
	dir := t.TempDir()
	var w told
	record := begin(t, dir, &w)
	// A directory that is not empty cannot be replaced by a file.
	require.NoError(t, os.Remove(filepath.Join(dir, "run.json")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "run.json", "x"), 0o777))
	for range 3 {
		record.Update(func(_ *Record, a *Attempt) { a.Source = "new" })
		require.Error(t, record.save())
	}
	record.End(Exit{Reason: Finished})
	require.Len(t, w.all, 1)
	require.Contains(t, w.all[0], "run.json is not written: ")
	n, err := record.Write([]byte("too late"))
	require.NoError(t, err)
	require.Equal(t, 8, n)
}
