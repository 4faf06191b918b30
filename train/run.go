package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"titan/checkpoint"
	"titan/configs"
	"titan/data"
	"titan/launch"
	"titan/metrics"
	"titan/pjrt"
	"titan/runs"
)

// RunOptions say what is trained and who watches.
type RunOptions struct {
	Recipe  *configs.Recipe
	Origins *configs.Origins // for the copy of the recipe; may be nil
	Version string           // of titan, for checkpoints
	Out     io.Writer        // the log; written to by one goroutine at a time
	Colour  bool
	// Stop ends the run after the step under way and a save; on all hosts, if there
	// are several. May be nil.
	Stop <-chan os.Signal
	// LastStep ends the run after that step; 0: after the recipe's last.
	LastStep int64

	// For tests: where this process stands, and the devices there are; nil: by the
	// environment and the plugin.
	identity func(ctx context.Context, platform string) (launch.Identity, error)
	machine  func(*configs.Recipe, *launch.Group) (*Machine, error)
}

// Result tells how a run ended.
type Result struct {
	Step    int64            // steps done, by this process and those before
	Stopped os.Signal        // nil if all steps were done
	Saved   bool             // there is a checkpoint to go on from
	Summary *metrics.Summary // nil if the run was stopped before its first step
}

// Preempted reports whether the run was asked to leave the machine.
func (r *Result) Preempted() bool { return r.Stopped == syscall.SIGTERM }

// trainer is a run.
type trainer struct {
	recipe  *configs.Recipe
	out     io.Writer
	colour  bool
	limit   int64     // the last step, if the recipe does not say; or 0
	began   time.Time // the process's work
	stop    *stopper
	hosts   hosts
	options StepOptions
	machine *Machine
	step    *Step
	exe     *Compiled
	state   *State
	budget  int64 // bytes of a device that a step may take; 0: whatever it takes
	// abandoned: a compilation was left alone and still uses the machine.
	abandoned bool

	lock     io.Closer // of the run's folder
	loader   *data.Loader
	rows     []int  // of the global batch that this process feeds; nil: all
	data     string // the loader's fingerprint
	store    *checkpoint.Store
	saver    *checkpoint.Saver
	progress progress
	source   string // of the parameters, for people
	restores bool   // the state is to come from a checkpoint, or weights

	record    *runs.Writer // of the run's folder
	figuresAt time.Time    // when it was last told how training goes
	meter     *metrics.Meter
	recorder  *metrics.Recorder
	profile   profiler
	eval      *validation
	skipped   float64 // updates, as the devices count them

	mu    sync.Mutex // guards out and saved: saves and metrics have goroutines
	saved int64      // the last step committed or resumed from, -1 for none
}

// errAbandoned is why a run was not set up: it was asked to end.
var errAbandoned = errors.New("train: stopped before the first step")

// Run trains what a recipe says, from wherever its checkpoints are to its last
// step or to a signal.
//
// If the signal comes before the first step Run returns at once. A compilation
// cannot be cancelled: it then goes on by itself, with the devices, until the
// process ends.
func Run(ctx context.Context, o RunOptions) (res *Result, err error) {
	t := &trainer{recipe: o.Recipe, out: o.Out, colour: o.Colour, limit: o.LastStep, saved: -1, began: time.Now(), stop: listen(o.Stop)}
	t.profile = profiler{c: o.Recipe.Profiling, dir: filepath.Join(o.Recipe.Job.DumpFolder, o.Recipe.Profiling.TracesFolder)}
	defer t.stop.close()
	defer t.close()
	err = errors.New("this is a bug: a panic") // unless it ends otherwise
	defer func() { t.endRecord(res, err) }()
	res, err = t.run(ctx, o)
	err = t.hosts.blame(err)
	if left := t.hosts.part(err); left != nil {
		t.logf(warning+"%v", left) // whatever it was, this process has ended well
	}
	return res, err
}

func (t *trainer) run(ctx context.Context, o RunOptions) (*Result, error) {
	setup, cancel := t.stop.context(ctx)
	err := t.prepare(setup, o)
	cancel()
	t.hosts.heard()
	if sig := t.stop.signal(); sig != nil && abandoned(err) {
		t.logf("%v before the first step: there is nothing to save", sig)
		return &Result{Step: t.progress.Step, Stopped: sig, Saved: t.savedStep() >= 0}, nil
	}
	if err != nil {
		return nil, lessMemory(err, "training")
	}
	stopped, err := t.loop(ctx)
	var bad *dataError
	if err != nil && (!errors.As(err, &bad) || t.hosts.group != nil) { // no host can go on without the others
		return nil, lessMemory(err, "training")
	}
	// Bad data is no reason to lose the steps before it.
	res, end := t.finish(ctx, stopped)
	if err := errors.Join(err, end); err != nil {
		return nil, err
	}
	return res, nil
}

// abandoned reports whether a run was not set up for no other reason than that it
// was asked to end: here, or on a host that is gone for it.
func abandoned(err error) bool {
	var gone *launch.Failure
	return errors.Is(err, errAbandoned) || errors.Is(err, context.Canceled) || errors.As(err, &gone)
}

// lessMemory adds to an error of a device's memory what takes less of it.
func lessMemory(err error, section string) error {
	var oom *pjrt.OutOfMemory
	if !errors.As(err, &oom) {
		return err
	}
	return fmt.Errorf("%w; a smaller %[2]s.local_batch_size or %[2]s.seq_len takes less memory, so does activation_checkpoint.mode = \"full\" in training, and parameters on more devices", err, section)
}

// warning begins lines of the log that are about this host, not about the run. A
// host that does not lead logs nothing else.
const warning = "WARNING: "

func (t *trainer) logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hosts.leads() && !strings.HasPrefix(format, warning) {
		return
	}
	line := fmt.Appendf(nil, format+"\n", args...)
	_, _ = t.out.Write(line) // who reads the log may end first
	_, _ = t.record.Write(line)
}

func (t *trainer) warnf(format string, args ...any) { t.logf(warning+format, args...) }

// lastStep is the last that this process is to do.
func (t *trainer) lastStep() int64 {
	last := int64(t.recipe.Training.Steps)
	if t.limit > 0 {
		last = min(last, t.limit)
	}
	return last
}

// finish saves what is not saved and sums up.
func (t *trainer) finish(ctx context.Context, stopped os.Signal) (*Result, error) {
	err := t.saveLast(context.WithoutCancel(ctx))
	sum := t.meter.Summary()
	t.recorder.Record(sum.Event(time.Now()))
	sum.Lost = t.recorder.Close()
	t.logf("%v", sum)
	if err != nil {
		return nil, err
	}
	return &Result{Step: t.progress.Step, Stopped: stopped, Saved: t.savedStep() >= 0, Summary: sum}, nil
}

// close frees whatever there is, in the order that plugins need.
func (t *trainer) close() {
	if t.recorder != nil {
		t.recorder.Close()
	}
	if t.saver != nil {
		_ = t.saver.Close()
	}
	if t.store != nil {
		_ = t.store.Close()
	}
	if t.loader != nil {
		_ = t.loader.Close()
	}
	if t.eval != nil {
		_ = t.eval.loader.Close()
	}
	if !t.hosts.lost { // else devices that wait for it would have us wait
		_ = t.profile.plug.Close()
		t.eval.close()
		t.state.Close()
		t.exe.Close()
		if t.machine != nil && !t.abandoned {
			t.machine.Close()
		}
	}
	if t.lock != nil {
		_ = t.lock.Close()
	}
}
