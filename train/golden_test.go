package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/models/decoder"
	"titan/optim"
	"titan/parallel"
	"titan/pjrt"
	"titan/sharding"
)

const goldens = "../models/decoder/testdata/golden"

// golden is one case of the reference values.
type golden struct {
	dir      string
	family   string
	model    decoder.Config
	io       *safetensors.File
	expected struct {
		Loss       float64   `json:"loss"`
		LossMasked float64   `json:"loss_masked"`
		GradNorm   float64   `json:"grad_norm"`
		Aux        float64   `json:"aux_loss_load_balancing"`
		Losses     []float64 `json:"train_losses"`
		Norms      []float64 `json:"train_grad_norms"`
	}
}

func loadGolden(t *testing.T, name string) *golden {
	t.Helper()
	g := &golden{dir: filepath.Join(goldens, name)}
	m, err := hfmodel.Open(g.dir)
	require.NoError(t, err)
	g.family, g.model = m.Family, m.Config
	require.NoError(t, m.Close())
	raw, err := os.ReadFile(filepath.Join(g.dir, "expected.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &g.expected))
	g.io, err = safetensors.Open(filepath.Join(g.dir, "io.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.io.Close() })
	return g
}

// ours reads a file of tensors in the Hugging Face layout as our parameters.
func (g *golden) ours(t *testing.T, file string) map[string][]float32 {
	t.Helper()
	set, err := safetensors.Open(filepath.Join(g.dir, file))
	require.NoError(t, err)
	defer set.Close()
	src, err := hfmodel.View(g.family, g.model, file, set, dtype.F32)
	require.NoError(t, err)
	out := map[string][]float32{}
	for _, p := range g.model.Params() {
		dst := make([]byte, 4*p.Elements())
		require.NoError(t, src.ReadRegion(p.Name, sharding.Whole(p.Shape), dst))
		out[p.Name] = floats(dst)
	}
	return out
}

func floats(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = float32(dtype.Float(dtype.F32, raw, i))
	}
	return out
}

func ints(t *testing.T, f *safetensors.File, name string) []int32 {
	t.Helper()
	raw, err := f.Bytes(name)
	require.NoError(t, err)
	out := make([]int32, len(raw)/4)
	for i := range out {
		out[i] = int32(uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24)
	}
	return out
}

// batch returns inputs and labels of batch k.
func (g *golden) batch(t *testing.T, k int) (tokens, labels []int32, valid []float32) {
	const rows, n = 2, 33
	all := ints(t, g.io, "tokens")[k*rows*n : (k+1)*rows*n]
	for r := range rows {
		row := all[r*n : (r+1)*n]
		tokens, labels = append(tokens, row[:n-1]...), append(labels, row[1:]...)
	}
	for range labels {
		valid = append(valid, 1)
	}
	return tokens, labels, valid
}

func testMesh(t *testing.T, replicate, shard int) *mesh.Mesh {
	t.Helper()
	m, err := mesh.New([]mesh.Axis{{Name: parallel.AxisReplicate, Size: replicate}, {Name: parallel.AxisShard, Size: shard}}, nil)
	require.NoError(t, err)
	return m
}

var f32Placement = parallel.Options{Compute: dtype.F32, Reduce: dtype.F32, Reshard: true}

func goldenOptimizer(t testing.TB, c decoder.Config, change ...func(*optim.Config)) *optim.Optimizer {
	t.Helper()
	o := optim.Defaults()
	o.LR = 1e-3
	for _, f := range change {
		f(&o)
	}
	s := optim.DefaultSchedule()
	s.WarmupSteps = 0
	zero := 0.0
	s.DecayRatio = &zero
	var ps []optim.Param
	for _, p := range c.Params() {
		ps = append(ps, optim.Param{Name: p.Name, Shape: p.Shape, Axes: p.Axes})
	}
	opt, err := optim.New(o, s, 10, 1, ps)
	require.NoError(t, err)
	for k := range 10 {
		require.EqualValues(t, []float32{1e-3}, opt.Rates(k))
	}
	return opt
}

// put places whole parameters on the devices.
func put(t *testing.T, c *Compiled, s *State, whole map[string][]float32) {
	t.Helper()
	for i, v := range s.Vars {
		raw := make([]byte, 4*v.Type.Elements())
		if x := whole[v.Name]; x != nil {
			raw = pjrt.AsBytes(x)
		}
		parts, err := c.Put(i, raw)
		require.NoError(t, err)
		for p := range parts {
			s.bufs[p][i] = parts[p]
		}
	}
}

var goldenNames = []string{"llama", "llama_rope3", "qwen3_tied", "qwen3_untied", "qwen3_moe"}

func goldenOptions(t *testing.T, g *golden, m *mesh.Mesh, rows int) StepOptions {
	model := g.model
	if model.MoE != nil {
		moe := *model.MoE
		moe.AuxLossCoef = 0 // not in the reference's loss
		model.MoE = &moe
	}
	return StepOptions{
		Model: model, Placement: f32Placement, Mesh: m, Optimizer: goldenOptimizer(t, model),
		Options: decoder.Options{Remat: decoder.ActivationCheckpoint{Mode: "none"}},
		Rows:    rows, SeqLen: 32, MomentsFirst: true,
	}
}

// padded returns the arrays of batch k, filled up to rows: more devices than
// sequences work on padding.
func (g *golden) padded(t *testing.T, k, rows int, masked bool) [][]byte {
	tokens, labels, valid := g.batch(t, k)
	if masked {
		labels = ints(t, g.io, "labels_masked")
		for i, l := range labels {
			if l < 0 {
				labels[i], valid[i] = 0, 0
			}
		}
	}
	pad := (rows - 2) * 32
	for i := range pad { // the same tokens again: not every expert is empty there
		tokens = append(tokens, tokens[i%64])
	}
	labels, valid = append(labels, make([]int32, pad)...), append(valid, make([]float32, pad)...)
	return [][]byte{pjrt.AsBytes(tokens), pjrt.AsBytes(labels), pjrt.AsBytes(valid)}
}

// goldenMesh is a mesh of the data-parallel axes.
type goldenMesh struct{ replicate, shard int }

// goldenMeshes returns one device for every model, and for those named the mesh too:
// that meshes agree with one device is tested by itself, see TestParity. With
// TITAN_LONG there are more for all.
func goldenMeshes(name string, also goldenMesh, models ...string) []goldenMesh {
	switch {
	case long:
		return []goldenMesh{{1, 1}, {1, 8}, {2, 4}}
	case slices.Contains(models, name):
		return []goldenMesh{{1, 1}, also}
	}
	return []goldenMesh{{1, 1}}
}

// Ten steps of training from the reference's parameters on its batches.
func TestGoldenTraining(t *testing.T) {
	for _, name := range goldenNames {
		g := loadGolden(t, name)
		initial, final := g.ours(t, "model.safetensors"), g.ours(t, "final.safetensors")
		for _, ms := range goldenMeshes(name, goldenMesh{2, 4}, "llama", "qwen3_moe") {
			t.Run(fmt.Sprintf("%s/%dx%d", name, ms.replicate, ms.shard), func(t *testing.T) {
				m := testMesh(t, ms.replicate, ms.shard)
				if m.Size() > 1 {
					quickly(t)
				}
				rows := max(2, m.Size())
				o := goldenOptions(t, g, m, rows)
				step, err := BuildStep(o)
				require.NoError(t, err)
				exe, err := virtual(t, m).Compile(step.Module)
				require.NoError(t, err)
				defer exe.Close()
				s, err := newState(m, step.Vars)
				require.NoError(t, err)
				defer s.Close()
				put(t, exe, s, initial)
				for k := range 10 {
					r := &Running{exe: exe, step: step, state: s}
					metrics, err := r.Step(o.Optimizer.Rates(k), g.padded(t, k%3, rows, false))
					require.NoError(t, err)
					require.InDelta(t, g.expected.Losses[k], metrics[MetricLoss], 1e-5, "loss of step %d", k)
					require.InEpsilon(t, g.expected.Norms[k], metrics[MetricGradNorm], 1e-5, "gradient norm of step %d", k)
					require.EqualValues(t, 64, metrics[MetricTokens])
					if k == 0 && g.expected.Aux > 0 && rows == 2 {
						require.InDelta(t, g.expected.Aux, metrics[MetricAux], 1e-5)
					}
				}
				var far, all int
				for name, want := range final {
					raw, err := s.Whole(s.index(name))
					require.NoError(t, err)
					for i, got := range floats(raw) {
						d := math.Abs(float64(got - want[i]))
						require.Less(t, d, 1e-3, "%s[%d]", name, i)
						if all++; d > 1e-5 {
							far++
						}
					}
				}
				require.LessOrEqual(t, float64(far), 0.001*float64(all), "%d of %d parameters are off by more than 1e-5", far, all)
			})
		}
	}
}

// Loss, masked loss and every gradient of the first batch, and its logits.
func TestGoldenGradients(t *testing.T) {
	for _, name := range goldenNames {
		g := loadGolden(t, name)
		initial, want := g.ours(t, "model.safetensors"), g.ours(t, "grads.safetensors")
		raw, err := g.io.Bytes("logits")
		require.NoError(t, err)
		logits := floats(raw)
		for _, ms := range goldenMeshes(name, goldenMesh{1, 8}, "qwen3_tied", "qwen3_moe") {
			t.Run(fmt.Sprintf("%s/%dx%d", name, ms.replicate, ms.shard), func(t *testing.T) {
				m := testMesh(t, ms.replicate, ms.shard)
				quickly(t) // TestGoldenTraining has the default effort
				rows := max(2, m.Size())
				o := goldenOptions(t, g, m, rows)
				o.Placement.Reshard = ms.replicate == 1 // both ways are right
				plan, err := NewPlan(m, o.Model, o.Placement)
				require.NoError(t, err)
				vars := append(ParamVars(plan, o.Model), batchVars(plan, o)...)
				mod, err := graph.Trace("gradients", m, func(b *graph.Builder) error {
					in := map[string]*graph.Value{}
					for _, v := range vars {
						in[v.Name] = b.Input(v.Name, v.Type, graph.Sharded(v.Spec))
					}
					s := gradients(b, plan, in, in, o)
					b.Output("loss", s.loss, graph.Sharded(sharding.Replicated(0)))
					for i, p := range o.Model.Params() {
						b.Output(p.Name, s.grads[i], graph.Sharded(plan.Spec(p.Name)))
					}
					model := &decoder.Model{Config: o.Model, Placement: plan, Options: o.Options}
					rows := plan.BatchSpec(3, 0)
					b.Output("logits", logitsOf(b, plan, model, in, batchVars(plan, o), rows), graph.Sharded(rows))
					return nil
				})
				require.NoError(t, err)
				exe, err := virtual(t, m).Compile(mod)
				require.NoError(t, err)
				defer exe.Close()
				run := func(batch [][]byte) map[string][]float32 {
					args := make([][]*pjrt.Buffer, m.Size())
					for i, v := range vars {
						data := pjrt.AsBytes(initial[v.Name])
						if k := i - len(initial); k >= 0 {
							data = batch[k]
						}
						parts, err := exe.Put(i, data)
						require.NoError(t, err)
						for p := range parts {
							args[p] = append(args[p], parts[p])
						}
					}
					outs, err := exe.Exe.Run(args, pjrt.ExecuteOptions{})
					require.NoError(t, err)
					defer pjrt.CloseBuffers(append(outs, args...)...)
					got := map[string][]float32{}
					for i, l := range exe.outputs {
						var shards [][]byte
						for p := range outs {
							raw, err := outs[p][i].Bytes()
							require.NoError(t, err)
							shards = append(shards, raw)
						}
						require.NoError(t, l.CheckReplicas(shards, 4))
						raw, err := l.Join(shards, 4)
						require.NoError(t, err)
						got[mod.Outputs()[i].Name] = floats(raw)
					}
					return got
				}
				batch, masked := g.padded(t, 0, rows, false), g.padded(t, 0, rows, true)
				got := run(batch)
				require.InDelta(t, g.expected.Loss, got["loss"][0], 5e-6)
				for i, x := range logits {
					require.InDelta(t, x, got["logits"][i], 3e-5, "logit %d", i)
				}
				for name, w := range want {
					most := 0.0
					for _, x := range w {
						most = max(most, math.Abs(float64(x)))
					}
					for i, x := range w {
						require.InDelta(t, x, got[name][i], 1e-5*most, "gradient of %s[%d], largest %g", name, i, most)
					}
				}
				require.InDelta(t, g.expected.LossMasked, run(masked)["loss"][0], 5e-6)
			})
		}
	}
}

// logitsOf computes the logits of a batch on a mesh.
func logitsOf(b *graph.Builder, plan *parallel.Plan, m *decoder.Model, in map[string]*graph.Value, batch []Var, out sharding.Spec) *graph.Value {
	var names []string
	var args []*graph.Value
	var specs []sharding.Spec
	for _, p := range m.Config.Params() {
		names, args, specs = append(names, p.Name), append(args, in[p.Name]), append(specs, plan.Spec(p.Name))
	}
	args, specs = append(args, in[BatchTokens]), append(specs, batch[0].Spec)
	return b.ShardMap(args, specs, []sharding.Spec{out}, func(local []*graph.Value) []*graph.Value {
		params := map[string]*graph.Value{}
		for i, n := range names {
			params[n] = local[i]
		}
		return []*graph.Value{m.Logits(b, params, decoder.Batch{Tokens: local[len(names)]})}
	})[0]
}
