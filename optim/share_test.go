package optim_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/optim"
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
		{Name: "layers.w_down", Shape: []int{layers, 24, 16}, Axes: []string{"layer", "mlp", "embed"}},
		{Name: "layers.experts.w_up", Shape: []int{layers, 4, 16, 8}, Axes: []string{"layer", "expert", "embed", "expert_mlp"}},
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
}{
	"fsdp 8":                  {3, axes("s", 8), map[string]any{"embed": "s"}, nil},
	"replicate 2 x shard 4":   {3, axes("r", 2, "s", 4), map[string]any{"embed": "s"}, nil},
	"shard 4 x tp 2":          {3, axes("s", 4, "t", 2), map[string]any{"embed": "s", "heads": "t", "kv_heads": "t", "mlp": "t", "expert_mlp": "t", "vocab": "t"}, nil},
	"shard 2 x ep 2 x tp 2":   {3, axes("s", 2, "e", 2, "t", 2), map[string]any{"embed": []string{"s", "e"}, "heads": "t", "kv_heads": "t", "mlp": "t", "expert": "e", "expert embed": "s", "expert_mlp": "t"}, nil},
	"pp 2 x shard 2 x cp 2":   {4, axes("p", 2, "s", 2, "c", 2), map[string]any{"layer": "p", "embed": []string{"s", "c"}}, nil},
	"replicate 8":             {3, axes("r", 8), nil, nil},
	"split over shard and tp": {1, axes("r", 2, "s", 2, "t", 2), map[string]any{"embed": "s", "heads": "t", "kv_heads": "t", "mlp": "t", "expert_mlp": "t"}, ptr(0)},
	"split over shard 8":      {1, axes("s", 8), map[string]any{"embed": "s"}, ptr(0)},
}

// Whatever the mesh, the update is that of one device, also where the layers are
// no multiple of the devices or fewer; replicas agree (the harness checks it).
func TestMuonShardedEqualsOneDevice(t *testing.T) {
	for name, c := range meshes {
		t.Run(name, func(t *testing.T) {
			s := muonSetup(1e-2, blocks(c.layers)...)
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
				require.InDeltaSlice(t, a, b, 2e-6, p.Name)
			}
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
	require.ErrorContains(t, err, "Inputs.Specs has 0 specs for 10 parameters")
}

var _ = fmt.Sprint
var _ = graph.F32
var _ = xlatest.CPU
var _ hlo.Module
