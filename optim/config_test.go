package optim_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/recipekey"
	"titan/optim"
)

// keys lists the recipe keys of the mistakes in err.
func keys(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var out []string
	all := []error{err}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		all = j.Unwrap()
	}
	for _, e := range all {
		var k *recipekey.Error
		require.True(t, errors.As(e, &k), "%v", e)
		out = append(out, k.Key)
	}
	return out
}

func TestDefaultsAreTorchTitans(t *testing.T) {
	c, s := optim.Defaults(), optim.DefaultSchedule()
	require.Equal(t, optim.Config{Name: "AdamW", LR: 8e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, StateDType: "float32", SkipNonfinite: true,
		MuonMomentum: 0.95, MuonNesterov: true, MuonNSSteps: 5, MuonNSDType: "bfloat16", MuonEps: 1e-7, MuonAdjustLR: "match_rms_adamw"}, c)
	require.Equal(t, optim.Schedule{WarmupSteps: 200, TotalSteps: -1, DecayType: "linear"}, s)
	require.NoError(t, c.Validate())
	require.NoError(t, s.Validate())
}

func TestEveryKeyIsDocumented(t *testing.T) {
	for _, v := range []any{optim.Config{}, optim.Group{}, optim.Schedule{}} {
		for f := range reflect.TypeOf(v).Fields() {
			require.NotEmpty(t, f.Tag.Get("toml"), f.Name)
			require.NotEmpty(t, f.Tag.Get("doc"), f.Name)
		}
	}
}

