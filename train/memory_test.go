package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/human"
	"titan/internal/xlatest"
	"titan/models/decoder"
	"titan/optim"
	"titan/pjrt"
)

// memoryModel has 16 layers whose matrices outweigh their vectors, which are not
// sharded.
func memoryModel() decoder.Config {
	return decoder.Config{
		VocabSize: 64, Dim: 128, Layers: 16, Heads: 8, KVHeads: 4, HeadDim: 16, HiddenDim: 256, MaxSeqLen: 256,
		NormEps: 1e-6, RopeTheta: 1e4,
	}
}

// memoryOptions is a step whose activations outweigh everything else: 8 sequences
// of 64 tokens for every device of the data-parallel axes.
func memoryOptions(t testing.TB, mesh degrees, policy decoder.ActivationCheckpoint) StepOptions {
	t.Helper()
	model, m := memoryModel(), mesh.mesh(t)
	return StepOptions{
		Model: model, Placement: f32Placement, Mesh: m, Optimizer: goldenOptimizer(t, model),
		Options: decoder.Options{Remat: policy, LossChunks: 2},
		Rows:    8 * 8, SeqLen: 64, MomentsFirst: true,
	}
}

func policyOf(option string) decoder.ActivationCheckpoint {
	if option == decoder.RematNone || option == decoder.RematFull {
		return decoder.ActivationCheckpoint{Mode: option}
	}
	return decoder.ActivationCheckpoint{Mode: decoder.RematSelective, SelectiveOption: option}
}

// measured compiles steps once for all tests.
type measured struct {
	t     testing.TB
	stats map[string]pjrt.MemoryStats // by program
}

var measuredSteps = map[string]pjrt.MemoryStats{}

func newMeasured(t testing.TB) *measured { return &measured{t, measuredSteps} }

// of returns the compiler's account of a step on virtual devices.
func (m *measured) of(s *Step) pjrt.MemoryStats {
	m.t.Helper()
	text := s.Module.StableHLO()
	if _, ok := m.stats[text]; !ok {
		exe, err := (&Machine{Client: xlatest.CPU(m.t), Mesh: s.Plan.Mesh(), OnCPU: true}).Compile(s.Module)
		require.NoError(m.t, err)
		defer exe.Close()
		m.stats[text], err = exe.Exe.MemoryStats()
		require.NoError(m.t, err)
	}
	return m.stats[text]
}

// narrowState is the bytes of parameters in f32 and of two moments in bf16.
func narrowState(c decoder.Config) int64 {
	all, _, _ := c.Count()
	return all * (4 + 2 + 2)
}

// What a device holds, as the plugin counts it. Parameters and optimiser state are
// a part of the whole, and temporaries are ordered as theory has it: a policy that
// keeps more values takes more, by the bytes of these values.
func TestMemoryTable(t *testing.T) {
	quickly(t) // XLA's own passes, and its account of memory, are the same
	m := newMeasured(t)
	sets := []string{"none", "minimal_with_context", "minimal", "save_dot_except_mlp", "save_out_proj", "full"}
	chains := map[degrees][][]string{
		"dp_shard=8":                {sets, {"none", "4", "2", "full"}, {"minimal_with_context", "save_dot_with_context_except_mlp", "save_dot_except_mlp"}},
		"dp_replicate=2 dp_shard=4": {{"none", "2", "full"}, {"none", "minimal", "full"}},
		"dp_shard=4 tp=2":           {{"none", "2", "full"}, {"none", "minimal", "full"}},
	}
	if !long { // policies are the same on every mesh
		chains = map[degrees][][]string{
			"dp_shard=8":                {{"none", "minimal", "save_dot_except_mlp", "save_out_proj", "full"}, {"none", "2", "full"}},
			"dp_replicate=2 dp_shard=4": {{"minimal", "full"}},
			"dp_shard=4 tp=2":           {{"2", "full"}},
		}
	}
	parts := map[degrees]int64{"dp_shard=8": 8, "dp_replicate=2 dp_shard=4": 4, "dp_shard=4 tp=2": 8}
	for _, mesh := range []degrees{"dp_shard=8", "dp_replicate=2 dp_shard=4", "dp_shard=4 tp=2"} {
		temps := map[string]int64{}
		for _, chain := range chains[mesh] {
			for i, option := range chain {
				s, err := BuildStep(memoryOptions(t, mesh, policyOf(option)))
				require.NoError(t, err)
				got := m.of(s)
				if temps[option] == 0 {
					temps[option] = got.Temp
					f := s.Module.Footprint()
					t.Logf("%-28s %-34s state %s, temporaries %s, estimated %s", mesh, policyOf(option), human.Memory(got.Alias), human.Memory(got.Temp), human.Memory(f.Temp))
					var whole int64
					for _, v := range s.Vars {
						whole += int64(v.Type.Bytes())
					}
					require.InEpsilon(t, whole/parts[mesh], got.Alias, 0.02, "%s: state", mesh)
					require.InEpsilon(t, got.Temp, f.Temp, 0.25, "%s, %s: the program's own count", mesh, option)
				}
				if i > 0 {
					require.Less(t, temps[option], temps[chain[i-1]], "%s: %s keeps less than %s", mesh, option, chain[i-1])
				}
			}
		}
		if mesh != "dp_shard=8" {
			continue
		}
		// Moments in bf16 take half of theirs.
		half := memoryOptions(t, mesh, policyOf("full"))
		half.Optimizer = goldenOptimizer(t, half.Model, func(c *optim.Config) { c.StateDType = "bfloat16" })
		s, err := BuildStep(half)
		require.NoError(t, err)
		narrow := m.of(s)
		t.Logf("%-28s %-34s state %s, temporaries %s", mesh, "full, state_dtype bfloat16", human.Memory(narrow.Alias), human.Memory(narrow.Temp))
		require.InEpsilon(t, narrowState(half.Model)/parts[mesh], narrow.Alias, 0.02, "parameters in f32, two moments in bf16")
		// What sets of values take beyond others, in f32: the residual stream [B, S, D],
		// queries, keys and values [B, S, H + 2·K, h], products of the feed-forward layer
		// [B, S, 2·F].
		o := memoryOptions(t, mesh, policyOf("full"))
		c := o.Model
		tokens := 4 * int64(c.Layers*o.Rows/8*o.SeqLen)
		require.InEpsilon(t, tokens*int64(c.Dim), temps["save_out_proj"]-temps["full"], 0.2)
		require.InEpsilon(t, tokens*int64((c.Heads+2*c.KVHeads)*c.HeadDim), temps["save_dot_except_mlp"]-temps["save_out_proj"], 0.2)
		require.InEpsilon(t, tokens*int64(2*c.HiddenDim), temps["minimal"]-temps["save_dot_except_mlp"], 0.2)
	}
}
