package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models"
)

// Published parameter counts: those of the safetensors indices of the
// repositories (total size divided by the element size), and of the Llama 3.1
// model cards' exact configurations.
var published = map[string]int64{
	"llama3/8B":           8_030_261_248,
	"llama3/70B":          70_553_706_496,
	"llama3/405B":         405_853_388_800,
	"qwen3/0.6B":          596_049_920,
	"qwen3/1.7B":          1_720_574_976,
	"qwen3/4B":            4_022_468_096,
	"qwen3/8B":            8_190_735_360,
	"qwen3/14B":           14_768_307_200,
	"qwen3/32B":           32_762_123_264,
	"qwen3_moe/30B-A3B":   30_532_122_624,
	"qwen3_moe/235B-A22B": 235_093_634_560,
	// The models of the baselines.
	"llama3/debugmodel":    6_163_712,
	"qwen3_moe/debugmodel": 8_137_216,
}

func TestParameterCounts(t *testing.T) {
	seen := 0
	for _, name := range models.Names() {
		for _, flavor := range models.Flavors(name) {
			c, err := models.Lookup(name, flavor)
			require.NoError(t, err)
			require.NoError(t, c.Validate(), "%s/%s", name, flavor)
			want, ok := published[name+"/"+flavor]
			if !ok {
				require.Equal(t, "debugmodel", flavor, "no published count for %s/%s", name, flavor)
				continue
			}
			all, _, _ := c.Count()
			require.Equal(t, want, all, "%s/%s", name, flavor)
			seen++
		}
	}
	require.Len(t, published, seen)
}

func TestUnknown(t *testing.T) {
	_, err := models.Lookup("qwen3-moe", "30B-A3B")
	require.ErrorContains(t, err, `did you mean "qwen3_moe"?`)
	_, err = models.Lookup("qwen3_moe", "30B")
	require.ErrorContains(t, err, "30B-A3B")
}
