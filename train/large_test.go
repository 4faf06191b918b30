package train

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/configs"
)

// The step of 94 layers with 128 experts on 2,048 devices is traced, differentiated
// and printed in a moment: its text has as many lines as that of a few layers on a few
// devices.
func TestLargestRecipeIsTraced(t *testing.T) {
	lines := func(set ...string) (n int, took time.Duration) {
		r, _, err := configs.Load("builtin:qwen3_235b_a22b", set)
		require.NoError(t, err)
		m, err := r.Machine()
		require.NoError(t, err)
		start := time.Now()
		o, err := OptionsFor(r, m, PlatformOf(r))
		require.NoError(t, err)
		s, err := BuildStep(o)
		require.NoError(t, err)
		return strings.Count(s.Module.StableHLO(), "\n"), time.Since(start)
	}
	n, took := lines("mesh.topology=tpu7x:8x8x16")
	t.Logf("traced, differentiated and printed in %v: %d lines", took, n)
	small, _ := lines("mesh.topology=tpu7x:4x8x8", "parallelism.data_parallel_replicate_degree=2", "model.override.n_layers=4")
	require.InDelta(t, small, n, 10)
}
