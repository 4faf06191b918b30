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
	"titan/checkpoint/storage"
	"titan/configs"
	"titan/data"
	"titan/internal/human"
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

// prepare does all that comes before the first step. What is cheap to check
// comes first: a run must not compile for minutes to find its data missing.
func (t *trainer) prepare(ctx context.Context, o RunOptions) error {
	r := t.recipe
	if o.identity == nil {
		o.identity, o.machine = Identity, openMachine
	}
	if err := t.join(ctx, o.identity); err != nil {
		return err
	}
	if err := t.openFolder(); err != nil {
		return err
	}
	if err := t.beginRecord(o); err != nil {
		return err
	}
	if r.Job.Description != "" {
		t.logf("%s", r.Job.Description)
	}
	if r.Job.PrintConfig {
		t.logf("%s", r.TOML(o.Origins))
	}
	if err := t.openStore(ctx, o); err != nil {
		return err
	}
	var err error
	if w := noTPU(r.Mesh.Platform, "/dev"); w != "" {
		t.logf("WARNING: %s", w)
	}
	t.machine, err = abandonable(ctx, func() (*Machine, error) { return o.machine(r, t.hosts.group) })
	if err != nil {
		return err
	}
	if t.options, err = OptionsFor(r, t.machine.Mesh, t.machine.Platform()); err != nil {
		return err
	}
	if t.budget, err = t.checkRemat(); err != nil {
		return err
	}
	if err := t.openData(); err != nil {
		return err
	}
	if err := t.sameRun(ctx, o.Version); err != nil {
		return err
	}
	if r.Validation.Enable {
		if t.eval, err = t.openValidation(); err != nil {
			return err
		}
	}
	peak, err := r.Metrics.Peak(t.machine.Client.Devices()[0].Kind)
	if err != nil {
		return err
	}
	t.meter = metrics.NewMeter(metrics.MeterOptions{
		Devices: t.machine.Mesh.Size(), LogFreq: r.Metrics.LogFreq,
		Flops: metrics.ShapeOf(&t.options.Model).FlopsPerToken(r.Training.SeqLen), Peak: peak,
		PartialAttention: r.Data.IsolateDocuments, Quantized: r.Quantize.Linear.Float8.Enable,
		Warmup: r.Metrics.Cold, Steps: t.lastStep(), Start: t.began,
	})
	if t.step, err = BuildStep(t.options); err != nil {
		return err
	}
	t.recordMachine(peak)
	for _, line := range describe(t.options, t.step.Plan) {
		t.logf("%s", line)
	}
	if t.rows, err = t.rowsHere(t.step.Batch[0]); err != nil {
		return err
	}
	first, err := t.checkStart(ctx)
	if err != nil {
		return err
	}
	if err := t.keepRecipe(o); err != nil {
		return err
	}
	if err := t.openRecorder(first); err != nil {
		return err
	}
	if err := t.compile(ctx); err != nil {
		return err
	}
	if err := t.samePrograms(ctx); err != nil {
		return err
	}
	resume := t.meter.Pause(metrics.Restore)
	err = t.start(ctx)
	resume()
	if err != nil {
		return err
	}
	t.recordStart()
	if t.progress.Step != first {
		t.recorder.Close() // damage was found, and an earlier checkpoint used
		if err := t.openRecorder(t.progress.Step); err != nil {
			return err
		}
	}
	return t.ready(ctx)
}

// openRecorder opens the files of the metrics, to go on after a step.
func (t *trainer) openRecorder(step int64) (err error) {
	c := t.recipe.Metrics
	if !t.hosts.leads() {
		c.EnableJSON, c.EnableTensorboard, c.Prometheus = false, false, ""
	}
	start := metrics.Start{Step: step, Attempt: t.record.Number()}
	t.recorder, err = metrics.Open(c, t.recipe.Job.DumpFolder, start, t.warnf)
	return err
}

