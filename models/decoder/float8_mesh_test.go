package decoder

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/parallel"
	"titan/pjrt"
	"titan/sharding"
)

// float8Layer is the products of a layer, each of operands of its own, so that an
// operand is bit for bit the same on every mesh.
type float8Layer struct {
	config Config
	B, S   int
}

// values lists inputs and outputs: tokens are [B, S, D] as between blocks, others
// have heads or feed-forward width.
func (l float8Layer) values(plan *parallel.Plan) (types map[string]graph.Type, specs map[string]sharding.Spec) {
	c := l.config
	batch := plan.BatchSpec(1, 0).Dims[0]
	present := func(axes ...string) (out []string) {
		for _, a := range axes {
			if plan.Mesh().AxisSize(a) > 1 {
				out = append(out, a)
			}
		}
		return out
	}
	between := sharding.Spec{Dims: [][]string{batch, present("cp", "tp"), nil}}
	wide := sharding.Spec{Dims: [][]string{batch, present("cp"), present("tp")}}
	heads := sharding.Spec{Dims: [][]string{batch, present("cp"), present("tp"), nil}}
	types, specs = map[string]graph.Type{}, map[string]sharding.Spec{}
	add := func(t graph.Type, s sharding.Spec, names ...string) {
		for _, n := range names {
			types[n], specs[n] = t, s
		}
	}
	add(graph.T(dtype.F32, l.B, l.S, c.Dim), between, "x", "ct attn", "ct down")
	add(graph.T(dtype.F32, l.B, l.S, c.Heads, c.HeadDim), heads, "o", "ct q")
	add(graph.T(dtype.F32, l.B, l.S, c.KVHeads, c.HeadDim), heads, "ct k")
	add(graph.T(dtype.F32, l.B, l.S, c.HiddenDim), wide, "f", "ct gate")
	for _, p := range c.Params() {
		if isProjection(p.Name) && p.Name != "layers.wv" && p.Name != "layers.w_up" {
			add(p.Type(dtype.F32), plan.Spec(p.Name), p.Name)
		}
	}
	return types, specs
}

// run returns the products, named as their cotangents, and all gradients.
func (l float8Layer) run(t *testing.T, o Float8, data map[string][]byte, axes ...mesh.Axis) map[string][]float32 {
	t.Helper()
	m, err := mesh.New(axes, nil)
	require.NoError(t, err)
	var ps []parallel.Param
	for _, x := range l.config.Params() {
		ps = append(ps, parallel.Param{Name: x.Name, Shape: x.Shape, Axes: x.Axes})
	}
	plan, err := parallel.New(m, ps, parallel.Options{Compute: dtype.F32, Reduce: dtype.F32, Reshard: true})
	require.NoError(t, err)
	types, specs := l.values(plan)
	model := &Model{Config: l.config, Placement: plan, Options: Options{Float8: o, Float8InBF16: true}}
	products := []string{"ct q", "ct k", "ct gate", "ct attn", "ct down"}
	wrt := []string{"x", "o", "f", "layers.wq", "layers.wk", "layers.w_gate", "layers.wo", "layers.w_down"}
	names := append(append([]string{}, products...), wrt...)
	mod, err := graph.Trace("float8", m, func(b *graph.Builder) error {
		var args []*graph.Value
		var in []sharding.Spec
		for _, n := range names {
			args, in = append(args, b.Input(n, types[n], graph.Sharded(specs[n]))), append(in, specs[n])
		}
		outs := b.ShardMap(args, in, in, func(local []*graph.Value) []*graph.Value {
			v, w := map[string]*graph.Value{}, weights{}
			for i, n := range names {
				if v[n] = local[i]; isProjection(n) {
					w[n] = graph.Squeeze(plan.Stack(v[n], n), 0)
				}
			}
			x := plan.Enter(v["x"])
			y := model.project("bsd,dhk->bshk", x, w, "layers.wq", "layers.wk")
			y = append(y, model.project("bsd,df->bsf", x, w, "layers.w_gate")...)
			y = append(y, plan.Leave(model.project("bshk,hkd->bsd", v["o"], w, "layers.wo")[0]))
			y = append(y, plan.Leave(model.project("bsf,fd->bsd", v["f"], w, "layers.w_down")[0]))
			n := len(products)
			return append(y, graph.VJP(y, local[:n], local[n:])...)
		})
		for i, n := range names {
			b.Output(n, outs[i], graph.Sharded(specs[n]))
		}
		return nil
	})
	require.NoError(t, err)
	args := make([][]xlatest.Array, m.Size())
	for _, n := range names {
		layout, err := sharding.NewLayout(m, specs[n], types[n].Shape)
		require.NoError(t, err)
		shards, err := layout.Split(data[n], 4, nil)
		require.NoError(t, err)
		for d, s := range shards {
			args[d] = append(args[d], xlatest.Array{DType: dtype.F32, Dims: layout.Local(), Data: s})
		}
	}
	got := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), m.Size(), args)
	res := map[string][]float32{}
	for i, n := range names {
		layout, err := sharding.NewLayout(m, specs[n], types[n].Shape)
		require.NoError(t, err)
		var shards [][]byte
		for _, d := range got {
			shards = append(shards, d[i].Data)
		}
		require.NoError(t, layout.CheckReplicas(shards, 4), n)
		whole, err := layout.Join(shards, 4)
		require.NoError(t, err)
		x := make([]float32, len(whole)/4)
		copy(pjrt.AsBytes(x), whole)
		res[n] = x
	}
	return res
}

