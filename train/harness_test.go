package train

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint"
	"titan/configs"
	"titan/data/indexed"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt/compilecache"
	"titan/sharding"
)

var ctx = context.Background()

// long is set for the sweeps that take minutes: TITAN_LONG=1.
var long = os.Getenv("TITAN_LONG") != ""

// TestMain gives the tests a compile cache of their own: each program is
// compiled once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "titan-train-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("TITAN_COMPILE_CACHE") == "" {
		os.Setenv("TITAN_COMPILE_CACHE", dir)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// virtual is a machine of as many virtual devices as a mesh has. What has been
// compiled is in the tests' cache.
func virtual(t testing.TB, m *mesh.Mesh) *Machine {
	t.Helper()
	client := xlatest.CPU(t)
	if m.Size() > xlatest.Devices {
		client = xlatest.CPUMany(t)
	}
	return &Machine{Client: client, Mesh: m, Cache: compilecache.OpenDefault()}
}

const vocab = 64

// documents makes n documents that something can be learnt from: a token mostly
// follows from the one before it.
func documents(seed uint64, n, shortest, longest int) [][]int32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([][]int32, n)
	for i := range out {
		doc := make([]int32, shortest+rng.IntN(longest-shortest+1))
		last := int32(rng.IntN(vocab))
		for j := range doc {
			if rng.IntN(4) == 0 {
				last = int32(rng.IntN(vocab))
			} else {
				last = (last*5 + 3) % vocab
			}
			doc[j] = last
		}
		out[i] = doc
	}
	return out
}

// dataset writes documents and returns the dataset's prefix.
func dataset(t testing.TB, docs ...[]int32) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "tokens")
	w, err := indexed.Create(prefix, indexed.Uint16, false)
	require.NoError(t, err)
	defer w.Abort()
	for _, d := range docs {
		require.NoError(t, w.Append(d))
	}
	_, err = w.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	return prefix
}

// tiny is a recipe whose programs compile in seconds: two layers of width 32, on
// 4 devices, with a checkpoint after every second of 6 steps.
const tiny = `
[job]
dump_folder = %q
[mesh]
platform = "cpu"
devices = 4
[model]
name = "llama3"
flavor = "debugmodel"
override = {vocab_size = 64, dim = 32, n_layers = 2, n_heads = 4, n_kv_heads = 2, head_dim = 8, hidden_dim = 48}
[training]
dataset_path = %q
local_batch_size = 1
seq_len = 16
steps = 6
mixed_precision_param = "float32"
[activation_checkpoint]
mode = "none"
[optimizer]
lr = 1e-2
[lr_scheduler]
warmup_steps = 2
[checkpoint]
enable = true
interval = 2
keep_latest_k = 0
[metrics]
log_freq = 1
`

// recipe loads the tiny recipe, with its own folder and the data, and overrides.
func recipe(t testing.TB, data string, set ...string) *configs.Recipe {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, tiny, filepath.Join(dir, "run"), data), 0o666))
	r, _, err := configs.Load(file, set)
	require.NoError(t, err)
	return r
}

// again returns a copy of a recipe, for another run in the same folder.
func again(r *configs.Recipe, change func(*configs.Recipe)) *configs.Recipe {
	c := *r
	if change != nil {
		change(&c)
	}
	return &c
}

// signalled is a Stop that holds a signal from the start.
func signalled(s os.Signal) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	c <- s
	return c
}

// at is a log that does something when a line of it has the text.
type at struct {
	bytes.Buffer
	text string
	do   func()
}

func (a *at) Write(p []byte) (int, error) {
	if a.text != "" && bytes.Contains(p, []byte(a.text)) {
		a.text = ""
		a.do()
	}
	return a.Buffer.Write(p)
}

// quickly has programs compiled in a third of the time; the code is slower.
func quickly(t testing.TB) {
	t.Helper()
	old := compileFlags
	compileFlags = xlatest.LittleEffort()
	t.Cleanup(func() { compileFlags = old })
}

// run trains and returns the log as well.
func run(t testing.TB, r *configs.Recipe) (*Result, string) {
	t.Helper()
	var log bytes.Buffer
	res, err := Run(ctx, RunOptions{Recipe: r, Version: "test", Out: &log})
	require.NoError(t, err, "%s", log.String())
	return res, log.String()
}

