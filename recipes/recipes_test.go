package recipes_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/recipes"
)

// Parameters of every recipe's model; published ones as in the tests of models,
// which say where they are from.
var parameters = map[string]int64{
	"llama3_debug":        6_163_712,
	"llama3_8b":           8_030_261_248,
	"llama3_8b_v6e_256":   8_030_261_248,
	"llama3_8b_v5e_256":   8_030_261_248,
	"llama3_70b":          70_553_706_496,
	"llama3_70b_v5p_128":  70_553_706_496,
	"llama3_405b":         405_853_388_800,
	"llama3_405b_v5p_512": 405_853_388_800,
	"qwen3_debug":         5_246_592,
	"qwen3_0_6b":          596_049_920,
	"qwen3_1_7b":          1_720_574_976,
	"qwen3_4b":            4_022_468_096,
	"qwen3_8b":            8_190_735_360,
	"qwen3_14b":           14_768_307_200,
	"qwen3_32b":           32_762_123_264,
	"qwen3_moe_debug":     8_137_216,
	"qwen3_30b_a3b":       30_532_122_624,
	"qwen3_235b_a22b":     235_093_634_560,
}

// Batches and machines of the published runs that recipes name: devices,
// sequences, length.
var published = map[string][3]int{
	"llama3_8b":         {8, 196608 / 8192, 8192},
	"llama3_8b_v6e_256": {256, 8388608 / 8192, 8192},
	"llama3_70b":        {128, 256, 8192},
	"llama3_405b":       {512, 1536, 8192},
	"qwen3_235b_a22b":   {2048, 32768, 4096},
}

func TestEveryRecipe(t *testing.T) {
	require.Len(t, recipes.Names(), len(parameters))
	for _, name := range recipes.Names() {
		t.Run(name, func(t *testing.T) {
			r, _, err := configs.Load("builtin:"+name, nil)
			require.NoError(t, err)
			require.Empty(t, r.Warnings())
			require.NotEmpty(t, r.Job.Description)
			require.Equal(t, "outputs/"+name, r.Job.DumpFolder)
			m, err := r.Decoder()
			require.NoError(t, err)
			all, _, _ := m.Count()
			require.Equal(t, parameters[name], all)

			devices, err := r.DataParallel()
			require.NoError(t, err)
			batch, err := r.GlobalBatch()
			require.NoError(t, err)
			if want, ok := published[name]; ok {
				require.Equal(t, want, [3]int{devices, batch, r.Training.SeqLen})
			}
		})
	}
}

// The debug recipes are what make run has time for: 8 devices, 8 sequences of 256.
func TestDebugRecipes(t *testing.T) {
	for _, name := range []string{"llama3_debug", "qwen3_debug", "qwen3_moe_debug"} {
		r, _, err := configs.Load(name, nil)
		require.NoError(t, err)
		require.Equal(t, "cpu", r.Mesh.Platform)
		require.Equal(t, 8, r.Mesh.Count())
		batch, err := r.GlobalBatch()
		require.NoError(t, err)
		require.Equal(t, 8, batch)
		require.Equal(t, 256, r.Training.SeqLen)
		require.Equal(t, "float32", r.Training.MixedPrecisionParam)
	}
}

// What the comment of the recipe says can be set.
func TestPublishedScalingToEightSlices(t *testing.T) {
	r, _, err := configs.Load("qwen3_235b_a22b", []string{"mesh.topology=tpu7x:8x8x16*8", "parallelism.data_parallel_replicate_degree=64"})
	require.NoError(t, err)
	batch, err := r.GlobalBatch()
	require.NoError(t, err)
	require.Equal(t, 262144, batch)
}

func TestRead(t *testing.T) {
	for _, name := range []string{"llama3_8c", "", "../recipes/llama3_8b", "llama3_8b.toml"} {
		_, err := recipes.Read(name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	require.NotContains(t, recipes.Names(), "_tpu")
	_, err := recipes.Read("_tpu")
	require.NoError(t, err)
}