// Scales belong to whole rows and tensors: products and gradients do not depend on
// how devices share out tokens, heads, feed-forward width and parameters.
func TestFloat8OnMeshes(t *testing.T) {
	l := float8Layer{config: Config{VocabSize: 32, Dim: 32, Layers: 1, Heads: 8, KVHeads: 4, HeadDim: 8, HiddenDim: 64}, B: 4, S: 16}
	one, err := mesh.New([]mesh.Axis{axis("dp_replicate", 1), axis("dp_shard", 1)}, nil)
	require.NoError(t, err)
	plan, err := parallel.New(one, nil, parallel.Options{Compute: dtype.F32, Reduce: dtype.F32})
	require.NoError(t, err)
	types, _ := l.values(plan)
	r := rand.New(rand.NewPCG(9, 9))
	data := map[string][]byte{}
	for _, n := range []string{"x", "o", "f", "ct q", "ct k", "ct gate", "ct attn", "ct down", "layers.wq", "layers.wk", "layers.wo", "layers.w_gate", "layers.w_down"} {
		shape := types[n].Shape
		last := shape[len(shape)-1]
		data[n] = pjrt.AsBytes(wide(r, types[n].Elements()/last, last))
	}
	for _, c := range []struct {
		recipe string
		gather bool
		axes   []mesh.Axis
	}{
		{RecipeTensorwise, false, []mesh.Axis{axis("dp_replicate", 2), axis("dp_shard", 1), axis("tp", 2)}},
		{RecipeTensorwise, true, []mesh.Axis{axis("dp_replicate", 1), axis("dp_shard", 2), axis("cp", 2), axis("tp", 2)}},
		{RecipeRowwise, false, []mesh.Axis{axis("dp_replicate", 1), axis("dp_shard", 2), axis("tp", 2)}},
		{RecipeRowwiseGradHP, false, []mesh.Axis{axis("dp_replicate", 1), axis("dp_shard", 1), axis("cp", 2), axis("tp", 4)}},
	} {
		t.Run(fmt.Sprint(c.recipe, c.axes), func(t *testing.T) {
			o := Float8{Enable: true, Recipe: c.recipe, AllGather: c.gather}
			got := l.run(t, o, data, c.axes...)
			o.AllGather = false
			want := l.run(t, o, data, axis("dp_replicate", 1), axis("dp_shard", 1))
			require.Len(t, got, len(want))
			for n := range want {
				requireClose(t, want[n], got[n], 1e-6, n)
			}
		})
	}
}
