package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"titan/dtype"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/train"
)

// result is the line of JSON.
type result struct {
	Impl    string `json:"impl"`
	Version string `json:"version"` // of the plugin
	Model   string `json:"model"`
	DType   string `json:"dtype"`
	Devices int    `json:"devices"`
	Remat   string `json:"remat"`
	Unroll  bool   `json:"unroll"`
	Batch   int    `json:"batch"`
	Seq     int    `json:"seq"`
	Params  int64  `json:"params"`
	FlopsG  round1 `json:"flops_per_step_G"`

	Trace    round4 `json:"trace_lower_s"`
	Compile  round4 `json:"compile_s"` // or load, from the cache
	CompCPU  round4 `json:"trace_compile_cpu_s"`
	CacheHit bool   `json:"cache_hit"`
	Temp     round1 `json:"temp_MiB_per_device"`
	Args     round1 `json:"args_MiB_per_device"`
	Alias    round1 `json:"alias_MiB"`

	FirstLoss  round4    `json:"first_loss_s"` // since the process started
	FirstCPU   round4    `json:"first_loss_cpu_s"`
	Min        round4    `json:"step_min_s"`
	Median     round4    `json:"step_median_s"`
	CPUMin     round4    `json:"step_cpu_min_s"`
	N          int       `json:"n"`
	TokensPerS round1    `json:"tokens_per_s"`
	GFlops     round1    `json:"gflops"`
	LossFirst  float64   `json:"loss_first"`
	LossLast   float64   `json:"loss_last"`
	Losses     []float64 `json:"losses"`
	PeakRSS    round1    `json:"peak_rss_MiB"`
	Load       float64   `json:"loadavg1"`
}

// Figures are printed as short as they are exact.
type (
	round1 float64
	round4 float64
)

func (x round1) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%.1f", float64(x)), nil }
func (x round4) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%.4f", float64(x)), nil }

// measure builds, compiles and runs the step.
func measure(o *options) (*result, error) {
	r, err := o.recipe()
	if err != nil {
		return nil, err
	}
	m, err := train.OpenMachine(r)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	m.Cache = nil
	if o.cache != "" {
		m.Cache = compilecache.Open(o.cache)
	}
	began, beganCPU := time.Now(), cpuSeconds()
	so, err := train.OptionsFor(r, m.Mesh, train.PlatformOf(r))
	if err != nil {
		return nil, err
	}
	o.override(&so)
	step, err := train.BuildStep(so)
	if err != nil {
		return nil, err
	}
	if o.stablehlo != "" {
		if err := os.WriteFile(o.stablehlo, []byte(step.Module.StableHLO()), 0o666); err != nil {
			return nil, err
		}
	}
	traced := time.Now()
	exe, err := m.Compile(step.Module)
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	compiled, compiledCPU := time.Now(), cpuSeconds()
	if o.hlo != "" {
		mod, err := exe.Exe.OptimizedHLO()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(o.hlo, []byte(mod.Text()), 0o666); err != nil {
			return nil, err
		}
	}
	mem, err := exe.Exe.MemoryStats()
	if err != nil {
		return nil, err
	}
	all, _, _ := so.Model.Count()
	const mib = 1 << 20
	res := &result{
		Impl: "titan", Version: m.Client.PlatformVersion(), Model: o.model, DType: o.dtype, Devices: o.devices,
		Remat: o.remat, Unroll: r.Training.UnrollLayers, Batch: o.batch, Seq: o.seq,
		Params: all, FlopsG: round1(flops(so.Model, o.batch, o.seq) / 1e9),
		Trace: round4(traced.Sub(began).Seconds()), Compile: round4(compiled.Sub(traced).Seconds()), CacheHit: exe.Outcome.Hit,
		CompCPU: round4(compiledCPU - beganCPU),
		Temp:    round1(float64(mem.Temp) / mib), Args: round1(float64(mem.Args) / mib), Alias: round1(float64(mem.Alias) / mib),
	}
	l := &loop{exe: exe, step: step, options: so}
	defer l.close()
	if err := l.start(o, r.Model.Name, m); err != nil {
		return nil, err
	}
	var walls, cpus []float64
	for k := range o.warmup + o.steps {
		wall, cpu := time.Now(), cpuSeconds()
		loss, err := l.next(k)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", k+1, err)
		}
		if k == 0 {
			res.FirstLoss, res.FirstCPU = round4(sinceStart()), round4(cpuSeconds())
		}
		res.Losses = append(res.Losses, math.Round(loss*1e7)/1e7)
		if k >= o.warmup {
			walls, cpus = append(walls, time.Since(wall).Seconds()), append(cpus, cpuSeconds()-cpu)
		}
	}
	slices.Sort(walls)
	least := walls[0]
	res.Min, res.Median, res.CPUMin, res.N = round4(least), round4(walls[len(walls)/2]), round4(slices.Min(cpus)), len(walls)
	res.TokensPerS, res.GFlops = round1(float64(o.batch*o.seq)/least), round1(float64(res.FlopsG)/least)
	res.LossFirst, res.LossLast = res.Losses[0], res.Losses[len(res.Losses)-1]
	res.PeakRSS, res.Load = round1(peakRSS()/mib), loadAverage()
	return res, nil
}

// loop is a compiled step with its state on the devices, [position][variable].
type loop struct {
	exe     *train.Compiled
	step    *train.Step
	options train.StepOptions
	state   [][]*pjrt.Buffer
	batch   [][]byte
}

func (l *loop) close() { _ = pjrt.CloseBuffers(l.state...) }

// next runs a step and waits for all it computes. Like titan train, it sends the
// learning rate and the batch every time.
func (l *loop) next(k int) (loss float64, err error) {
	n := len(l.step.Vars)
	args := make([][]*pjrt.Buffer, len(l.state))
	for p := range args {
		args[p] = append(args[p], l.state[p]...)
	}
	for i, data := range append([][]byte{pjrt.AsBytes(l.options.Optimizer.Rates(k))}, l.batch...) {
		parts, err := l.exe.Put(n+i, data)
		if err != nil {
			return 0, err
		}
		defer pjrt.CloseBuffers(parts)
		for p := range args {
			args[p] = append(args[p], parts[p])
		}
	}
	outs, err := l.exe.Exe.Run(args, pjrt.ExecuteOptions{})
	if err != nil {
		return 0, err
	}
	l.close() // donated
	l.state = nil
	for p := range outs {
		l.state = append(l.state, outs[p][:n])
		defer pjrt.CloseBuffers(outs[p][n:])
	}
	raw, err := outs[0][n+slices.Index(l.step.Metrics, train.MetricLoss)].Bytes()
	if err != nil {
		return 0, err
	}
	return dtype.Float(dtype.F32, raw, 0), nil
}
