// Package plan answers, without a device, what a recipe does on one: whether it
// compiles for a topology of TPUs, whether it fits and by how much, what devices
// send each other, how fast a step will be and what limits it.
//
//	r, err := plan.Make(ctx, plan.Options{Recipe: recipe})
//	fmt.Print(r)
//
// It compiles the very step that package train would run, through the compile
// cache: devices that start with the same recipe load what was compiled here.
package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"titan/configs"
	"titan/internal/human"
	"titan/mesh"
	"titan/metrics"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/pjrt/hlo"
	"titan/pjrt/llo"
	"titan/train"
)

// Options say what to plan.
type Options struct {
	// Recipe has a topology.
	Recipe *configs.Recipe
	// Quick compiles with little effort: some times faster, for an answer about
	// memory that is less exact, and not stored as what devices would run.
	Quick bool
	// Level is the compiler's optimisation level if not its default, such as
	// pjrt.LevelO1; Quick is pjrt.LevelO0. For comparison: it is not what devices would
	// run either.
	Level int
	// Cache is asked first; nil: always compile.
	Cache *compilecache.Cache
	// Plugin is the path of the compiler for TPU.
	Plugin string
	// Child is a command that calls [CompileKernel], with which the code of tile
	// kernels is looked at; without it they are priced by rooflines.
	Child []string
	// Log hears what is about to be done, if not nil.
	Log func(format string, args ...any)
}

