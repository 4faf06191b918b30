package optim_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/optim"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/sharding"
)

// blocks are a decoder's parameters with layers layers.
func blocks(layers int) []optim.Param {
	return []optim.Param{
		{Name: "embed", Shape: []int{32, 16}, Axes: []string{"vocab", "embed"}},
		{Name: "layers.wq", Shape: []int{layers, 16, 4, 8}, Axes: []string{"layer", "embed", "heads", "head_dim"}},
		{Name: "layers.wk", Shape: []int{layers, 16, 2, 8}, Axes: []string{"layer", "embed", "kv_heads", "head_dim"}},
		{Name: "layers.wv", Shape: []int{layers, 16, 2, 8}, Axes: []string{"layer", "embed", "kv_heads", "head_dim"}},
		{Name: "layers.wo", Shape: []int{layers, 4, 8, 16}, Axes: []string{"layer", "heads", "head_dim", "embed"}},
		{Name: "layers.w_up", Shape: []int{layers, 16, 24}, Axes: []string{"layer", "embed", "mlp"}},
		{Name: "layers.experts.w_down", Shape: []int{layers, 4, 8, 16}, Axes: []string{"layer", "expert", "expert_mlp", "embed"}},
		{Name: "layers.norm", Shape: []int{layers, 16}, Axes: []string{"layer", "norm"}},
	}
}

// place splits the dimensions with the given logical axes over mesh axes, those
// of experts' parameters as the keys "expert …" say.
func place(params []optim.Param, rules map[string]any) []sharding.Spec {
	var specs []sharding.Spec
	for _, p := range params {
		dims := make([]any, len(p.Axes))
		for i, a := range p.Axes {
			dims[i] = rules[a]
			if x, ok := rules["expert "+a]; ok && strings.Contains(p.Name, "experts") {
				dims[i] = x
			}
		}
		specs = append(specs, sharding.P(dims...))
	}
	return specs
}

func axes(list ...any) []mesh.Axis {
	var out []mesh.Axis
	for i := 0; i < len(list); i += 2 {
		out = append(out, mesh.Axis{Name: list[i].(string), Size: list[i+1].(int)})
	}
	return out
}

var meshes = map[string]struct {
	layers int
	axes   []mesh.Axis
	rules  map[string]any
	split  *float64
	plan   []optim.Job
}{
	"fsdp 8": {3, axes("s", 8), map[string]any{"embed": "s"}, nil, []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Moves: [][]string{{"s"}}, Slots: 1},
		{Params: []string{"layers.wk", "layers.wv"}, Moves: [][]string{{"s"}}, Slots: 1},
		{Params: []string{"layers.w_up"}, Moves: [][]string{{"s"}}, Slots: 1},
		{Params: []string{"layers.experts.w_down"}, Moves: [][]string{{"s"}}, Slots: 2},
	}},
	"replicate 2 x shard 4": {3, axes("r", 2, "s", 4), map[string]any{"embed": "s"}, nil, []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Moves: [][]string{{"s"}}, Share: []string{"r"}, Slots: 1},
		{Params: []string{"layers.wk", "layers.wv"}, Moves: [][]string{{"s"}}, Share: []string{"r"}, Slots: 1},
		{Params: []string{"layers.w_up"}, Moves: [][]string{{"s"}}, Share: []string{}, Slots: 1}, // four devices are enough
		{Params: []string{"layers.experts.w_down"}, Moves: [][]string{{"s"}}, Share: []string{"r"}, Slots: 2},
	}},
	"shard 4 x tp 2": {3, axes("s", 4, "t", 2), map[string]any{"embed": "s", "heads": "t", "kv_heads": "t", "mlp": "t", "expert_mlp": "t", "vocab": "t"}, nil, []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Moves: [][]string{{"s"}, {"t"}}, Slots: 1},
		{Params: []string{"layers.w_up"}, Moves: [][]string{{"s"}, {"t"}}, Slots: 1},
		{Params: []string{"layers.experts.w_down"}, Moves: [][]string{{"s"}, {"t"}}, Slots: 2},
	}},
	"shard 2 x ep 2 x tp 2": {3, axes("s", 2, "e", 2, "t", 2), map[string]any{"embed": []string{"s", "e"}, "heads": "t", "kv_heads": "t", "mlp": "t",
		"expert": "e", "expert embed": "s", "expert_mlp": "t"}, nil, []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Moves: [][]string{{"s", "e"}, {"t"}}, Slots: 1},
		{Params: []string{"layers.experts.w_down"}, Moves: [][]string{{"s"}, {"t"}}, Slots: 2},
	}},
	"pp 2 x shard 2 x cp 2": {10, axes("p", 2, "s", 2, "c", 2), map[string]any{"layer": "p", "embed": []string{"s", "c"}}, nil, []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Moves: [][]string{{"s", "c"}}, Slots: 3}, // 5 + 5 over 4
		{Params: []string{"layers.wk", "layers.wv"}, Moves: [][]string{{"s", "c"}}, Slots: 3},
	}},
	"replicate 8": {3, axes("r", 8), nil, nil, []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Share: []string{"r"}, Slots: 1},
	}},
	"split over tp": {1, axes("r", 2, "s", 2, "t", 2), map[string]any{"embed": "s", "heads": "t", "kv_heads": "t", "mlp": "t", "expert_mlp": "t"}, ptr(0), []optim.Job{
		{Params: []string{"layers.wq", "layers.wo"}, Moves: [][]string{{"s"}}, Share: []string{}, Split: []string{"t"}, Slots: 1},
		{Params: []string{"layers.experts.w_down"}, Moves: [][]string{{"t"}}, Share: []string{"r"}, Split: []string{"s"}, Slots: 1},
	}},
	"split over shard 8": {1, axes("s", 8), map[string]any{"embed": "s"}, ptr(0), []optim.Job{
		{Params: []string{"layers.wk"}, Split: []string{"s"}, Slots: 1},
		{Params: []string{"layers.experts.w_down"}, Split: []string{"s"}, Slots: 4},
	}},
}

