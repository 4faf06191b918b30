package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only chips that multiply 8-bit floats faster are worth it; and a built-in recipe
// takes the section by --set.
func TestFloat8Warnings(t *testing.T) {
	for topology, warned := range map[string]bool{"v5e:4x4": true, "v6e:4x4": true, "tpu7x:2x2x2": false} {
		r, _, err := Load("llama3_8b", []string{"mesh.topology=" + topology, "quantize.linear.float8.enable=true", "training.dataset_path=x", "training.global_batch_size=-1"})
		require.NoError(t, err)
		require.True(t, r.Quantize.Linear.Float8.Has("layers.wq"))
		require.False(t, r.Quantize.Linear.Float8.Has("output"))
		found := strings.Contains(strings.Join(r.Warnings(), "\n"), "quantize.linear.float8.enable is true, but a product of 8-bit floats takes a "+strings.SplitN(topology, ":", 2)[0]+" no less time")
		require.Equal(t, warned, found, "%s: %q", topology, r.Warnings())
	}
}