func TestValidateNamesEveryMistake(t *testing.T) {
	for _, c := range []struct {
		change func(*optim.Config)
		key    string
		says   string
	}{
		{func(c *optim.Config) { c.Name = "adamw" }, "optimizer.name", `did you mean "AdamW"`},
		{func(c *optim.Config) { c.LR = -1 }, "optimizer.lr", "is -1"},
		{func(c *optim.Config) { c.LR = math.NaN() }, "optimizer.lr", "NaN"},
		{func(c *optim.Config) { c.WeightDecay = math.Inf(1) }, "optimizer.weight_decay", "Inf"},
		{func(c *optim.Config) { c.Beta1 = 1 }, "optimizer.beta1", "less than 1"},
		{func(c *optim.Config) { c.Beta2 = -0.1 }, "optimizer.beta2", "-0.1"},
		{func(c *optim.Config) { c.Eps = 0 }, "optimizer.eps", "divisor"},
		{func(c *optim.Config) { c.Eps = 1e-40 }, "optimizer.eps", "1e-40"},
		{func(c *optim.Config) { c.StateDType = "bf16" }, "optimizer.state_dtype", `"bf16"`},
		{func(c *optim.Config) { c.StateDType, c.Beta2 = "bfloat16", 0.999 }, "optimizer.beta2", "never decay"},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{}} }, "optimizer.param_groups[0].pattern", "missing"},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{Pattern: "a"}, {Pattern: "(b"}} }, "optimizer.param_groups[1].pattern", "missing closing )"},
		{func(c *optim.Config) {
			c.ParamGroups = []optim.Group{{Pattern: "a", LR: ptr(1), LRFactor: ptr(1)}}
		}, "optimizer.param_groups[0].lr_factor", "beside lr"},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{Pattern: "a", LRFactor: ptr(-1)}} }, "optimizer.param_groups[0].lr_factor", "-1"},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{Pattern: "a", Beta2: ptr(1)}} }, "optimizer.param_groups[0].beta2", "is 1"},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{Pattern: "a", Eps: ptr(0)}} }, "optimizer.param_groups[0].eps", "is 0"},
		{func(c *optim.Config) { c.Name = "Moun" }, "optimizer.name", `did you mean "Muon"`},
		{func(c *optim.Config) { c.MuonLR = ptr(-1) }, "optimizer.muon_lr", "-1"},
		{func(c *optim.Config) { c.MuonMomentum = 1 }, "optimizer.muon_momentum", "less than 1"},
		{func(c *optim.Config) { c.StateDType, c.MuonMomentum = "bfloat16", 0.999 }, "optimizer.muon_momentum", "never decay"},
		{func(c *optim.Config) { c.MuonNSSteps = 0 }, "optimizer.muon_ns_steps", "5 is usual"},
		{func(c *optim.Config) { c.MuonNSDType = "float16" }, "optimizer.muon_ns_dtype", `did you mean "bfloat16"`},
		{func(c *optim.Config) { c.MuonEps = 0 }, "optimizer.muon_eps", "divisor"},
		{func(c *optim.Config) { c.MuonAdjustLR = "match_rms_adam" }, "optimizer.muon_adjust_lr", `did you mean "match_rms_adamw"`},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{Pattern: "a", Optimizer: "adam"}} }, "optimizer.param_groups[0].optimizer", `did you mean "AdamW"`},
		{func(c *optim.Config) { c.ParamGroups = []optim.Group{{Pattern: "a", MuonMomentum: ptr(2)}} }, "optimizer.param_groups[0].muon_momentum", "is 2"},
	} {
		cfg := optim.Defaults()
		c.change(&cfg)
		err := cfg.Validate()
		require.Equal(t, []string{c.key}, keys(t, err))
		require.ErrorContains(t, err, c.says)
		_, err = optim.New(cfg, optim.DefaultSchedule(), 10, 1, smallParams)
		require.ErrorContains(t, err, c.key)
	}
	cfg := optim.Defaults()
	cfg.Name, cfg.LR, cfg.Beta1 = "SGD", -1, 2
	require.Len(t, keys(t, cfg.Validate()), 3, "all at once")

	for key, change := range map[string]func(*optim.Schedule){
		"warmup_steps":  func(s *optim.Schedule) { s.WarmupSteps = -1 },
		"total_steps":   func(s *optim.Schedule) { s.TotalSteps = 0 },
		"decay_ratio":   func(s *optim.Schedule) { s.DecayRatio = ptr(1.5) },
		"decay_type":    func(s *optim.Schedule) { s.DecayType = "cosin" },
		"min_lr_factor": func(s *optim.Schedule) { s.MinLRFactor = math.NaN() },
	} {
		s := optim.DefaultSchedule()
		change(&s)
		require.Equal(t, []string{"lr_scheduler." + key}, keys(t, s.Validate()))
	}
	_, err := optim.New(optim.Defaults(), optim.DefaultSchedule(), 10, -1, smallParams)
	require.ErrorContains(t, err, "training.max_norm")
	_, err = optim.New(optim.Defaults(), optim.DefaultSchedule(), -1, 1, smallParams)
	require.ErrorContains(t, err, "training.steps")
}

func TestParameterGroups(t *testing.T) {
	cfg := optim.Defaults()
	cfg.ParamGroups = []optim.Group{{Pattern: `^layers\.norm$`, LR: ptr(1)}, {Pattern: "layers", LRFactor: ptr(2), WeightDecay: ptr(0)}}
	o, err := optim.New(cfg, optim.DefaultSchedule(), 1000, 1, smallParams)
	require.NoError(t, err)
	require.Equal(t, []optim.GroupInfo{
		{Name: "AdamW", Optimizer: "AdamW", LR: 8e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Params: []string{"embed"}},
		{Name: `^layers\.norm$`, Pattern: `^layers\.norm$`, Optimizer: "AdamW", LR: 1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Params: []string{"layers.norm"}},
		{Name: "layers", Pattern: "layers", Optimizer: "AdamW", LR: 16e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Params: []string{"layers.w"}},
	}, o.Groups())
	require.Equal(t, []float32{8e-4 / 200, 1.0 / 200, 16e-4 / 200}, o.Rates(0))
	require.Equal(t, 8e-4, o.LR(199))

	cfg.ParamGroups = []optim.Group{{Pattern: "layer.w", LR: ptr(1)}}
	_, err = optim.New(cfg, optim.DefaultSchedule(), 10, 1, smallParams)
	require.EqualError(t, err, `optimizer.param_groups[0].pattern: "layer.w" matches no parameter; did you mean "layers.w"?`)

	cfg.ParamGroups = []optim.Group{{Pattern: "layers", LR: ptr(1)}, {Pattern: "norm", LR: ptr(1)}, {Pattern: "xyz"}}
	_, err = optim.New(cfg, optim.DefaultSchedule(), 10, 1, smallParams)
	require.Equal(t, []string{"optimizer.param_groups[1].pattern", "optimizer.param_groups[2].pattern"}, keys(t, err))
	require.ErrorContains(t, err, `"norm" has no parameter left`)
	require.ErrorContains(t, err, `"layers" (param_groups[0]) comes before`)
}

