package train

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/graph"
	"titan/kernels"
	"titan/mesh"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
	"titan/sharding"
)

// degrees are sizes of mesh axes, as "dp_shard=4 tp=2".
type degrees string

func (d degrees) mesh(t testing.TB) *mesh.Mesh {
	t.Helper()
	size := map[string]int{}
	for _, f := range strings.Fields(string(d)) {
		name, n, ok := strings.Cut(f, "=")
		require.True(t, ok && slices.Contains(parallel.AxisNames(), name), "%s", f)
		_, err := fmt.Sscan(n, mapTarget(size, name))
		require.NoError(t, err)
	}
	var axes []mesh.Axis
	for _, a := range parallel.AxisNames() {
		if n := max(1, size[a]); n > 1 || a == parallel.AxisReplicate || a == parallel.AxisShard {
			axes = append(axes, mesh.Axis{Name: a, Size: n})
		}
	}
	m, err := mesh.New(axes, nil)
	require.NoError(t, err)
	return m
}

func mapTarget(m map[string]int, key string) *intTarget { return &intTarget{m, key} }

type intTarget struct {
	m   map[string]int
	key string
}

func (t *intTarget) Scan(s fmt.ScanState, verb rune) error {
	var n int
	_, err := fmt.Fscan(s, &n)
	t.m[t.key] = n
	return err
}

// parityCase is one combination of a mesh with what is trained on it.
type parityCase struct {
	mesh   degrees
	moe    bool
	packed bool // positions and segments of several documents
	passes int
	change func(o *StepOptions)
}

func (c parityCase) String() string {
	kind := "dense"
	if c.moe {
		kind = "moe"
	}
	if c.packed {
		kind += " packed"
	}
	return fmt.Sprintf("%s %s ×%d", strings.ReplaceAll(string(c.mesh), " ", ","), kind, max(1, c.passes))
}

// parityModel has 4 layers, so that two stages of two layers are possible.
func parityModel(moe bool) decoder.Config {
	c := decoder.Config{
		VocabSize: 64, Dim: 32, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 8, HiddenDim: 64, MaxSeqLen: 64,
		NormEps: 1e-6, RopeTheta: 1e4, QKNorm: true,
	}
	if moe {
		c.MoE = &decoder.MoE{Experts: 8, TopK: 2, HiddenDim: 32, NormTopK: true, AuxLossCoef: 0.01, ZLossCoef: 0.001}
	}
	return c
}

const (
	parityRows = 16 // sequences of a step over all devices and passes
	paritySeq  = 32
)

// batch makes the arrays of a step: tokens with something to learn, and documents
// whose ends differ from row to row.
func (c parityCase) batch(seed uint64) map[string][]byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	n := parityRows * paritySeq
	tokens, labels, positions, segments := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	valid := make([]float32, n)
	for r := range parityRows {
		last, pos, seg := int32(rng.IntN(vocab)), int32(0), int32(0)
		for s := range paritySeq {
			i := r*paritySeq + s
			tokens[i], positions[i], segments[i] = last, pos, seg
			if last = (last*5 + 3) % vocab; rng.IntN(4) == 0 {
				last = int32(rng.IntN(vocab))
			}
			labels[i], valid[i] = last, 1
			pos++
			if rng.IntN(9) == 0 { // a document ends
				valid[i], pos, seg = 0, 0, seg+1
			}
		}
	}
	return map[string][]byte{
		BatchTokens: pjrt.AsBytes(tokens), BatchLabels: pjrt.AsBytes(labels), BatchValid: pjrt.AsBytes(valid),
		BatchPositions: pjrt.AsBytes(positions), BatchSegments: pjrt.AsBytes(segments),
	}
}

func (c parityCase) options(t testing.TB) StepOptions {
	t.Helper()
	model := parityModel(c.moe)
	passes := max(1, c.passes)
	o := StepOptions{
		Model: model, Placement: f32Placement, Mesh: c.mesh.mesh(t), Optimizer: goldenOptimizer(t, model),
		Options: decoder.Options{Remat: decoder.ActivationCheckpoint{Mode: "full"}, LossChunks: 2},
		Rows:    parityRows / passes, Passes: passes, SeqLen: paritySeq, MomentsFirst: true,
		Positions: c.packed, Segments: c.packed,
	}
	if c.change != nil {
		c.change(&o)
	}
	return o
}

// parityResult is what a step computes: scalars and every gradient, whole.
type parityResult struct {
	scalars map[string]float64
	grads   map[string][]float32
}

