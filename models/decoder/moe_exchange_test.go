package decoder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/parallel"
	"titan/pjrt"
	"titan/sharding"
)

// expertProblem is a feed-forward layer with experts and what goes into it.
type expertProblem struct {
	config  Config
	options Options
	B, S    int
	data    map[string][]byte // x, ct and the parameters
}

// skew says how much likelier tokens choose an expert than chance: x has a last
// column of 1, whose row of the router is skew.
func newExpertProblem(moe MoE, B, S, D int, skew []float32) *expertProblem {
	r := rand.New(rand.NewPCG(11, 12))
	p := &expertProblem{config: Config{Dim: D, Layers: 1, MoE: &moe}, B: B, S: S, data: map[string][]byte{}}
	floats := func(n int) []float32 {
		x := make([]float32, n)
		copy(pjrt.AsBytes(x), normals(r, n))
		return x
	}
	x := floats(B * S * D)
	router := floats(D * moe.Experts)
	if skew != nil {
		for i := range B * S {
			x[i*D+D-1] = 1
		}
		copy(router[(D-1)*moe.Experts:], skew)
	}
	E, F := moe.Experts, moe.HiddenDim
	p.data["x"], p.data["ct"], p.data["layers.router"] = pjrt.AsBytes(x), normals(r, B*S*D), pjrt.AsBytes(router)
	for i, n := range []int{E * D * F, E * D * F, E * F * D} {
		p.data[expertNames[i]] = normals(r, n)
	}
	return p
}

// expertResult is what a layer makes of a problem: the output, gradients of x and of
// parameters, and what the router did; all whole.
type expertResult map[string][]float32

// run computes the layer on a mesh with the given axes of package parallel.
func (p *expertProblem) run(t *testing.T, axes ...mesh.Axis) expertResult {
	t.Helper()
	for _, a := range []string{parallel.AxisShard, parallel.AxisReplicate} {
		if !slices.ContainsFunc(axes, func(x mesh.Axis) bool { return x.Name == a }) {
			axes = append([]mesh.Axis{{Name: a, Size: 1}}, axes...)
		}
	}
	m, err := mesh.New(axes, nil)
	require.NoError(t, err)
	p.config.Heads, p.config.KVHeads, p.config.HeadDim, p.config.VocabSize = 8, 8, 2, 64
	var ps []parallel.Param
	for _, x := range p.config.Arrays() {
		ps = append(ps, parallel.Param{Name: x.Name, Shape: x.Shape, Axes: x.Axes})
	}
	plan, err := parallel.New(m, ps, parallel.Options{Compute: dtype.F32, Reduce: dtype.F32, Reshard: true})
	require.NoError(t, err)
	tokens := plan.BatchSpec(3, 0)
	if !plan.Tensor().Alone() {
		tokens.Dims[1] = []string{parallel.AxisTensor}
	}
	names := []string{"x", "ct"}
	types := []graph.Type{graph.T(dtype.F32, p.B, p.S, p.config.Dim), graph.T(dtype.F32, p.B, p.S, p.config.Dim)}
	specs := []sharding.Spec{tokens, tokens}
	for _, x := range p.config.Arrays() {
		if p.data[x.Name] != nil {
			names, types, specs = append(names, x.Name), append(types, x.Type(dtype.F32)), append(specs, plan.Spec(x.Name))
		}
	}
	model := &Model{Config: p.config, Placement: plan, Options: p.options}
	outs := []string{"output", "chosen", "dropped"}
	mod, err := graph.Trace("experts", m, func(b *graph.Builder) error {
		var args []*graph.Value
		for i, n := range names {
			args = append(args, b.Input(n, types[i], graph.Sharded(specs[i])))
		}
		var outSpecs []sharding.Spec
		results := b.ShardMapOut(args, specs, func(in []*graph.Value) ([]*graph.Value, []sharding.Spec) {
			w := weights{}
			for i, n := range names[2:] {
				w[n] = graph.Squeeze(plan.Stack(in[i+2], n), 0)
			}
			y, r := model.experts(in[0], w)
			over := plan.Tokens()
			wrt := []*graph.Value{in[0]}
			outSpecs = []sharding.Spec{tokens, sharding.P(), sharding.P(), tokens}
			outs = append(outs[:3], "x")
			for i, n := range names[2:] {
				if n != RouterBias {
					wrt, outs, outSpecs = append(wrt, in[i+2]), append(outs, n), append(outSpecs, specs[i+2])
				}
			}
			g := graph.VJP([]*graph.Value{y}, []*graph.Value{in[1]}, wrt)
			return append([]*graph.Value{y, over.Sum(r.chosen), over.Sum(r.dropped)}, g...), outSpecs
		})
		for i, v := range results {
			b.Output(outs[i], v, graph.Sharded(outSpecs[i]))
		}
		return nil
	})
	require.NoError(t, err)
	args := make([][]xlatest.Array, m.Size())
	for i, n := range names {
		l, err := sharding.NewLayout(m, specs[i], types[i].Shape)
		require.NoError(t, err)
		shards, err := l.Split(p.data[n], 4, nil)
		require.NoError(t, err)
		for d, s := range shards {
			args[d] = append(args[d], xlatest.Array{DType: dtype.F32, Dims: l.Local(), Data: s})
		}
	}
	got := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), m.Size(), args)
	res := expertResult{}
	for i, port := range mod.Outputs() {
		l, err := sharding.NewLayout(m, *port.Spec, port.Type.Shape)
		require.NoError(t, err)
		var shards [][]byte
		for _, d := range got {
			shards = append(shards, d[i].Data)
		}
		require.NoError(t, l.CheckReplicas(shards, 4), port.Name)
		whole, err := l.Join(shards, 4)
		require.NoError(t, err)
		x := make([]float32, len(whole)/4)
		copy(pjrt.AsBytes(x), whole)
		res[port.Name] = x
	}
	return res
}