// compile makes the programs.
func (t *trainer) compile(ctx context.Context) (err error) {
	defer t.meter.Pause(metrics.Compile)()
	began := time.Now()
	if err = t.compileStep(ctx); err != nil {
		return err
	}
	t.logf("%s", compileNote(t.exe, time.Since(began)))
	t.recordProgram(t.exe, time.Since(began))
	if m, err := t.exe.Exe.MemoryStats(); err == nil {
		t.logf("compiled: arguments %s, of which %s are updated in place, temporaries %s a device", human.Memory(m.Args), human.Memory(m.Alias), human.Memory(m.Temp))
	}
	if t.eval == nil {
		return nil
	}
	began = time.Now()
	if t.eval.step, err = buildEval(t.step.Plan, t.eval.options); err != nil {
		return err
	}
	if t.eval.rows, err = t.rowsHere(t.eval.step.batch[0]); err != nil {
		return err
	}
	if t.eval.exe, err = t.compileOne(ctx, func() (*Compiled, error) { return t.machine.Compile(t.eval.step.module) }); err != nil {
		return err
	}
	t.logf("%s", compileNote(t.eval.exe, time.Since(began)))
	t.recordProgram(t.eval.exe, time.Since(began))
	return nil
}

func (t *trainer) compileOne(ctx context.Context, f func() (*Compiled, error)) (*Compiled, error) {
	c, err := abandonable(ctx, f)
	t.abandoned = t.abandoned || errors.Is(err, errAbandoned)
	return c, err
}

// openFolder makes the run's folder and locks it.
func (t *trainer) openFolder() error {
	r := t.recipe
	if err := os.MkdirAll(r.Job.DumpFolder, 0o777); err != nil {
		return fmt.Errorf("job.dump_folder: %w", err)
	}
	fs, err := storage.Local(r.Job.DumpFolder)
	if err != nil {
		return fmt.Errorf("job.dump_folder: %w", err)
	}
	if !t.hosts.leads() {
		return nil
	}
	if t.lock, err = fs.Lock(configs.RunLock); err != nil && !errors.Is(err, storage.ErrNoLocks) {
		if errors.Is(err, storage.ErrLocked) {
			err = fmt.Errorf("another run writes there: %w", err)
		}
		return fmt.Errorf("job.dump_folder: %w", err)
	}
	return nil
}

// keepRecipe puts the resolved recipe into the run's folder.
func (t *trainer) keepRecipe(o RunOptions) error {
	r := t.recipe
	if r.Job.SaveConfigFile == "" || !t.hosts.leads() {
		return nil
	}
	fs, err := storage.Local(r.Job.DumpFolder)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(filepath.Join(r.Job.DumpFolder, r.Job.SaveConfigFile)), 0o777)
	}
	if err == nil {
		err = storage.Replace(fs, filepath.ToSlash(r.Job.SaveConfigFile), []byte(r.TOML(o.Origins)))
	}
	if err != nil {
		return fmt.Errorf("job.save_config_file: %w", err)
	}
	return nil
}

func (t *trainer) openStore(ctx context.Context, o RunOptions) error {
	c := t.recipe.Checkpoint
	if !c.Enable {
		return nil
	}
	dir := c.Folder
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(t.recipe.Job.DumpFolder, dir)
	}
	fs, err := storage.Local(dir)
	if err != nil {
		return fmt.Errorf("checkpoint.folder: %w", err)
	}
	t.store, err = checkpoint.NewStore(fs, checkpoint.Options{
		KeepLatest: c.KeepLast, Group: t.hosts.members(), Recipe: t.recipe.Hash(), Creator: map[string]string{"titan": o.Version},
	})
	if err != nil {
		return fmt.Errorf("checkpoint.folder: %w", err)
	}
	for _, n := range t.store.Notes() {
		t.logf("note: %s", n)
	}
	if c.AsyncMode == "async" {
		t.saver = t.store.NewSaver(context.WithoutCancel(ctx), t.reportSave)
	}
	return nil
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