// Make plans a recipe. A step for which there is no room is no error: the report
// says so.
func Make(ctx context.Context, o Options) (*Report, error) {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	s, err := build(o.Recipe)
	if err != nil {
		return nil, err
	}
	out := s.report(o)
	t, err := openTopology(o.Plugin, s.topology)
	if err != nil {
		return nil, err
	}
	defer t.close()
	out.Memory.Limit = t.memory
	if mc, err := newMachine(s.topology.Kind); err == nil {
		out.Memory.HostLimit = mc.hostLimit()
	}
	out.Memory.Arguments, out.counted = s.arguments, s.counted()
	if s.arguments > t.memory {
		out.Memory.reject(s.arguments, "parameters, optimizer state and batch alone")
		return out, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.Log("compiling for %v, %s", s.topology, human.Counted(s.mesh.Size(), "device"))
	ahead, outcome, err := s.fit(t, o, out)
	out.Compile = Compilation{Trace: s.traced.Seconds(), Seconds: outcome.CompileTime.Seconds(), Cache: outcome.String(), Key: outcome.Key, ProgramBytes: len(s.step.Module.StableHLO())}
	var oom *pjrt.OutOfMemory
	var budget *train.BudgetError
	switch {
	case errors.As(err, &oom):
		out.Memory.overflow(oom)
		if o.Quick {
			out.Memory.mark()
		}
		return out, nil
	case errors.As(err, &budget):
		out.Memory.misses(budget)
		if o.Quick {
			out.Memory.mark()
		}
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("plan: compiling for %v: %w", s.topology, err)
	}
	out.Compile.CodeBytes, out.Compile.CPU = ahead.CodeBytes, ahead.CPUTime.Seconds()
	if outcome.Hit {
		out.Compile.Seconds = ahead.CompileTime.Seconds()
	}
	m, err := hlo.Parse(ahead.HLO)
	if err != nil {
		return nil, fmt.Errorf("plan: the compiled step: %w", err)
	}
	out.Memory.compiled(ahead.Memory, s, m)
	if o.Quick {
		out.Memory.mark()
	}
	code, problems := kernelCode(ctx, o, s.topology.Kind, m)
	if err := ctx.Err(); err != nil {
		return nil, err // and not a plan by rooflines
	}
	if err := out.predict(s, m, o.Quick, code); err != nil {
		return nil, err
	}
	out.Prediction.Unpriced = append(out.Prediction.Unpriced, problems...)
	return out, nil
}

// traced is a recipe's step, not yet compiled.
type traced struct {
	recipe    *configs.Recipe
	topology  mesh.Topology
	mesh      *mesh.Mesh
	options   train.StepOptions
	step      *train.Step
	traced    time.Duration
	arguments int64 // bytes on a device
}

// build traces the step of a recipe.
func build(r *configs.Recipe) (*traced, error) {
	if r.Mesh.Topology == "" {
		return nil, errors.New("plan: the recipe has no topology to compile for: give one, as in --topology v5e:4x4 or --set mesh.topology=v5e:4x4")
	}
	s := &traced{recipe: r}
	var err error
	if s.topology, err = mesh.ParseTopology(r.Mesh.Topology); err != nil {
		return nil, err
	}
	start := time.Now()
	if s.mesh, err = r.Machine(); err != nil {
		return nil, err
	}
	if s.options, err = train.OptionsFor(r, s.mesh, train.PlatformOf(r)); err != nil {
		return nil, err
	}
	if s.step, err = train.BuildStep(s.options); err != nil {
		return nil, err
	}
	s.traced = time.Since(start)
	for _, b := range s.inputs() {
		s.arguments += b.Bytes
	}
	return s, nil
}

// fit compiles the step; one with a memory budget under the policy that fits into
// it, as train does on devices.
func (s *traced) fit(t *topology, o Options, out *Report) (*compilecache.Ahead, compilecache.Outcome, error) {
	remat := s.recipe.ActivationCheckpoint
	if remat.Mode != decoder.RematBudget {
		return s.compile(t, o)
	}
	b, err := remat.Budget()
	if err != nil {
		return nil, compilecache.Outcome{}, err
	}
	type result struct {
		ahead   *compilecache.Ahead
		outcome compilecache.Outcome
	}
	fit, err := train.FitStep(s.options, b.Of(t.memory), true, func(step *train.Step) (train.Trial[result], error) {
		try := *s
		try.step = step
		ahead, outcome, err := try.compile(t, o)
		if err != nil {
			return train.Trial[result]{}, err
		}
		return train.Trial[result]{Program: result{ahead, outcome}, InUse: ahead.Memory.Needed(), Close: func() {}}, nil
	})
	if err != nil {
		return nil, compilecache.Outcome{}, err
	}
	s.options, s.step, out.Policy = fit.Options, fit.Step, fit.Lines()
	return fit.Program.ahead, fit.Program.outcome, nil
}

// compile compiles the step, or takes it from the cache.
func (s *traced) compile(t *topology, o Options) (*compilecache.Ahead, compilecache.Outcome, error) {
	level := o.Level
	if o.Quick {
		level = pjrt.LevelO0
	}
	c := train.CompileOptionsAt(s.mesh, train.PlatformOf(s.recipe), level)
	cache := o.Cache
	if cache == nil {
		cache = compilecache.Open("")
	}
	code := s.step.Module.StableHLO()
	ahead, outcome, err := cache.CompileFor(t.topology, []byte(code), []byte(s.step.Module.StableHLOWithLocations()), c)
	return ahead, outcome, train.CompileError(err)
}

// report fills in what is known before compiling.
func (s *traced) report(o Options) *Report {
	c, rows := s.options.Model, s.options.Rows*max(1, s.options.Passes)
	shape := metrics.ShapeOf(&c)
	fl := shape.FlopsPerToken(s.options.SeqLen)
	out := &Report{
		Recipe: s.recipe.Hash(), RecipeTOML: s.recipe.TOML(nil), Model: s.recipe.Model.Name + " " + s.recipe.Model.Flavor,
		Topology: s.topology.String(), Chips: s.topology.Chips(), Devices: s.mesh.Size(), Mesh: s.mesh.String(),
		Sequences: rows, SeqLen: s.options.SeqLen, Passes: max(1, s.options.Passes), Tokens: int64(rows) * int64(s.options.SeqLen),
		Effort: "default", slices: s.topology.Slices, Parameters: shape.Params, Active: shape.Active(),
		FlopsPerToken: ByConvention{fl.Total(metrics.Causal), fl.Total(metrics.TorchTitan)},
	}
	switch {
	case o.Quick:
		out.Effort = "quick"
	case o.Level > 0:
		out.Effort = fmt.Sprintf("O%d", o.Level/10) // 9, 19, 29 in the compiler's own numbers
	}
	return out
}

// predict fills in the time of the step.
func (r *Report) predict(s *traced, m *hlo.Module, quick bool, code map[*hlo.Instruction]llo.Grid) error {
	stages := s.step.Plan.Stages().Devices()
	bubble := 0.0
	if stages > 1 {
		bubble = parallel.Bubble(stages, s.options.Passes)
	}
	p, err := Predict(m, PredictOptions{Kind: s.topology.Kind, Mesh: s.mesh, Quick: quick, Bubble: bubble, Experts: s.options.Model.MoE != nil, Code: code})
	if err != nil {
		return err
	}
	mc, err := newMachine(s.topology.Kind)
	if err != nil {
		return err
	}
	r.Prediction = p
	if p.Seconds > 0 {
		rate := func(seconds float64) float64 { return float64(r.Tokens) / seconds / float64(r.Devices) }
		r.TokensPerSecond = rate(p.Seconds)
		r.TokensPerSecondChip = r.TokensPerSecond * float64(r.Devices) / float64(r.Chips)
		r.MFU = ByConvention{100 * r.FlopsPerToken.Causal * r.TokensPerSecond / mc.peak, 100 * r.FlopsPerToken.Full * r.TokensPerSecond / mc.peak}
	}
	if p.MemoryBytes > 0 {
		r.Intensity, r.Ridge = p.Flops/p.MemoryBytes, mc.peak/mc.hbm
	}
	r.Limit, r.Hint = p.limit(s, r)
	return nil
}