func (r expertResult) requireEqual(t *testing.T, got expertResult, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(r))
	for name, want := range r {
		requireClose(t, want, got[name], tolerance, name)
	}
}

func axis(name string, n int) mesh.Axis { return mesh.Axis{Name: name, Size: n} }

// Experts that devices share out give what they give on one device, however tokens
// choose: by chance, nearly all the same two, or never some.
func TestExchange(t *testing.T) {
	const E = 8
	skews := map[string][]float32{
		"random":  nil,
		"one":     {0, 0, 0, 30, 0, 0, 0, 0},
		"few":     {-30, 4, -30, -30, -30, 2, -30, 0},
		"devices": {-30, -30, -30, -30, 1, 1, 1, 1}, // the first half has nothing to do
	}
	meshes := [][]mesh.Axis{
		{axis(parallel.AxisExpert, 2)},
		{axis(parallel.AxisExpert, 8)},
		{axis(parallel.AxisExpert, 2), axis(parallel.AxisTensor, 4)},
		{axis(parallel.AxisReplicate, 1), axis(parallel.AxisShard, 2), axis(parallel.AxisExpert, 4)},
	}
	for name, skew := range skews {
		p := newExpertProblem(MoE{Experts: E, TopK: 2, HiddenDim: 16, NormTopK: true}, 8, 12, 16, skew)
		want := p.run(t)
		for _, axes := range meshes {
			t.Run(fmt.Sprint(name, axes), func(t *testing.T) {
				want.requireEqual(t, p.run(t, axes...), 1e-5)
			})
		}
		p.options.Kernels, p.options.ExpertTiles = &kernels.Target{Strict: true}, smallTiles
		byTiles := [][]mesh.Axis{nil, meshes[3]}
		if name == "one" { // in several rounds
			byTiles = append(byTiles, meshes[2])
		}
		for _, axes := range byTiles {
			t.Run(fmt.Sprint("by tiles ", name, axes), func(t *testing.T) {
				want.requireEqual(t, p.run(t, axes...), 1e-5)
			})
		}
	}
}

// With balance by force every expert gets the same number of tokens, whatever the
// router says, and on every mesh.
func TestForcedBalance(t *testing.T) {
	p := newExpertProblem(MoE{Experts: 8, TopK: 2, HiddenDim: 16, NormTopK: true}, 8, 12, 16, []float32{0, 0, 0, 30, 0, 0, 0, 0})
	p.options.ForceLoadBalance = true
	want := p.run(t)
	for _, n := range want["chosen"] {
		require.EqualValues(t, 8*12*2/8, n)
	}
	want.requireEqual(t, p.run(t, axis(parallel.AxisExpert, 8)), 1e-5)
	p.options.Kernels = &kernels.Target{}
	want.requireEqual(t, p.run(t), 1e-5)
}
