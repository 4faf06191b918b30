package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/human"
	"titan/internal/xlatest"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
	"titan/pjrt/hlo"
)

// hostSpace is the number of the host's memory in programs for TPU.
const hostSpace = 5

// memoryForTPU compiles the step of 16 layers of width 512 in bf16, FSDP over the
// topology's devices with four sequences of 512 tokens each.
func memoryForTPU(t *testing.T, topology string, devices int, policy decoder.ActivationCheckpoint) (*Step, pjrt.MemoryStats, *hlo.Module) {
	t.Helper()
	model := decoder.Config{
		VocabSize: 512, Dim: 512, Layers: 16, Heads: 4, KVHeads: 2, HeadDim: 128, HiddenDim: 1024, MaxSeqLen: 512,
		NormEps: 1e-6, RopeTheta: 1e4,
	}
	m := testMesh(t, 1, devices)
	s, err := BuildStep(StepOptions{
		Model: model, Placement: parallel.Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: true}, Mesh: m, Optimizer: goldenOptimizer(t, model),
		Options: decoder.Options{Remat: policy, LossChunks: 2},
		Rows:    4 * devices, SeqLen: 512,
	})
	require.NoError(t, err)
	x := xlatest.CompileTPU(t, topology, s.Module.StableHLO(), pjrt.CompileOptions{Partitions: devices, Shardy: true, OptLevel: pjrt.LevelO0})
	stats, err := x.MemoryStats()
	require.NoError(t, err)
	mod, err := x.OptimizedHLO()
	require.NoError(t, err)
	return s, stats, mod
}

func offloading(mode string, names ...string) decoder.ActivationCheckpoint {
	a := policyOf(mode)
	a.Offload = names
	return a
}

// The table of TestMemoryTable as the TPU compiler has it, at its lowest level of
// effort; all policies with TITAN_LONG.
func TestMemoryTableForTPU(t *testing.T) {
	policies := []decoder.ActivationCheckpoint{policyOf("none"), policyOf("full"), offloading("full", decoder.NameLayerIn)}
	if long {
		policies = []decoder.ActivationCheckpoint{
			policyOf("none"), policyOf("4"), policyOf("2"), policyOf("minimal_with_context"), policyOf("minimal"), policyOf("save_dot_with_context_except_mlp"),
			policyOf("save_dot_except_mlp"), policyOf("save_out_proj"), policyOf("full"), offloading("full", decoder.NameLayerIn),
			offloading("save_out_proj", decoder.NameAttnOut),
		}
	}
	temps := map[string]int64{}
	for _, policy := range policies {
		s, stats, mod := memoryForTPU(t, "v5e:2x4", 8, policy)
		f := s.Module.Footprint()
		t.Logf("%-50v state %s, temporaries %s, host %s; estimated %s and %s", policy, human.Memory(stats.Alias), human.Memory(stats.Temp), human.Memory(stats.HostTemp), human.Memory(f.Temp), human.Memory(f.Host))
		var whole int64
		for _, v := range s.Vars {
			whole += int64(v.Type.Bytes())
		}
		require.InEpsilon(t, whole/8, stats.Alias, 0.02, "parameters and optimizer state")
		temps[policy.String()] = stats.Temp
		requireOnHost(t, f.Host, stats, mod)
	}
	order := []string{"none", "full", "full, offload layer_in"}
	if long {
		order = []string{"none", "selective, every 4", "selective, every 2", "full", "full, offload layer_in"}
	}
	for i := 1; i < len(order); i++ {
		require.Less(t, temps[order[i]], temps[order[i-1]], "%s keeps less than %s", order[i], order[i-1])
	}
	if long {
		for _, chain := range [][]string{
			{"none", "selective, minimal_with_context", "selective, minimal", "selective, save_dot_except_mlp", "selective, save_out_proj", "full"},
			{"selective, minimal_with_context", "selective, save_dot_with_context_except_mlp", "selective, save_dot_except_mlp"},
		} {
			for i := 1; i < len(chain); i++ {
				require.Less(t, temps[chain[i]], temps[chain[i-1]], "%s keeps less than %s", chain[i], chain[i-1])
			}
		}
	}
}

// requireOnHost checks that so many bytes are in the host's memory, by the
// compiler's account and by the arrays in its program.
func requireOnHost(t *testing.T, want int64, stats pjrt.MemoryStats, mod *hlo.Module) {
	t.Helper()
	largest := int64(0)
	for i := range mod.All() {
		i.Shape.Leaves(func(s hlo.Shape) {
			if s.MemorySpace == hostSpace {
				largest = max(largest, s.Bytes())
			}
		})
	}
	if want == 0 {
		require.Zero(t, stats.HostTemp)
		require.Zero(t, largest)
		return
	}
	require.InEpsilon(t, want, stats.HostTemp, 0.05)
	require.LessOrEqual(t, largest, stats.HostTemp)
	require.Greater(t, largest, want/2)
}

// Values are kept in the host's memory on every generation of TPU that is rented
// out.
func TestOffloadForTPU(t *testing.T) {
	if !long {
		t.Skip("set TITAN_LONG=1; TestMemoryTableForTPU keeps values there on one of them")
	}
	for topology, devices := range map[string]int{"v5e:2x2": 4, "v5p:2x2x1": 4, "v6e:2x2": 4, "tpu7x:2x2x1": 8} {
		_, kept, _ := memoryForTPU(t, topology, devices, policyOf("save_out_proj"))
		s, moved, mod := memoryForTPU(t, topology, devices, offloading("full", decoder.NameResid))
		host := s.Module.Footprint().Host
		t.Logf("%s: the residual stream kept: temporaries %s; on the host: %s, and %s there", topology, human.Memory(kept.Temp), human.Memory(moved.Temp), human.Memory(moved.HostTemp))
		requireOnHost(t, host, moved, mod)
		require.InEpsilon(t, kept.Temp-host, moved.Temp, 0.15)
	}
}