// Whatever the mesh, the update is that of one device, also where the layers are
// no multiple of the devices or fewer; replicas agree (the harness checks it).
func TestMuonShardedEqualsOneDevice(t *testing.T) {
	for name, c := range meshes {
		t.Run(name, func(t *testing.T) {
			var planned []string
			for _, j := range c.plan {
				planned = append(planned, j.Params...)
			}
			s := muonSetup(1e-2, slices.DeleteFunc(blocks(c.layers), func(p optim.Param) bool {
				return strings.Contains(p.Name, ".w") && !slices.Contains(planned, p.Name)
			})...)
			one := s.start(t, chirps(s.params))
			m, err := mesh.New(c.axes, nil)
			require.NoError(t, err)
			s.mesh, s.specs, s.split = m, place(s.params, c.rules), c.split
			many := s.start(t, chirps(s.params))
			worst := 0.0
			for n := range 2 {
				g := chirpGradients(s.params, n, 1)
				one.step(n, 0, g...)
				many.step(n, 0, g...)
			}
			for i, p := range s.params {
				a, b := decode(dtype.F32, one.params[i]), decode(dtype.F32, many.params[i])
				for k := range a {
					worst = math.Max(worst, math.Abs(a[k]-b[k]))
				}
				require.InDeltaSlice(t, a, b, 1e-6, p.Name)
			}
			plan, err := optim.Plan(many.o, m, s.specs)
			require.NoError(t, err)
			require.Equal(t, c.plan, plan)
			t.Logf("worst difference %.2g", worst)
			params := many.params
			broken := chirpGradients(s.params, 2, 1)
			broken[1][len(broken[1])-1] = float32(math.NaN()) // on one device only
			many.step(2, 0, broken...)
			require.Equal(t, params, many.params)
			require.EqualValues(t, 1, many.skips)
		})
	}
}

func TestMuonMustKnowTheSpecs(t *testing.T) {
	s := muonSetup(1e-2, blocks(1)...)
	var err error
	s.mesh, err = mesh.New(axes("s", 8), nil)
	require.NoError(t, err)
	s.specs, s.silent = place(s.params, nil), true
	_, err = s.trace(t, s.optimizer(t))
	require.ErrorContains(t, err, "set Inputs.Specs")
}

// muonFlops is what the matrices of p take, all of them: in each iteration
// 2·s²·l for the Gram matrix, 2·s³ for its square and 2·s²·l for the product.
func muonFlops(p optim.Param, steps int) float64 {
	rows, cols, count := sides(p)
	s, l := float64(min(rows, cols)), float64(max(rows, cols))
	return float64(count*steps) * (4*s*s*l + 2*s*s*s)
}

// dotFlops adds up the contractions that one device computes.
func dotFlops(m *hlo.Module) float64 {
	sum := 0.0
	m.Walk(func(i *hlo.Instruction, times int64) {
		ops := []*hlo.Instruction{i}
		if i.Opcode == "fusion" {
			ops = i.Called[0].Order()
		}
		for _, i := range ops {
			if i.Opcode != "dot" {
				continue
			}
			n := 2 * elements(i.Shape.Dims)
			for _, d := range i.Dot.LHSContract {
				n *= i.Operands[0].Shape.Dims[d]
			}
			sum += float64(n) * float64(times)
		}
	})
	return sum
}