// gradientProgram computes loss and gradients of a batch, without the update.
func (c parityCase) gradientProgram(t testing.TB, o StepOptions) (*Compiled, []Var) {
	t.Helper()
	plan, err := NewPlan(o.Mesh, o.Model, o.Placement)
	require.NoError(t, err)
	vars := append(ParamVars(plan, o.Model), batchVars(plan, o)...)
	mod, err := graph.Trace("gradients", o.Mesh, func(b *graph.Builder) error {
		in := map[string]*graph.Value{}
		for _, v := range vars {
			in[v.Name] = b.Input(v.Name, v.Type, graph.Sharded(v.Spec))
		}
		s := gradients(b, plan, in, in, o)
		for i, p := range o.Model.Params() {
			b.Output(p.Name, s.grads[i], graph.Sharded(plan.Spec(p.Name)))
		}
		for name, v := range map[string]*graph.Value{MetricLoss: s.loss, MetricTokens: s.tokens, MetricAux: s.aux, MetricZ: s.z} {
			if v != nil {
				b.Output(name, v, graph.Sharded(sharding.Replicated(0)))
			}
		}
		return nil
	})
	require.NoError(t, err)
	exe, err := virtual(t, o.Mesh).Compile(mod)
	require.NoError(t, err)
	return exe, vars
}

func (c parityCase) run(t testing.TB, params map[string][]byte) parityResult {
	t.Helper()
	o := c.options(t)
	exe, vars := c.gradientProgram(t, o)
	defer exe.Close()
	data := maps.Clone(params)
	maps.Copy(data, c.batch(7))
	args := make([][]*pjrt.Buffer, o.Mesh.Size())
	for i, v := range vars {
		parts, err := exe.Put(i, data[v.Name])
		require.NoError(t, err)
		for p := range parts {
			args[p] = append(args[p], parts[p])
		}
	}
	outs, err := exe.Exe.Run(args, pjrt.ExecuteOptions{})
	require.NoError(t, err)
	defer pjrt.CloseBuffers(append(outs, args...)...)
	res := parityResult{map[string]float64{}, map[string][]float32{}}
	for i, l := range exe.outputs {
		var shards [][]byte
		for p := range outs {
			raw, err := outs[p][i].Bytes()
			require.NoError(t, err)
			shards = append(shards, raw)
		}
		require.NoError(t, l.CheckReplicas(shards, 4), exe.Module.Outputs()[i].Name)
		raw, err := l.Join(shards, 4)
		require.NoError(t, err)
		if name := exe.Module.Outputs()[i].Name; params[name] != nil {
			res.grads[name] = floats(raw)
		} else {
			res.scalars[name] = float64(floats(raw)[0])
		}
	}
	return res
}

// parityParams draws the parameters of a model, larger than they begin, so that
// attention and routing are not nearly uniform.
func parityParams(c decoder.Config) map[string][]byte {
	rng := rand.New(rand.NewPCG(3, 4))
	out := map[string][]byte{}
	for _, p := range c.Params() {
		x := make([]float32, p.Elements())
		for i := range x {
			if p.Init.Std > 0 {
				x[i] = float32(rng.NormFloat64() * 0.3)
			} else {
				x[i] = float32(1 + 0.2*rng.NormFloat64())
			}
		}
		out[p.Name] = pjrt.AsBytes(x)
	}
	return out
}

// compare returns the largest difference of a gradient, relative to the largest
// element of that gradient, with the parameter's name.
func (r parityResult) compare(o parityResult) (worst float64, name string) {
	for n, want := range r.grads {
		most := 0.0
		for _, x := range want {
			most = max(most, math.Abs(float64(x)))
		}
		for i, x := range want {
			d := math.Abs(float64(o.grads[n][i] - x))
			if math.IsNaN(d) {
				d = math.Inf(1)
			}
			if d /= max(most, 1e-30); d > worst {
				worst, name = d, n
			}
		}
	}
	return worst, name
}

