package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/checkpoint"
	"titan/data/indexed"
	"titan/sharding"
)

// long is set for the sweeps that take minutes: TITAN_LONG=1.
var long = os.Getenv("TITAN_LONG") != ""

// compiled is where the runs of these tests keep their programs.
var compiled = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "titan-cmd-test-") })

const trainRecipe = `
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
steps = 120
mixed_precision_param = "float32"
[activation_checkpoint]
mode = "none"
[checkpoint]
enable = true
interval = 1
keep_latest_k = 2
[metrics]
log_freq = 1
`

// trainRun is a run's folder and recipe.
type trainRun struct {
	recipe, out string
	cache       string
}

func newTrainRun(t *testing.T) *trainRun {
	t.Helper()
	dir := t.TempDir()
	r := &trainRun{recipe: filepath.Join(dir, "run.toml"), out: filepath.Join(dir, "out")}
	var err error
	r.cache, err = compiled()
	require.NoError(t, err)
	w, err := indexed.Create(filepath.Join(dir, "tokens"), indexed.Uint16, false)
	require.NoError(t, err)
	defer w.Abort()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		doc := make([]int32, 5+rng.IntN(60))
		for i := range doc {
			doc[i] = int32(rng.IntN(64))
		}
		require.NoError(t, w.Append(doc))
	}
	_, err = w.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	require.NoError(t, os.WriteFile(r.recipe, fmt.Appendf(nil, trainRecipe, r.out, filepath.Join(dir, "tokens")), 0o666))
	return r
}

// child is a process that trains.
type child struct {
	*exec.Cmd
	t      *testing.T
	lines  *bufio.Scanner
	stdout *os.File // the read end
	write  *os.File // the write end, if kept
	stderr bytes.Buffer
	log    strings.Builder
}

// start starts `titan train` as a process of its own: this program, see TestMain.
func (r *trainRun) start(t *testing.T, set ...string) *child {
	t.Helper()
	args := []string{"train", "--config", r.recipe}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	c := &child{Cmd: exec.Command(os.Args[0], args...), t: t}
	c.Env = append(os.Environ(), "TITAN_COMPILE_CACHE="+r.cache)
	if !long { // code that is compiled in a third of the time
		c.Env = append(c.Env, "XLA_FLAGS=--xla_backend_optimization_level=0")
	}
	var err error
	c.stdout, c.write, err = os.Pipe()
	require.NoError(t, err)
	c.Stdout, c.Stderr = c.write, &c.stderr
	require.NoError(t, c.Start())
	c.lines = bufio.NewScanner(c.stdout)
	t.Cleanup(func() {
		_ = c.Process.Kill() // after a failure
		_ = c.stdout.Close()
		_ = c.write.Close()
	})
	return c
}

// next returns the next line of the log, or false at its end.
func (c *child) next() (string, bool) {
	if !c.lines.Scan() {
		return "", false
	}
	c.log.WriteString(c.lines.Text() + "\n")
	return c.lines.Text(), true
}

// until reads the log until a line has the text.
func (c *child) until(text string) string {
	c.t.Helper()
	for {
		line, ok := c.next()
		if !ok {
			require.Fail(c.t, "the log ended", "before %q:\n%s%s", text, c.log.String(), c.stderr.String())
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

// signal asks the process to end.
func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.Process.Signal(s))
}

// end reads the rest of the log and returns how the process ended.
func (c *child) end() (code int, log, stderr string) {
	c.t.Helper()
	_ = c.write.Close() // ours; the log ends with the process
	for {
		if _, ok := c.next(); !ok {
			break
		}
	}
	_ = c.Wait()
	return c.ProcessState.ExitCode(), c.log.String(), c.stderr.String()
}

// stepLines returns what the log says of each step's loss and gradient.
func stepLines(log string) map[int]string {
	out := map[int]string{}
	for line := range strings.Lines(log) {
		var n int
		if _, err := fmt.Sscanf(line, "step: %d", &n); err == nil {
			out[n], _, _ = strings.Cut(line, "memory")
		}
	}
	return out
}

// state reads all of a checkpoint of the run.
func (r *trainRun) state(t *testing.T, step int) map[string]string {
	t.Helper()
	f, err := checkpoint.OpenFolder(filepath.Join(r.out, "checkpoint"))
	require.NoError(t, err)
	c, err := f.Open(step)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Verify(context.Background()))
	out := map[string]string{}
	for _, e := range c.Entries() {
		raw := make([]byte, e.Bytes())
		require.NoError(t, c.ReadRegion(e.Name, sharding.Whole(e.Shape), raw))
		out[e.Name] = string(raw)
	}
	out["train"] = string(c.Manifest().State["train"])
	return out
}

