package parallel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/recipekey"
	"titan/mesh"
)

// degrees of a recipe: pp, dp_replicate, dp_shard, ep, cp, tp.
type degrees [6]int

func (d degrees) config() Config {
	c := DefaultConfig()
	c.Pipeline, c.Replicate, c.Shard, c.Expert, c.Context, c.Tensor = d[0], d[1], d[2], d[3], d[4], d[5]
	return c
}

func TestConfigAxes(t *testing.T) {
	for _, c := range []struct {
		degrees degrees
		devices int
		want    string
	}{
		{degrees{1, 1, -1, 1, 1, 1}, 0, "[dp_replicate=1 dp_shard=1]"},
		{degrees{1, 1, -1, 1, 1, 1}, 8, "[dp_replicate=1 dp_shard=8]"},
		{degrees{1, 2, -1, 1, 1, 1}, 8, "[dp_replicate=2 dp_shard=4]"},
		{degrees{1, 8, -1, 1, 1, 1}, 8, "[dp_replicate=8 dp_shard=1]"},
		{degrees{1, 3, 5, 1, 1, 1}, 0, "[dp_replicate=3 dp_shard=5]"},
		{degrees{1, 1, -1, 1, 2, 4}, 0, "[dp_replicate=1 dp_shard=1 cp=2 tp=4]"},
		{degrees{2, 1, -1, 4, 1, 1}, 0, "[pp=2 dp_replicate=1 dp_shard=1 ep=4]"},
		{degrees{2, 1, -1, 4, 1, 1}, 16, "[pp=2 dp_replicate=1 dp_shard=2 ep=4]"},
		{degrees{2, 2, 4, 2, 2, 2}, 64, "[pp=2 dp_replicate=2 dp_shard=2 ep=2 cp=2 tp=2]"},
	} {
		axes, err := c.degrees.config().Axes(c.devices)
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, fmt.Sprint(axes))
	}
}

func TestConfigAxesRefused(t *testing.T) {
	const most = 1 << 20
	for _, c := range []struct {
		degrees   degrees
		devices   int
		key, says string
	}{
		{degrees{1, 3, -1, 1, 1, 1}, 8, "data_parallel_replicate_degree", "is 3, which does not divide the 8 devices"},
		{degrees{1, 16, -1, 1, 1, 1}, 8, "data_parallel_replicate_degree", "is 16, which does not divide the 8 devices"},
		{degrees{1, 2, -1, 1, 1, 3}, 8, "tensor_parallel_degree", "is 3, which does not divide the 4 of 8 devices that other degrees leave"},
		{degrees{3, 1, -1, 1, 1, 1}, 8, "pipeline_parallel_degree", "is 3, which does not divide the 8 devices"},
		{degrees{1, 1, -1, 1, 5, 1}, 8, "context_parallel_degree", "is 5, which does not divide the 8 devices"},
		{degrees{1, 2, 2, 1, 1, 1}, 8, "data_parallel_shard_degree", "is 2, but the other degrees leave 4 of 8 devices"},
		{degrees{1, 1, 3, 1, 1, 1}, 8, "data_parallel_shard_degree", "is 3, but there are 8 devices"},
		{degrees{1, 1, 3, 1, 1, 1}, 1, "data_parallel_shard_degree", "is 3, but there is 1 device"},
		{degrees{1, 1, -1, 4, 1, 4}, 8, "expert_parallel_degree", "is 4 and must divide data_parallel_shard_degree (2)"},
		{degrees{1, 1, 6, 4, 1, 1}, 0, "expert_parallel_degree", "is 4 and must divide data_parallel_shard_degree (6)"},
		{degrees{1, most, most, 1, 1, 1}, 0, "data_parallel_shard_degree", "is 1048576; with 1048576 of other degrees that is more than 2147483647 devices"},
		{degrees{1, most, 1, 1, 1, most}, 0, "tensor_parallel_degree", "is 1048576; with 1048576 of other degrees that is more than 2147483647 devices"},
		{degrees{1, 0, 1, 1, 1, 1}, 0, "data_parallel_replicate_degree", "must be positive"},
		{degrees{1, 1, 0, 1, 1, 1}, 0, "data_parallel_shard_degree", "must be positive, or -1"},
		{degrees{1, 1, -2, 1, 1, 1}, 8, "data_parallel_shard_degree", "must be positive, or -1"},
		{degrees{0, 1, 1, 1, 1, 1}, 8, "pipeline_parallel_degree", "must be positive"},
		{degrees{1, 1, 1, 0, 1, 1}, 8, "expert_parallel_degree", "must be positive"},
		{degrees{1, 1, 1, 1, -1, 1}, 8, "context_parallel_degree", "must be positive"},
		{degrees{1, 1, 1, 1, 1, 0}, 8, "tensor_parallel_degree", "must be positive"},
	} {
		_, err := c.degrees.config().Axes(c.devices)
		errs := recipekey.Flatten(err)
		require.Len(t, errs, 1, "%+v", c)
		var k *recipekey.Error
		require.ErrorAs(t, errs[0], &k)
		require.Equal(t, "parallelism."+c.key, k.Key, "%+v", c)
		require.Contains(t, k.Msg, c.says, "%+v", c)
	}
}

