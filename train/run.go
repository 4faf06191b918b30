package train

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"titan/checkpoint"
	"titan/checkpoint/storage"
	"titan/configs"
	"titan/data"
	"titan/metrics"
)

// RunOptions say what is trained and who watches.
type RunOptions struct {
	Recipe  *configs.Recipe
	Origins *configs.Origins // for the copy of the recipe; may be nil
	Version string           // of titan, for checkpoints
	Out     io.Writer        // the log
	Colour  bool
	// Stop ends the run after the step under way and a save. May be nil.
	Stop <-chan os.Signal
}

// Result tells how a run ended.
type Result struct {
	Step    int64
	Stopped os.Signal // nil if all steps were done
	Summary *metrics.Summary
}

// Preempted reports whether the run was asked to leave the machine.
func (r *Result) Preempted() bool { return r.Stopped == syscall.SIGTERM }

// trainer is a run.
type trainer struct {
	recipe  *configs.Recipe
	out     io.Writer
	colour  bool
	options StepOptions
	machine *Machine
	step    *Step
	exe     *Compiled
	state   *State

	loader   *data.Loader
	data     string // the loader's fingerprint
	store    *checkpoint.Store
	saver    *checkpoint.Saver
	saved    int64 // the last step saved or resumed from, -1 for none
	progress progress

	meter    *metrics.Meter
	recorder *metrics.Recorder
	eval     *validation
	skipped  float64
}

// Run trains what a recipe says, from wherever its checkpoints are to its last
// step or to a signal.
func Run(ctx context.Context, o RunOptions) (res *Result, err error) {
	t := &trainer{recipe: o.Recipe, out: o.Out, colour: o.Colour, saved: -1}
	defer t.close()
	if err := t.prepare(ctx, o); err != nil {
		return nil, err
	}
	stopped, err := t.loop(ctx, o.Stop)
	if err != nil {
		return nil, err
	}
	return t.finish(ctx, stopped)
}

func (t *trainer) logf(format string, args ...any) {
	fmt.Fprintf(t.out, format+"\n", args...)
}

// prepare does all that comes before the first step. What is cheap to check
// comes first: a run must not compile for minutes to find its data missing.
func (t *trainer) prepare(ctx context.Context, o RunOptions) error {
	r := t.recipe
	if r.Job.Description != "" {
		t.logf("%s", r.Job.Description)
	}
	if r.Job.PrintConfig {
		t.logf("%s", r.TOML(o.Origins))
	}
	if err := t.openFolder(o); err != nil {
		return err
	}
	if err := t.openData(); err != nil {
		return err
	}
	if err := t.openStore(ctx, o); err != nil {
		return err
	}
	var err error
	if t.machine, err = OpenMachine(r); err != nil {
		return err
	}
	if t.options, err = OptionsFor(r, t.machine.Mesh, Platform{CPU: t.machine.OnCPU}); err != nil {
		return err
	}
	if t.step, err = BuildStep(t.options); err != nil {
		return err
	}
	for _, line := range describe(t.options, t.step.Plan) {
		t.logf("%s", line)
	}
	for _, n := range t.options.Optimizer.Notes() {
		t.logf("note: %s", n)
	}
	peak, err := r.Metrics.Peak(t.machine.Client.Devices()[0].Kind)
	if err != nil {
		return err
	}
	t.meter = metrics.NewMeter(metrics.MeterOptions{
		Devices: t.machine.Mesh.Size(), LogFreq: r.Metrics.LogFreq,
		Flops: metrics.ShapeOf(&t.options.Model).FlopsPerToken(r.Training.SeqLen), Peak: peak,
		PartialAttention: r.Data.IsolateDocuments,
	})
	resume := t.meter.Pause(metrics.Compile)
	began := time.Now()
	t.exe, err = t.machine.Compile(t.step.Module)
	resume()
	if err != nil {
		return err
	}
	t.logf("%s", compileNote(t.exe, time.Since(began)))
	if m, err := t.exe.Exe.MemoryStats(); err == nil {
		t.logf("compiled: arguments %s, of which %s are updated in place, temporaries %s a device", mib(m.Args), mib(m.Alias), mib(m.Temp))
	}
	if r.Validation.Enable {
		if t.eval, err = t.openValidation(); err != nil {
			return err
		}
	}
	resume = t.meter.Pause(metrics.Restore)
	err = t.start(ctx)
	resume()
	if err != nil {
		return err
	}
	t.recorder, err = metrics.Open(r.Metrics, r.Job.DumpFolder, t.progress.Step, func(format string, args ...any) { t.logf("WARNING: "+format, args...) })
	return err
}

