package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"titan/checkpoint"
	"titan/checkpoint/storage"
	"titan/configs"
	"titan/internal/human"
	"titan/metrics"
)

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
	if w := noTPU(r.Mesh.Platform, "/dev"); w != "" {
		t.warnf("%s", w)
	}
	var err error
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
	cause := metrics.Initialise
	if t.restores {
		cause = metrics.Restore
	}
	resume := t.meter.Pause(cause)
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