func TestState(t *testing.T) {
	o := newSetup(smallParams...).optimizer(t)
	var names []string
	for _, v := range o.State() {
		names = append(names, v.Name)
		if v.Param >= 0 {
			require.Equal(t, smallParams[v.Param].Shape, v.Shape)
			require.True(t, strings.HasSuffix(v.Name, "."+smallParams[v.Param].Name))
			require.Equal(t, dtype.F32, v.DType)
		} else {
			require.Empty(t, v.Shape)
			require.Equal(t, dtype.S32, v.DType)
		}
	}
	require.Equal(t, []string{"optim.m.embed", "optim.m.layers.w", "optim.m.layers.norm",
		"optim.v.embed", "optim.v.layers.w", "optim.v.layers.norm", "optim.step", "optim.skipped"}, names)
}

// Inputs that do not belong to the optimizer stop the trace with what is wrong.
func TestUpdateRefusesForeignInputs(t *testing.T) {
	o := newSetup(smallParams...).optimizer(t)
	for says, change := range map[string]func(*graph.Builder, *optim.Inputs){
		"2 parameters, 3 gradients": func(_ *graph.Builder, in *optim.Inputs) { in.Params = in.Params[:2] },
		"learning rates":            func(b *graph.Builder, in *optim.Inputs) { in.LR = b.Scalar(graph.F32, 1) },
		"parameter layers.w":        func(_ *graph.Builder, in *optim.Inputs) { in.Grads[1] = in.Grads[0] },
		"optim.v.embed":             func(_ *graph.Builder, in *optim.Inputs) { in.State[3] = in.State[4] },
		"optim.step":                func(b *graph.Builder, in *optim.Inputs) { in.State[6] = b.Scalar(graph.F32, 0) },
		"the loss is f32[4,3]":      func(_ *graph.Builder, in *optim.Inputs) { in.Loss = in.Params[0] },
	} {
		_, err := graph.Trace("update", nil, func(b *graph.Builder) error {
			in := optim.Inputs{LR: b.Zeros(o.LRType())}
			for _, p := range smallParams {
				in.Params = append(in.Params, b.Zeros(graph.T(graph.F32, p.Shape...)))
				in.Grads = append(in.Grads, b.Zeros(graph.T(graph.F32, p.Shape...)))
			}
			for _, v := range o.State() {
				in.State = append(in.State, b.Zeros(graph.T(v.DType, v.Shape...)))
			}
			change(b, &in)
			o.Update(b, in)
			return nil
		})
		require.ErrorContains(t, err, says)
	}
}

