package train

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"titan/checkpoint"
	"titan/configs"
	"titan/metrics"
	"titan/runs"
)

// What a run tells about itself while it goes on: run.json and the log.

// beginRecord adds this process, if it leads, to the record of the run's folder.
func (t *trainer) beginRecord(o RunOptions) error {
	r := t.recipe
	if !t.hosts.leads() {
		return nil
	}
	files := runs.Files{Recipe: filepath.ToSlash(r.Job.SaveConfigFile), Log: configs.RunLog}
	if r.Metrics.EnableJSON {
		files.Metrics = filepath.ToSlash(r.Metrics.SaveJSONFile)
	}
	if r.Metrics.EnableTensorboard {
		files.TensorBoard = filepath.ToSlash(r.Metrics.SaveTBFolder)
	}
	if r.Checkpoint.Enable {
		files.Checkpoints = filepath.ToSlash(r.Checkpoint.Folder)
	}
	if r.Profiling.Enable {
		files.Traces = filepath.ToSlash(r.Profiling.TracesFolder)
	}
	w, err := runs.Begin(runs.Options{Dir: r.Job.DumpFolder, Files: files, Titan: o.Version, Go: runtime.Version(), Warn: t.warnf})
	if err != nil {
		return err
	}
	w.Note(func(_ *runs.Record, a *runs.Attempt) { a.RecipeSHA256 = r.Hash() })
	t.mu.Lock()
	t.record = w
	t.mu.Unlock()
	return nil
}

// recordMachine tells what trains what.
func (t *trainer) recordMachine(peak float64) {
	r, o, m := t.recipe, &t.options, t.machine
	plugin := m.Client.Plugin()
	sum, err := m.Cache.PluginSHA256(plugin.Path())
	if err != nil {
		t.warnf("the plugin's hash is not recorded: %v", err)
	}
	major, minor := plugin.APIVersion()
	host, _ := os.Hostname() // "" if it has no name
	shape := metrics.ShapeOf(&o.Model)
	cost := shape.FlopsPerToken(o.SeqLen)
	hosts := map[int]bool{}
	for _, d := range m.Client.Devices() {
		hosts[d.Process] = true
	}
	var axes []runs.Axis
	for _, a := range m.Mesh.Axes() {
		axes = append(axes, runs.Axis{Name: a.Name, Size: a.Size})
	}
	sequences := o.Rows * o.Passes
	t.record.Update(func(_ *runs.Record, a *runs.Attempt) {
		a.Plugin = runs.Plugin{Name: r.Mesh.Platform, File: filepath.Base(plugin.Path()), Version: m.Client.PlatformVersion(), API: fmt.Sprintf("%d.%d", major, minor), SHA256: sum}
		a.Machine = runs.Machine{
			Platform: m.Client.Platform(), DeviceKind: m.Client.Devices()[0].Kind, Devices: m.Mesh.Size(), Hosts: len(hosts), Host: host,
			OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), Mesh: axes,
		}
		a.Model = runs.Model{
			Family: r.Model.Name, Flavor: r.Model.Flavor, Params: shape.Params, ActiveParams: shape.Active(), Layers: o.Model.Layers, Vocab: o.Model.VocabSize,
			ParamDType: r.Training.MixedPrecisionParam, Float8: r.Quantize.Linear.Float8.Enable, PeakFLOPs: peak,
			FlopsPerToken: runs.Cost{TorchTitan: cost.Total(metrics.TorchTitan), Causal: cost.Total(metrics.Causal)},
		}
		a.Batch = runs.Batch{
			SeqLen: o.SeqLen, GlobalBatch: sequences, Passes: o.Passes, Tokens: int64(sequences * o.SeqLen),
			IsolateDocuments: r.Data.IsolateDocuments, Data: t.data, Steps: int64(r.Training.Steps),
		}
	})
}

// recordProgram tells of a program that took so long to have.
func (t *trainer) recordProgram(c *Compiled, took time.Duration) {
	p := runs.Program{
		Name: c.Module.Name(), SHA256: c.SHA256, Seconds: took.Seconds(), CacheHit: c.Outcome.Hit, Note: c.Outcome.Why,
		Compile: c.Outcome.CompileTime.Seconds(), Load: c.Outcome.LoadTime.Seconds(), Store: c.Outcome.StoreTime.Seconds(),
	}
	if m, err := c.Exe.MemoryStats(); err == nil {
		p.Arguments, p.InPlace, p.Temporaries = m.Args, m.Alias, m.Temp
	}
	t.record.Update(func(_ *runs.Record, a *runs.Attempt) { a.Programs = append(a.Programs, p) })
}

// recordStart tells where training goes on.
func (t *trainer) recordStart() {
	step, source := t.progress.Step, t.inFolder(t.source)
	t.record.Update(func(_ *runs.Record, a *runs.Attempt) { a.Began, a.ResumedFrom, a.Source = true, step, source })
}

// recordFigures tells how training goes; summing up takes time, so not more often
// than the record is written anyway.
func (t *trainer) recordFigures(always bool) {
	if !always && time.Since(t.figuresAt) < runs.Beat/2 {
		return
	}
	t.figuresAt = time.Now()
	f := t.meter.Summary().Figures()
	t.record.Note(func(_ *runs.Record, a *runs.Attempt) { a.Figures = f })
}

// recordSave tells of a checkpoint, and of those that made room for it.
func (t *trainer) recordSave(s *checkpoint.Saved) {
	c := runs.Checkpoint{Step: int64(s.Step), Path: t.inFolder(s.Path), Bytes: s.Bytes, Time: time.Now().UTC(), Kept: true}
	t.record.Update(func(r *runs.Record, a *runs.Attempt) {
		r.Retire(append(s.Removed, s.Step)...) // one of the same step is replaced
		a.Checkpoints = append(a.Checkpoints, c)
	})
}

// inFolder returns a path as seen from the run's folder, if it is below it.
func (t *trainer) inFolder(path string) string {
	if rel, err := filepath.Rel(t.recipe.Job.DumpFolder, path); err == nil && filepath.IsAbs(path) == filepath.IsAbs(t.recipe.Job.DumpFolder) && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return path
}

// endRecord tells how the process's run ended.
func (t *trainer) endRecord(res *Result, err error) {
	if t.record == nil {
		return
	}
	e := runs.Exit{Reason: runs.Finished}
	switch {
	case err != nil:
		e.Reason, e.Message = runs.Failed, err.Error()
		_, _ = t.record.Write([]byte("failed: " + strings.TrimRight(e.Message, "\n") + "\n"))
	case res.Stopped == syscall.SIGTERM:
		e.Reason, e.Signal = runs.Preempted, res.Stopped.String()
	case res.Stopped != nil:
		e.Reason, e.Signal = runs.Stopped, res.Stopped.String()
	}
	if t.meter != nil {
		t.recordFigures(true)
	}
	t.record.End(e)
}
