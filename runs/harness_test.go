package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/metrics"
)

// told gathers warnings of a writer.
type told struct {
	mu  sync.Mutex
	all []string
}

func (w *told) warn(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, fmt.Sprintf(format, args...))
}

func begin(t *testing.T, dir string, w *told) *Writer {
	t.Helper()
	out, err := Begin(Options{Dir: dir, Files: Files{Recipe: "recipe.toml", Metrics: "metrics.jsonl", Log: "log.txt"}, Titan: "v1", Go: "go", Warn: w.warn})
	require.NoError(t, err)
	return out
}

// kill ends the writer as if its process had been killed, just after it had written.
func (w *Writer) kill() {
	w.mu.Lock()
	w.closed = true
	close(w.lines)
	w.mu.Unlock()
	<-w.done
}

const recipeText = "[training]\nsteps = 8  # default\n[[data.sources]]\npath = \"a\"\nweight = 0.5\n[metrics]\nsave_json_file = \"metrics.jsonl\"\n"

// attempt writes what a process would that trains the steps after one up to another:
// a line for every step, each of which takes 2 seconds, and a validation at the end.
// Losses are the attempt's number and the step.
func attempt(t *testing.T, dir string, from, to int64, end *Exit) {
	t.Helper()
	var w told
	record := begin(t, dir, &w)
	rec, err := metrics.Open(metrics.DefaultConfig(), dir, metrics.Start{Step: from, Attempt: record.Number()}, w.warn)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "recipe.toml"), []byte(recipeText), 0o666))
	at := time.Now()
	for s := from + 1; s <= to; s++ {
		loss := float64(record.Number()) + float64(s)/100
		rec.Record((&metrics.Window{Step: s, Time: at, Steps: 1, Loss: loss, Seconds: 2, StepSeconds: []float64{2}, Rates: metrics.Rates{TPS: 10 * float64(s)}}).Event())
	}
	rec.Record((&metrics.Validation{Step: to, Time: at, Loss: 3}).Event())
	rec.Record((&metrics.Summary{LastStep: to}).Event(at))
	require.Empty(t, rec.Close())
	record.Update(func(r *Record, a *Attempt) {
		r.Retire(int(from))
		a.Began, a.ResumedFrom, a.RecipeSHA256 = true, from, "hash"
		a.Checkpoints = append(a.Checkpoints, Checkpoint{Step: to, Kept: true})
		n := int(to - from)
		a.Figures = metrics.Figures{
			Steps: n, FirstStep: from + 1, LastStep: to, All: metrics.Throughput{Steps: n, Seconds: 2 * float64(n)},
			Goodput: metrics.Goodput{Wall: 2*float64(n) + 1, Productive: 2 * float64(n), Lost: map[metrics.Kind]float64{metrics.Compile: 1}},
		}
	})
	_, err = fmt.Fprintf(record, "\x1b[31mstep: %d\x1b[39m\n", to)
	require.NoError(t, err)
	if end == nil { // it is killed
		record.kill()
		return
	}
	record.End(*end)
	record.End(Exit{Reason: Failed}) // too late: nothing
	require.Empty(t, w.all)
}

// twice is a run whose first process was killed at step 6, after a checkpoint of step 4,
// and which then went on to step 8.
func twice(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	attempt(t, dir, 0, 6, nil)
	attempt(t, dir, 4, 8, &Exit{Reason: Finished})
	return dir
}