// openFolder makes the run's folder and puts the resolved recipe there.
func (t *trainer) openFolder(o RunOptions) error {
	r := t.recipe
	if err := os.MkdirAll(r.Job.DumpFolder, 0o777); err != nil {
		return fmt.Errorf("job.dump_folder: %w", err)
	}
	if r.Job.SaveConfigFile == "" {
		return nil
	}
	fs, err := storage.Local(r.Job.DumpFolder)
	if err == nil {
		err = storage.WriteFile(fs, r.Job.SaveConfigFile, []byte(r.TOML(o.Origins)))
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
		KeepLatest: c.KeepLast, Recipe: t.recipe.Hash(), Creator: map[string]string{"titan": o.Version},
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

// inFlight is how many steps the devices are given ahead of the metrics.
const inFlight = 2

// loop runs the steps. Metrics are read a step late, so that the devices always
// have the next step to go on with.
func (t *trainer) loop(ctx context.Context, stop <-chan os.Signal) (stopped os.Signal, err error) {
	r := t.recipe
	steps := int64(r.Training.Steps)
	if t.progress.Step >= steps {
		t.logf("nothing to do: %d of %d steps are done", t.progress.Step, steps)
		return nil, nil
	}
	batches := t.loader.Iterate(t.progress.Step, t.rows(), r.Data.Prefetch)
	defer batches.Close()
	var pending []*Pending
	finish := func(leave int) error {
		for len(pending) > leave {
			p := pending[0]
			pending = pending[1:]
			if err := t.report(p); err != nil {
				return err
			}
		}
		return nil
	}
	defer func() { // after an error
		for _, p := range pending {
			_, _ = p.Wait()
		}
	}()
	t.meter.Begin(t.progress.Tokens)
	t.recorder.Record(metrics.Event{Kind: metrics.StartEvent, Step: t.progress.Step, Time: time.Now()})
	for s := t.progress.Step; s < steps; s++ {
		select {
		case stopped = <-stop:
		default:
		}
		if err := ctx.Err(); err != nil && stopped == nil {
			return nil, err
		}
		if stopped != nil {
			t.logf("%v: finishing step %d", stopped, s)
			break
		}
		asked := time.Now()
		b, err := batches.Next()
		if err != nil {
			return nil, fmt.Errorf("train: batch of step %d: %w", s+1, err)
		}
		p, err := t.dispatch(s, b, time.Since(asked))
		if err != nil {
			return nil, err
		}
		pending = append(pending, p)
		leave := inFlight - 1
		if t.due(s+1) || s == 0 || s+1 == steps {
			leave = 0 // the state is about to be read, or somebody waits for the first loss
		}
		if err := finish(leave); err != nil {
			return nil, err
		}
		if err := t.afterStep(ctx, s+1); err != nil {
			return nil, err
		}
	}
	return stopped, finish(0)
}

// due reports whether something reads the state after step s.
func (t *trainer) due(s int64) bool { return t.saveDue(s) || t.validationDue(s) }

func (t *trainer) saveDue(s int64) bool {
	c := t.recipe.Checkpoint
	return t.store != nil && (s%int64(c.Interval) == 0 || c.FirstStep && s == 1)
}

func (t *trainer) validationDue(s int64) bool {
	return t.eval != nil && (s%int64(t.recipe.Validation.Freq) == 0 || s == int64(t.recipe.Training.Steps))
}

// afterStep validates and saves where that is due after step s.
func (t *trainer) afterStep(ctx context.Context, s int64) error {
	if t.validationDue(s) {
		if err := t.validate(s); err != nil {
			return err
		}
	}
	if t.saveDue(s) && s < int64(t.recipe.Training.Steps) {
		return t.save(ctx)
	}
	return nil
}

// report waits for a step's metrics and logs them.
func (t *trainer) report(p *Pending) error {
	m, err := p.Wait()
	if err != nil {
		return err
	}
	t.progress.Step = p.number
	t.progress.Tokens += p.tokens
	s := metrics.Step{
		Step: p.number, Tokens: p.tokens, Padding: p.positions - p.tokens, DataWait: p.waited,
		Loss: m[MetricLoss], GradNorm: m[MetricGradNorm], LR: t.rates(p.number - 1),
		Skipped: m[MetricSkipped] > t.skipped, Memory: t.memory(),
		More: map[string]float64{"loss_metrics/global_max_loss": m[MetricLossMax]},
	}
	t.skipped = m[MetricSkipped]
	for name, key := range map[string]string{MetricAux: "moe/aux_loss", MetricZ: "moe/z_loss"} {
		if x, ok := m[name]; ok {
			s.More[key] = x
		}
	}
	if n := m[imbalance]; n > 0 {
		s.More["moe/imbalance"] = n
	}
	if w := t.meter.Step(s); w != nil {
		t.logf("%s", w.Line(t.colour))
		if n := w.Note(); n != "" {
			t.logf("%s", n)
		}
		t.recorder.Record(w.Event())
	}
	return nil
}

// rates are the learning rates of a step by the group's pattern.
func (t *trainer) rates(step int64) map[string]float64 {
	out := map[string]float64{}
	rates := t.options.Optimizer.Rates(int(step))
	for i, g := range t.options.Optimizer.Groups() {
		name := g.Pattern
		if name == "" {
			name = t.recipe.Optimizer.Name
		}
		out[name] = float64(rates[i])
	}
	return out
}

func (t *trainer) memory() metrics.Memory {
	if t.machine.OnCPU {
		return metrics.HostMemory()
	}
	var most metrics.Memory
	for _, d := range t.machine.Client.LocalDevices() {
		if s, err := d.MemoryStats(); err == nil && s.Peak > most.Active {
			most = metrics.Memory{Active: s.Peak, Limit: s.Limit}
		}
	}
	return most
}

// finish saves what is not saved and sums up.
func (t *trainer) finish(ctx context.Context, stopped os.Signal) (*Result, error) {
	if t.store != nil && t.saved != t.progress.Step && t.progress.Step > 0 {
		if err := t.save(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	if t.saver != nil {
		err := t.saver.Close()
		t.saver = nil
		if err != nil {
			return nil, err
		}
	}
	sum := t.meter.Summary()
	t.recorder.Record(sum.Event(time.Now()))
	sum.Lost = t.recorder.Close()
	t.logf("%v", sum)
	return &Result{Step: t.progress.Step, Stopped: stopped, Summary: sum}, nil
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
	t.eval.close()
	t.state.Close()
	t.exe.Close()
	if t.machine != nil {
		t.machine.Close()
	}
}
