package plan

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/internal/xlatest"
	"titan/pjrt/compilecache"
)

func debugRecipe(t *testing.T, set ...string) func(more ...string) (*configs.Recipe, error) {
	t.Helper()
	return func(more ...string) (*configs.Recipe, error) {
		all := append([]string{"mesh.platform=tpu", "mesh.devices=0", "mesh.topology=v5e:2x2", "training.mixed_precision_param=bfloat16",
			"validation.enable=false", "training.seq_len=128", "model.override.n_layers=2"}, set...)
		r, _, err := configs.Load("builtin:llama3_debug", append(all, more...))
		return r, err
	}
}

// A step is compiled once: the second plan reads what the first stored, and says
// the same.
func TestPlanIsCached(t *testing.T) {
	plugin := xlatest.TPU(t)
	r, err := debugRecipe(t)()
	require.NoError(t, err)
	o := Options{Recipe: r, Quick: true, Cache: compilecache.Open(t.TempDir()), Plugin: plugin.Path()}
	first, err := Make(context.Background(), o)
	require.NoError(t, err)
	require.True(t, first.Memory.Fits)
	require.Empty(t, first.Changes)
	require.Positive(t, first.Memory.Temporaries)
	require.Positive(t, first.Compile.CodeBytes)
	require.InEpsilon(t, first.Memory.Outputs, first.Memory.Aliased, 0.01, "the state is updated in place")
	require.Positive(t, first.Prediction.share(Attention).Seconds)
	require.Positive(t, first.Prediction.share(Optimizer).Seconds)
	require.Contains(t, first.String(), "fits: ")

	second, err := Make(context.Background(), o)
	require.NoError(t, err)
	require.Contains(t, second.Compile.Cache, "loaded from the compile cache")
	require.Equal(t, first.Compile.Key, second.Compile.Key)
	require.Equal(t, first.Compile.CodeBytes, second.Compile.CodeBytes)
	second.Compile = first.Compile
	require.Equal(t, first, second)
}

func TestPlanNeedsATopology(t *testing.T) {
	r, _, err := configs.Load("builtin:llama3_debug", nil)
	require.NoError(t, err)
	_, err = Make(context.Background(), Options{Recipe: r})
	require.ErrorContains(t, err, "give one, as in --topology v5e:4x4")
}
