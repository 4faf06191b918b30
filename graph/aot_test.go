package graph_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// fsdp splits every parameter over the mesh as FSDP does: the layers' ones in
// the dimension after the stacked one.
func fsdp(name string) PortOption {
	switch name {
	case "tokens", "labels", "norm", "embed", "head":
		return Sharded(sharding.P("dp"))
	}
	return Sharded(sharding.P(nil, "dp"))
}

func compileFor(t *testing.T, topology string, c llama) (*pjrt.Executable, error) {
	t.Helper()
	m, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 8}}, nil)
	require.NoError(t, err)
	c.shard = fsdp
	prog, err := Trace("step", m, c.step)
	require.NoError(t, err)
	topo, err := xlatest.TPU(t).NewTopology(topology, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topo.Close()) })
	return topo.Compile([]byte(prog.StableHLO()), pjrt.CompileOptions{Partitions: 8, Shardy: true, OptLevel: pjrt.LevelO0})
}

// A sharded, checkpointed step compiles for TPU slices on a machine without
// one, and the compiler says what it needs.
func TestCompileForTPU(t *testing.T) {
	full, offload := SaveNothing(), OffloadNames("attn_out")
	// head_dim fills the 128 lanes of a tile, so that nothing is padded.
	c := llama{vocab: 512, dim: 256, ffn: 512, layers: 4, heads: 8, kv: 8, headDim: 128, seq: 128, batch: 8, dtype: BF16, scan: true}
	topologies := []string{"v5e:2x4"}
	if long { // train compiles for the others as well
		topologies = append(topologies, "tpu7x:2x2x1")
	}
	for _, topology := range topologies {
		stats := map[string]pjrt.MemoryStats{}
		for name, remat := range map[string]*Policy{"full": &full, "offload": &offload} {
			c.remat = remat
			x, err := compileFor(t, topology, c)
			require.NoError(t, err)
			s, err := x.MemoryStats()
			require.NoError(t, err)
			stats[name] = s
			require.NoError(t, x.Close())
			t.Logf("%s, %s: arguments %d, aliased %d, temp %d, host %d bytes a device", topology, name, s.Args, s.Alias, s.Temp, s.HostTemp)
			require.Positive(t, s.Temp)
			// Eight devices hold an eighth of the parameters each, all updated in place.
			params := int64(4 * (2*512*256 + 256 + 4*(2*256+4*256*8*128+3*256*512)) / 8)
			require.InEpsilon(t, params, s.Alias, 0.01)
		}
		// attn_out of every layer: layers × sequence × heads × head_dim in bf16.
		require.Equal(t, int64(4*128*8*128*2), stats["offload"].HostTemp, "kept in host memory")
		require.Zero(t, stats["full"].HostTemp)
	}
}

// What does not fit is reported as such, with sizes.
func TestCompileForTPUOutOfMemory(t *testing.T) {
	c := llama{vocab: 512, dim: 4096, ffn: 8192, layers: 2, heads: 32, kv: 32, headDim: 128, seq: 8192, batch: 64, dtype: BF16, scan: true}
	_, err := compileFor(t, "v5e:2x4", c)
	require.Error(t, err)
	var oom *pjrt.OutOfMemory
	require.True(t, errors.As(err, &oom), "%v", err)
	t.Log(err)
	require.Greater(t, oom.Needed, oom.Available)
	require.Greater(t, oom.Available, int64(8<<30), "the sizes are those of the chip")
}