// killInSave kills a process shortly after it has begun to save, until done is
// closed.
func (r *trainRun) killInSave(p *os.Process, rng *rand.Rand, done <-chan struct{}) {
	skip, after := rng.IntN(3), time.Duration(rng.IntN(12000))*time.Microsecond
	last := ""
	for {
		select {
		case <-done:
			return
		default:
		}
		writing, _ := filepath.Glob(filepath.Join(r.out, "checkpoint", ".titan-step-*.tmp"))
		if len(writing) > 0 && writing[0] != last {
			if last = writing[0]; skip == 0 {
				time.Sleep(after)
				_ = p.Kill()
				return
			}
			skip--
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// A run that saves after every step is killed over and over, as by the kernel,
// at random moments, most of them during a save. What it said was saved is there, whole; the next process
// goes on from it; and every loss and the final state are those of the run that
// was left alone.
func TestTrainKilled(t *testing.T) {
	rounds, steps := 12, 60
	if long {
		rounds, steps = 100, 600
	}
	all := fmt.Sprint("training.steps=", steps)
	r, alone := newTrainRun(t), newTrainRun(t)
	code, log, stderr := alone.start(t, all, "checkpoint.interval=1000").end()
	require.Zero(t, code, "%s%s", log, stderr)
	want := stepLines(log)
	require.Len(t, want, steps)

	rng := rand.New(rand.NewPCG(3, 4))
	inSave, last, done := 0, 0, false
	for round := 0; round < rounds && !done; round++ {
		mode := []string{"disabled", "async"}[round%2]
		c := r.start(t, all, "checkpoint.async_mode="+mode)
		// Not a timed assertion: any moment will do.
		var stop func()
		if round%4 == 3 { // while it loads its program, restores, or trains
			c.until("a step: ")
			timer := time.AfterFunc(time.Duration(rng.IntN(1000))*time.Millisecond, func() { _ = c.Process.Kill() })
			stop = func() { timer.Stop() }
		} else {
			c.until("loss:")
			ended := make(chan struct{})
			go r.killInSave(c.Process, rand.New(rand.NewPCG(5, uint64(round))), ended)
			stop = func() { close(ended) }
		}
		code, log, stderr := c.end()
		stop()
		done = code == 0
		require.True(t, done || code == -1, "the run failed by itself: %s%s", log, stderr)
		for n, line := range stepLines(log) {
			require.Equal(t, want[n], line, "round %d", round)
		}
		if last > 0 && strings.Contains(log, "loss:") {
			require.Contains(t, log, "resumed from ", "round %d", round)
		}
		acked := 0
		for line := range strings.Lines(log) {
			if at := strings.Index(line, "step-"); at >= 0 && strings.HasPrefix(line, "saved ") {
				_, err := fmt.Sscanf(line[at:], "step-%d", &acked)
				require.NoError(t, err)
			}
		}
		left, err := filepath.Glob(filepath.Join(r.out, "checkpoint", ".titan-step-*"))
		require.NoError(t, err)
		if len(left) > 0 {
			inSave++
		}
		f, err := checkpoint.OpenFolder(filepath.Join(r.out, "checkpoint"))
		require.NoError(t, err)
		step, err := f.Verify(context.Background(), checkpoint.Latest)
		if last == 0 && acked == 0 && err != nil {
			continue // nothing was ever saved
		}
		require.NoError(t, err, "round %d", round)
		require.GreaterOrEqual(t, step, max(acked, last), "round %d: the checkpoint of step %d was acknowledged", round, max(acked, last))
		last = step
	}
	t.Logf("%d of %d kills came during a save; step %d was reached", inSave, rounds, last)
	require.Positive(t, inSave)
	require.Positive(t, last)
	code, log, stderr = r.start(t, all).end()
	require.Zero(t, code, "%s%s", log, stderr)
	for n, line := range stepLines(log) {
		require.Equal(t, want[n], line)
	}
	require.Equal(t, alone.state(t, steps), r.state(t, steps))
	left, err := filepath.Glob(filepath.Join(r.out, "checkpoint", ".titan-step-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// SIGTERM and SIGINT end a run after a step and a save, each with its exit code;
// the same command goes on.
func TestTrainSignals(t *testing.T) {
	r := newTrainRun(t)
	set := []string{"checkpoint.interval=1000", "training.steps=100000000", "training.max_norm=0.5"}
	c := r.start(t, set...)
	c.until("step:  3 ")
	c.signal(syscall.SIGTERM)
	code, log, stderr := c.end()
	require.Equal(t, codePreempted, code, "%s%s", log, stderr)
	require.Contains(t, log, "terminated: ending after step ")
	require.Contains(t, log, "\nsaved ")
	require.Contains(t, stderr, "titan: preempted after step ")
	require.Contains(t, stderr, "the same command goes on from there")

	c = r.start(t, set...)
	c.until("resumed from ")
	c.until("loss: ")
	c.signal(syscall.SIGINT)
	code, log, stderr = c.end()
	require.Equal(t, codeInterrupted, code, "%s%s", log, stderr)
	require.Contains(t, log, "interrupt: ending after step ")
	require.Contains(t, stderr, "titan: interrupted after step ")

	if !signal.Ignored(syscall.SIGHUP) { // as under nohup, where nobody wants it to end
		c = r.start(t, set...)
		c.until("loss: ")
		c.signal(syscall.SIGHUP)
		code, log, stderr = c.end()
		require.Equal(t, codeHangUp, code, "%s%s", log, stderr)
		require.Contains(t, log, "hangup: ending after step ")
		require.Contains(t, stderr, "titan: hung up after step ")
	}

	// Ctrl-C ends what reads the log as well: `titan train | tee log`.
	c = r.start(t, set...)
	var step int
	_, err := fmt.Sscanf(c.until("loss:"), "step: %d", &step)
	require.NoError(t, err)
	require.NoError(t, c.stdout.Close())
	_ = c.write.Close()
	c.signal(syscall.SIGINT)
	_ = c.Wait()
	require.Equal(t, codeInterrupted, c.ProcessState.ExitCode(), "%s", c.stderr.String())
	r.state(t, checkpoint.Latest) // whole
	folder, err := checkpoint.OpenFolder(filepath.Join(r.out, "checkpoint"))
	require.NoError(t, err)
	last, err := folder.Open(checkpoint.Latest)
	require.NoError(t, err)
	require.GreaterOrEqual(t, last.Step(), step)
	require.NoError(t, last.Close())

	// A second signal ends it at once: here it cannot end by itself, as nobody
	// reads its log.
	c = r.start(t, set...)
	c.until("loss: ")
	// A way of our own into the pipe, as the process's must go on to block.
	full, err := syscall.Open(fmt.Sprintf("/proc/self/fd/%d", c.write.Fd()), syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("needs /proc")
	}
	defer syscall.Close(full)
	for err == nil {
		_, err = syscall.Write(full, []byte{'\n'})
	}
	require.Equal(t, syscall.EAGAIN, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for sent := 0; ; sent++ {
		select {
		case <-ended:
			require.GreaterOrEqual(t, sent, 2)
			status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, ok)
			require.True(t, status.Signaled(), "%v", c.ProcessState)
			require.Equal(t, syscall.SIGTERM, status.Signal())
			return
		case <-tick.C:
			_ = c.Process.Signal(syscall.SIGTERM)
		}
	}
}

// A signal while the program is compiled: there is nothing to wait for.
func TestTrainSignalWhileCompiling(t *testing.T) {
	r := newTrainRun(t)
	r.cache = t.TempDir()
	c := r.start(t)
	c.until("a step: ")
	c.signal(syscall.SIGTERM)
	code, log, stderr := c.end()
	require.Equal(t, codePreempted, code, "%s%s", log, stderr)
	require.Contains(t, log, "terminated before the first step: there is nothing to save")
	require.NotContains(t, log, "compiled in")
	require.Contains(t, stderr, "titan: preempted before the first step; the same command starts again")
}

// Mistakes end the command with 1 and a line that says what to do.
func TestTrainMistakes(t *testing.T) {
	r := newTrainRun(t)
	for _, c := range []struct{ set, says string }{
		{"training.dataset_path=" + filepath.Join(r.out, "none"), "none.idx"},
		{"training.stesp=3", `unknown key; did you mean "steps"?`},
	} {
		code, _, stderr := r.start(t, c.set).end()
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "titan: ")
		require.Contains(t, stderr, c.says)
	}
	code, _, stderr := titan(t, "train")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "--config")
	c := r.start(t, "checkpoint.interval=1000", "training.steps=100000000", "training.max_norm=0.5")
	c.until("step:  1 ")
	code, log, stderr := r.start(t).end()
	require.Equal(t, 1, code, "%s", log)
	require.Contains(t, stderr, "titan: job.dump_folder: another run writes there: ")
	require.Contains(t, stderr, fmt.Sprintf("process %d on ", c.Process.Pid))
	require.NoError(t, c.Process.Kill())
	c.end()
}