// received is what a device has after each kind of collective, in elements,
// those of scalars left out.
func received(m *hlo.Module) map[string]int {
	out := map[string]int{}
	for _, c := range m.Collectives() {
		c.Op.Shape.Leaves(func(s hlo.Shape) {
			if n := elements(s.Dims); n > 1 {
				out[c.Kind()] += n * int(c.Times)
			}
		})
	}
	return out
}

// Compiled for eight devices, each computes an eighth, padding included, and
// matrices arrive and leave by collectives of an eighth of their size: nothing
// is replicated.
func TestMuonCompiledIsShared(t *testing.T) {
	params := []optim.Param{
		{Name: "layers.wq", Shape: []int{7, 32, 4, 16}, Axes: []string{"layer", "embed", "heads", "head_dim"}},
		{Name: "layers.experts.w_down", Shape: []int{7, 8, 16, 32}, Axes: []string{"layer", "expert", "expert_mlp", "embed"}},
	}
	all := muonFlops(params[0], 5)*8/7 + muonFlops(params[1], 5) // seven layers take the time of eight
	single := optim.Param{Name: "layers.wq", Shape: []int{1, 32, 4, 16}, Axes: params[0].Axes}
	one := float64(8*32*64+56*16*32) / 8 // elements a device has, padding included
	for name, c := range map[string]struct {
		axes     []mesh.Axis
		rules    map[string]any
		split    *float64
		flops    float64
		received map[string]int
		params   []optim.Param
	}{
		"fsdp 8":                {axes("s", 8), map[string]any{"embed": "s"}, nil, all / 8, map[string]int{"all-to-all": int(2 * one)}, params},
		"replicate 2 x shard 4": {axes("r", 2, "s", 4), map[string]any{"embed": "s"}, nil, all / 8, map[string]int{"all-to-all": int(2 * one), "all-gather": int(2 * one)}, params},
		"shard 2 x ep 2 x tp 2": {axes("s", 2, "e", 2, "t", 2), map[string]any{"embed": []string{"s", "e"}, "heads": "t", "expert": "e", "expert embed": "s", "expert_mlp": "t"}, nil,
			all / 8, map[string]int{"all-to-all": int(4 * one)}, params},
		// One matrix for four pairs of devices: each of a pair does half of it.
		"split over tp": {axes("r", 2, "s", 2, "t", 2), map[string]any{"embed": "s", "heads": "t"}, ptr(0),
			muonFlops(single, 5) / 2, map[string]int{"all-to-all": 2 * 32 * 64 / 2, "reduce-scatter": 5 * 32 * 32 / 2, "all-gather": 2 * 5 * 32 * 32}, []optim.Param{single}},
	} {
		t.Run(name, func(t *testing.T) {
			s := muonSetup(1e-2, c.params...)
			var err error
			s.mesh, err = mesh.New(c.axes, nil)
			require.NoError(t, err)
			s.specs, s.split = place(s.params, c.rules), c.split
			prog, err := s.trace(t, s.optimizer(t))
			require.NoError(t, err)
			require.InEpsilon(t, c.flops, prog.Cost().Device[graph.CostContraction].Flops, 1e-9)
			m, err := xlatest.Compile(t, xlatest.CPU(t), prog.StableHLO(), 8).OptimizedHLO()
			require.NoError(t, err)
			require.InEpsilon(t, c.flops, dotFlops(m), 1e-9)
			require.Equal(t, c.received, received(m))
		})
	}
}

// Compiled for a TPU, matrices travel in muon_ns_dtype, once in either
// direction, and nothing else does but the norm.
func TestMuonCompiledForTPU(t *testing.T) {
	topo, err := xlatest.TPU(t).NewTopology("v5e:2x4", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, topo.Close()) }()
	s := muonSetup(1e-2, optim.Param{Name: "layers.w_up", Shape: []int{8, 256, 512}, Axes: []string{"layer", "embed", "mlp"}})
	s.cfg.MuonNSDType, s.fused = "bfloat16", true
	s.mesh, err = mesh.New(axes("s", 8), nil)
	require.NoError(t, err)
	s.specs = place(s.params, map[string]any{"embed": "s"})
	prog, err := s.trace(t, s.optimizer(t))
	require.NoError(t, err)
	x, err := topo.Compile([]byte(prog.StableHLO()), pjrt.CompileOptions{Partitions: 8, Shardy: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	m, err := x.OptimizedHLO()
	require.NoError(t, err)
	require.Equal(t, map[string]int{"all-to-all": 2 * 256 * 512}, received(m))
	for _, c := range m.Collectives() {
		if c.Kind() == "all-to-all" {
			c.Op.Shape.Leaves(func(s hlo.Shape) { require.Equal(t, dtype.BF16, s.Type.DType()) })
		}
	}
}