var parityCases = []parityCase{
	{mesh: "dp_shard=8", passes: 1},
	{mesh: "dp_replicate=2 dp_shard=4", packed: true},
	{mesh: "dp_replicate=2 dp_shard=2", moe: true, passes: 4, packed: true},
	{mesh: "tp=8"}, // more than key/value heads
	{mesh: "dp_replicate=2 dp_shard=2 tp=2", passes: 4},
	{mesh: "dp_shard=4 tp=2", moe: true, packed: true, passes: 4},
	{mesh: "cp=8"},
	{mesh: "dp_shard=4 cp=2", packed: true, passes: 4},
	{mesh: "dp_shard=2 cp=2 tp=2", packed: true, moe: true},
	{mesh: "dp_shard=2 cp=4", packed: true, change: gatherKeys},
	{mesh: "dp_shard=2 cp=2 tp=2", packed: true, change: tiles},
	{mesh: "ep=8", moe: true},
	{mesh: "dp_shard=2 ep=2", moe: true, packed: true, passes: 4},
	{mesh: "dp_replicate=2 dp_shard=2 ep=2", moe: true, change: expertTiles},
	{mesh: "ep=2 cp=2 tp=2", moe: true, packed: true},
	{mesh: "pp=4"},
	{mesh: "pp=2 dp_replicate=2 dp_shard=2", passes: 4, moe: true},
	{mesh: "pp=2 ep=2 tp=2", passes: 4, moe: true, packed: true},
	{mesh: "pp=2 dp_shard=2 cp=2 tp=2", passes: 4, packed: true}, // 16 devices
	{mesh: "pp=4 dp_shard=2", passes: 4, change: keepGathered},
	{mesh: "dp_replicate=2 dp_shard=4", passes: 2, change: layerAhead},
	{mesh: "dp_replicate=2 dp_shard=2 ep=2", moe: true, change: layerAhead},
}

// moreParityCases are for TITAN_LONG: other sizes and other sets of the same axes.
var moreParityCases = []parityCase{
	{mesh: "dp_replicate=4 dp_shard=2", moe: true},
	{mesh: "tp=2"},
	{mesh: "dp_shard=2 tp=4", packed: true},
	{mesh: "tp=2", moe: true},
	{mesh: "cp=2", packed: true},
	{mesh: "dp_replicate=2 cp=4", moe: true},
	{mesh: "cp=2 tp=4"},
	{mesh: "ep=2", moe: true},
	{mesh: "dp_replicate=2 dp_shard=2 ep=2", moe: true},
	{mesh: "dp_shard=2 ep=2 tp=4", moe: true}, // 16 devices
	{mesh: "pp=2", passes: 4},
	{mesh: "pp=2 dp_shard=2 tp=2", passes: 4, packed: true},
	{mesh: "pp=2 cp=2 tp=2", passes: 4},
	{mesh: "pp=2 dp_shard=2 ep=2 cp=2", passes: 4, moe: true, packed: true}, // 16 devices
	{mesh: "dp_shard=4 tp=2", passes: 4, change: keepGathered},
}

func gatherKeys(o *StepOptions) { o.Options.Attention.Context = "allgather" }

// tiles computes attention by tile kernels, interpreted.
func tiles(o *StepOptions) {
	o.Options.Kernels, o.Options.Attention.Tiles = &kernels.Target{Strict: true}, kernels.AttentionTiles{Q: 8, K: 4}
	o.Options.PlainExperts = true
}

// expertTiles has experts computed by tile kernels, and attention by plain operations.
func expertTiles(o *StepOptions) {
	o.Options.Kernels, o.Options.Attention.Plain = &kernels.Target{Strict: true}, true
	o.Options.ExpertTiles.Product.M, o.Options.ExpertTiles.LHS.M, o.Options.ExpertTiles.RHS.M = 16, 32, 16
}

func layerAhead(o *StepOptions) { o.LayerAhead = true }

func keepGathered(o *StepOptions) { o.Placement.Reshard = false }

// Loss and every gradient of every combination equal those of one device, in one
// pass but for experts, whose auxiliary losses are those of a pass.
func TestParity(t *testing.T) {
	quickly(t)
	reference := map[string]parityResult{}
	cases := parityCases
	if long {
		cases = slices.Concat(cases, moreParityCases)
	}
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			params := parityParams(parityModel(c.moe))
			alone := c
			alone.mesh, alone.change = "dp_shard=1", nil
			if !c.moe {
				alone.passes = 1
			}
			key := alone.String()
			if reference[key].grads == nil {
				reference[key] = alone.run(t, params)
			}
			want, got := reference[key], c.run(t, params)
			for n, x := range want.scalars {
				require.InEpsilon(t, x, got.scalars[n], 2e-6, n)
			}
			worst, name := want.compare(got)
			t.Logf("largest difference of a gradient: %.2g of its largest element (%s)", worst, name)
			require.Less(t, worst, 2e-5, name)
		})
	}
}
