package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

func TestConfigAxes(t *testing.T) {
	for _, c := range []struct {
		replicate, shard, devices int
		want                      []int // nil: refused
	}{
		{1, -1, 0, []int{1, 1}}, {1, -1, 8, []int{1, 8}}, {2, -1, 8, []int{2, 4}}, {8, -1, 8, []int{8, 1}}, {2, 4, 8, []int{2, 4}}, {3, 5, 0, []int{3, 5}},
		{3, -1, 8, nil}, {16, -1, 8, nil}, {2, 2, 8, nil}, {1, 3, 8, nil}, {0, 1, 0, nil}, {1, 0, 0, nil}, {1, -2, 8, nil}, {1 << 20, 1 << 20, 0, nil},
	} {
		cfg := DefaultConfig()
		cfg.Replicate, cfg.Shard = c.replicate, c.shard
		axes, err := cfg.Axes(c.devices)
		if c.want == nil {
			require.ErrorContains(t, err, "parallelism.data_parallel_", "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		require.Equal(t, []mesh.Axis{{Name: AxisReplicate, Size: c.want[0]}, {Name: AxisShard, Size: c.want[1]}}, axes)
	}
}

func TestReshard(t *testing.T) {
	for name, want := range map[string]bool{"default": true, "always": true, "never": false} {
		require.Equal(t, want, Config{Reshard: name}.ReshardAfterForward())
	}
}