// runUntil trains until a line of the log has the text.
func runUntil(t testing.TB, r *configs.Recipe, text string) (*Result, string) {
	t.Helper()
	stop := make(chan os.Signal, 1)
	out := &at{text: text, do: func() { stop <- syscall.SIGTERM }}
	res, err := Run(ctx, RunOptions{Recipe: r, Version: "test", Out: out, Stop: stop})
	require.NoError(t, err, "%s", out.String())
	require.Empty(t, out.text, "the log never had the text: %s", out.String())
	return res, out.String()
}

// fails trains and returns the error, which must be there.
func fails(t testing.TB, r *configs.Recipe) (error, string) {
	t.Helper()
	var log bytes.Buffer
	_, err := Run(ctx, RunOptions{Recipe: r, Version: "test", Out: &log})
	require.Error(t, err, "%s", log.String())
	return err, log.String()
}

// record is a line of metrics.jsonl.
type record map[string]any

func (r record) number(t testing.TB, name string) float64 {
	t.Helper()
	x, ok := r[name].(float64)
	require.True(t, ok, "%s is %v in %v", name, r[name], r)
	return x
}

const (
	loss     = "loss_metrics/global_avg_loss"
	gradNorm = "grad_norm"
	evalLoss = "validation_metrics/loss"
)

// records returns the metrics of a kind in the folder of a run, by step; of
// equal steps the last counts.
func records(t testing.TB, r *configs.Recipe, kind string) map[int]record {
	t.Helper()
	f, err := os.Open(filepath.Join(r.Job.DumpFolder, r.Metrics.SaveJSONFile))
	require.NoError(t, err)
	defer f.Close()
	out := map[int]record{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var rec record
		require.NoError(t, json.Unmarshal(lines.Bytes(), &rec), "%s", lines.Text())
		if rec["kind"] == kind {
			out[int(rec.number(t, "step"))] = rec
		}
	}
	return out
}

// curve lists a figure of the steps 1 to n.
func curve(t testing.TB, r *configs.Recipe, name string, n int) []float64 {
	t.Helper()
	return curve2(t, r, name, 0, n)
}

// curve2 lists a figure of the steps after from, up to n.
func curve2(t testing.TB, r *configs.Recipe, name string, from, n int) []float64 {
	t.Helper()
	recs := records(t, r, "train")
	var out []float64
	for i := from + 1; i <= n; i++ {
		require.Contains(t, recs, i)
		out = append(out, recs[i].number(t, name))
	}
	return out
}

// folder opens the checkpoints of a run.
func folder(t testing.TB, r *configs.Recipe) *checkpoint.Folder {
	t.Helper()
	f, err := checkpoint.OpenFolder(filepath.Join(r.Job.DumpFolder, r.Checkpoint.Folder))
	require.NoError(t, err)
	return f
}

// steps lists the complete checkpoints of a run; there must be no others.
func steps(t testing.TB, r *configs.Recipe) []int {
	t.Helper()
	list, err := folder(t, r).List()
	require.NoError(t, err)
	var out []int
	for _, l := range list {
		require.NoError(t, l.Err)
		out = append(out, l.Step)
	}
	return out
}

// saved reads all of a checkpoint: every tensor as it lies in memory, and the
// trainer's state.
func saved(t testing.TB, r *configs.Recipe, step int) map[string][]byte {
	t.Helper()
	c, err := folder(t, r).Open(step)
	require.NoError(t, err)
	defer c.Close()
	out := map[string][]byte{}
	for _, e := range c.Entries() {
		out[e.Name] = make([]byte, e.Bytes())
		require.NoError(t, c.ReadRegion(e.Name, sharding.Whole(e.Shape), out[e.Name]))
	}
	for name, raw := range c.Manifest().State {
		out["state "+name] = raw
	}
	return out
}

// sameState requires two checkpoints to be the same bits.
func sameState(t testing.TB, want, got map[string][]byte, about string) {
	t.Helper()
	require.Len(t, got, len(want))
	for name, w := range want {
		if strings.HasPrefix(name, "state ") {
			require.JSONEq(t, string(w), string(got[name]), "%s: %s", about, name)
			continue
		}
		require.True(t, bytes.Equal(w, got[name]), "%s: %s differs", about, name)
	}
}

// requireNear requires two arrays to be equal up to an absolute difference.
func requireNear(t testing.TB, want, got []float32, most float64, about string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], got[i], most, "%s[%d]", about, i)
	}
}

func contains(s, text string) bool { return strings.Contains(s, text) }

// copyDir copies a folder of files.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o777))
	list, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range list {
		raw, err := os.ReadFile(filepath.Join(from, e.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), raw, 0o666))
	}
}