// Whatever is accepted has as many devices as there are.
func TestConfigAxesProduct(t *testing.T) {
	accepted := 0
	for n := range 8 * 4 * 4 * 4 * 4 {
		d := degrees{1 + n%4, 1 + n/4%4, []int{-1, 1, 2, 3, 4, 6, 8, 12}[n/16%8], 1 + n/128%4, 1 + n/512%4, 1}
		for _, devices := range []int{8, 12, 24} {
			axes, err := d.config().Axes(devices)
			if err != nil {
				continue
			}
			accepted++
			m, err := mesh.New(axes, nil)
			require.NoError(t, err)
			require.Equal(t, devices, m.Size(), "%v", d)
			require.Equal(t, d[1]*max(1, m.AxisSize(AxisShard))*d[3], BatchDegree(axes))
			for axis, size := range map[string]int{AxisPipeline: d[0], AxisReplicate: d[1], AxisExpert: d[3], AxisContext: d[4]} {
				require.Equal(t, size, max(1, m.AxisSize(axis)))
			}
		}
	}
	require.Greater(t, accepted, 300)
}

func TestConfigValidate(t *testing.T) {
	c := Config{Shard: -1, Reshard: "alway", Rotate: "rings", Balancer: "none", Schedule: "gpipe"}
	keys := map[string]bool{}
	for _, err := range recipekey.Flatten(c.Validate()) {
		var k *recipekey.Error
		require.ErrorAs(t, err, &k)
		keys[k.Key] = true
	}
	require.Len(t, keys, 10, "all mistakes at once")
	require.NoError(t, DefaultConfig().Validate())
}

func TestReshard(t *testing.T) {
	for name, want := range map[string][2]bool{"default": {true, false}, "always": {true, true}, "never": {false, false}} {
		require.Equal(t, want[0], Config{Reshard: name, Pipeline: 1}.ReshardAfterForward(), name)
		require.Equal(t, want[1], Config{Reshard: name, Pipeline: 2}.ReshardAfterForward(), "%s, pipelined", name)
	}
}

func TestCarries(t *testing.T) {
	c := DefaultConfig()
	seen := map[string]bool{}
	for _, a := range AxisNames() {
		require.NotEmpty(t, c.Carries(a), a)
		seen[c.Carries(a)] = true
	}
	require.Len(t, seen, len(AxisNames()))
	require.Contains(t, c.Carries(AxisContext), "ring")
	c.Rotate = "allgather"
	require.Contains(t, c.Carries(AxisContext), "gathered")
	require.Subset(t, AxisNames(), AcrossSlices())
}
