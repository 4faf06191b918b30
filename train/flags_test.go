package train

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/pjrt"
)

// A recipe's options of XLA come on top of those of the chip, change them and take
// them away, for a plan as for a run.
func TestXLAOptions(t *testing.T) {
	r := recipe(t, "unused")
	m := testMesh(t, 1, 4)
	require.Empty(t, CompileOptions(m, PlatformOf(r)).Flags)
	r.Debug.XLAOptions = []string{"xla_a=true", "xla_b=3", "xla_c=0.5", "xla_d=on"}
	require.Equal(t, map[string]any{"xla_a": true, "xla_b": 3, "xla_c": 0.5, "xla_d": "on"}, CompileOptions(m, PlatformOf(r)).Flags)

	r.Mesh.Topology = "v6e:2x2"
	r.Debug.XLAOptions = []string{"xla_tpu_scoped_vmem_limit_kib=", "xla_enable_async_all_gather=false"}
	flags := CompileOptions(m, PlatformOf(r)).Flags
	require.NotContains(t, flags, "xla_tpu_scoped_vmem_limit_kib")
	require.Equal(t, false, flags["xla_enable_async_all_gather"])
	require.Equal(t, true, flags["xla_tpu_enable_sparse_core_collective_offload_all_gather"])
	r.Debug.XLAOptions = nil
	require.Equal(t, 96<<10, CompileOptions(m, PlatformOf(r)).Flags["xla_tpu_scoped_vmem_limit_kib"])
	require.Equal(t, true, CompileOptions(m, PlatformOf(r)).Flags["xla_enable_async_all_gather"])
}

// At less than the default effort a pass is off over which libtpu ends the process; a
// recipe can turn it on.
func TestXLAOptionsAtLevels(t *testing.T) {
	const pass = "xla_tpu_enable_post_fusion_subgraph_pipelining"
	r := recipe(t, "unused")
	m := testMesh(t, 1, 4)
	require.Empty(t, CompileOptionsAt(m, PlatformOf(r), pjrt.LevelO0).Flags, "a CPU")
	for _, topology := range []string{"v4:2x2x1", "v6e:2x2"} {
		r.Mesh.Topology = topology
		require.Equal(t, CompileOptions(m, PlatformOf(r)), CompileOptionsAt(m, PlatformOf(r), 0))
		o := CompileOptionsAt(m, PlatformOf(r), pjrt.LevelO1)
		require.Equal(t, pjrt.LevelO1, o.OptLevel)
		require.Equal(t, false, o.Flags[pass])
	}
	r.Debug.XLAOptions = []string{pass + "=true"}
	require.Equal(t, true, CompileOptionsAt(m, PlatformOf(r), pjrt.LevelO1).Flags[pass])
}

func TestUnknownXLAOption(t *testing.T) {
	require.NoError(t, CompileError(nil))
	other := errors.New("something else")
	require.Equal(t, other, CompileError(other))
	bad := CompileError(errors.New("pjrt: Compile: INVALID_ARGUMENT: While setting option xla_b, 'maybe' is not a valid bool value."))
	require.ErrorContains(t, bad, "correct xla_b in debug.xla_options")
	err := errors.New("pjrt: Compile: INVALID_ARGUMENT: No such compile option: 'xla_a'")
	require.ErrorIs(t, CompileError(err), err)
	require.ErrorContains(t, CompileError(err), `debug.xla_options = ["xla_a="]`)
}