// Muon has the layers' matrices, experts and routers among them, and AdamW what
// is left; groups may say otherwise, and may hold both.
func TestMuonGroups(t *testing.T) {
	cfg := optim.Defaults()
	cfg.Name, cfg.MuonLR = optim.Muon, ptr(0.02)
	build := func() (*optim.Optimizer, error) {
		return optim.New(cfg, optim.DefaultSchedule(), 1000, 1, muonParams)
	}
	o, err := build()
	require.NoError(t, err)
	adamw := optim.GroupInfo{Name: "AdamW", Optimizer: "AdamW", LR: 8e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}
	muon := optim.GroupInfo{Name: "Muon", Optimizer: "Muon", LR: 0.02, Momentum: 0.95, WeightDecay: 0.1}
	with := func(g optim.GroupInfo, params ...string) optim.GroupInfo {
		g.Params = params
		return g
	}
	require.Equal(t, []optim.GroupInfo{
		with(adamw, "embed", "layers.norm", "output"),
		with(muon, "layers.wq", "layers.wo", "layers.experts.w_up", "layers.experts.w_down", "layers.router"),
	}, o.Groups())
	require.Equal(t, []float32{8e-4 / 200, 0.02 / 200}, o.Rates(0))
	require.Equal(t, 8e-4, o.LR(199), "what the log reports is optimizer.lr")
	var state []string
	for _, v := range o.State() {
		state = append(state, v.Name)
		if v.Param >= 0 {
			require.Equal(t, muonParams[v.Param].Shape, v.Shape)
		}
	}
	require.Equal(t, []string{"optim.m.embed", "optim.m.layers.wq", "optim.m.layers.wo", "optim.m.layers.experts.w_up", "optim.m.layers.experts.w_down",
		"optim.m.layers.router", "optim.m.layers.norm", "optim.m.output", "optim.v.embed", "optim.v.layers.norm", "optim.v.output", "optim.step", "optim.skipped"}, state)

	cfg.ParamGroups = []optim.Group{
		{Pattern: "router", Optimizer: "AdamW", Beta1: ptr(0.8)},
		{Pattern: "output", Optimizer: "Muon", LR: ptr(1)},
		{Pattern: "norm|experts", LRFactor: ptr(0.5), WeightDecay: ptr(0)},
	}
	o, err = build()
	require.NoError(t, err)
	router := with(adamw, "layers.router")
	router.Name, router.Pattern, router.Beta1 = "router", "router", 0.8
	output := with(muon, "output")
	output.Name, output.Pattern, output.LR = "output", "output", 1
	norm := with(adamw, "layers.norm")
	norm.Name, norm.Pattern, norm.LR, norm.WeightDecay = "norm|experts (AdamW)", "norm|experts", 4e-4, 0
	experts := with(muon, "layers.experts.w_up", "layers.experts.w_down")
	experts.Name, experts.Pattern, experts.LR, experts.WeightDecay = "norm|experts (Muon)", "norm|experts", 0.01, 0
	require.Equal(t, []optim.GroupInfo{with(adamw, "embed"), with(muon, "layers.wq", "layers.wo"), router, output, norm, experts}, o.Groups())
	require.Equal(t, []float32{8e-4, 0.02, 8e-4, 1, 4e-4, 0.01}, o.Rates(199))

	// The other way round: AdamW, and Muon where a group says so.
	cfg.Name, cfg.ParamGroups = optim.AdamW, []optim.Group{{Pattern: "wq", Optimizer: "Muon"}}
	o, err = build()
	require.NoError(t, err)
	require.Equal(t, []string{"layers.wq"}, o.Groups()[1].Params)
	require.Len(t, o.Groups(), 2)

	for says, c := range map[string]struct {
		name   string
		groups []optim.Group
	}{
		"optimizer.param_groups[0].optimizer: is \"Muon\", which updates matrices only, and the pattern \"layers\" also has layers.norm": {
			optim.AdamW, []optim.Group{{Pattern: "layers", Optimizer: "Muon"}}},
		"optimizer.param_groups[0].beta2: has no effect: it is a setting of AdamW": {
			optim.Muon, []optim.Group{{Pattern: "wq", Beta2: ptr(0.9)}}},
		"optimizer.param_groups[0].muon_momentum: has no effect: it is a setting of Muon": {
			optim.Muon, []optim.Group{{Pattern: "embed", MuonMomentum: ptr(0.9)}}},
		"optimizer.name: is \"Muon\", but it updates no parameter": {
			optim.Muon, []optim.Group{{Pattern: ".", Optimizer: "AdamW"}}},
	} {
		cfg.Name, cfg.ParamGroups = c.name, c.groups
		_, err = build()
		require.ErrorContains(t, err, says)
	}
	cfg = optim.Defaults()
	cfg.Name = optim.Muon
	_, err = optim.New(cfg, optim.DefaultSchedule(), 10, 1, smallParams)
	require.ErrorContains(t, err, "Muon must know the logical axes of parameter embed")
}
