package plan

import (
	"context"
	"os"
	"strings"
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
// the same. Its tile kernels are compiled alone, once, in a process of their own, for
// the time that their code takes.
func TestPlanIsCached(t *testing.T) {
	plugin := xlatest.TPU(t)
	self, err := os.Executable()
	require.NoError(t, err)
	r, err := debugRecipe(t)()
	require.NoError(t, err)
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	children := 0
	o := Options{Recipe: r, Quick: true, Cache: compilecache.Open(dir), Plugin: plugin.Path(), Child: []string{self, "kernel"}, Log: func(format string, _ ...any) {
		if strings.HasPrefix(format, "compiling the tile kernel") {
			children++
		}
	}}
	first, err := Make(context.Background(), o)
	require.NoError(t, err)
	require.True(t, first.Memory.Fits)
	require.Empty(t, first.Changes)
	require.Positive(t, first.Memory.Temporaries)
	require.Positive(t, first.Compile.CodeBytes)
	require.Positive(t, first.Compile.CPU)
	require.Greater(t, first.Compile.ProgramBytes, 10_000)
	require.Positive(t, first.Memory.Peak)
	require.LessOrEqual(t, first.Memory.Peak, first.Memory.Needed)
	require.Positive(t, first.Prediction.Cycles)
	require.InEpsilon(t, first.Memory.Outputs, first.Memory.Aliased, 0.01, "the state is updated in place")
	require.Positive(t, first.Prediction.share(Attention).Seconds)
	require.Positive(t, first.Prediction.share(Optimizer).Seconds)
	require.Contains(t, first.String(), "fits: ")
	require.Empty(t, first.Prediction.Unpriced)
	require.Equal(t, 2, children, "attention and its gradient")
	require.Len(t, first.Prediction.TileKernels, 2)
	for _, k := range first.Prediction.TileKernels {
		require.Positive(t, k.Bundles, k.Name)
		require.Greater(t, k.Peak, 0.001, k.Name)
		require.Less(t, k.Peak, 1.0, k.Name)
		require.GreaterOrEqual(t, k.Count, int64(2), "one for each layer")
	}
	require.Contains(t, first.String(), "bundles of code")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "what the compiler writes down is cleared")

	ctx, cancel := context.WithCancel(context.Background())
	ended := o
	ended.Log = func(string, ...any) { cancel() } // while it compiles
	_, err = Make(ctx, ended)
	require.ErrorIs(t, err, context.Canceled, "no plan with what an interruption left unknown")

	o.Child = []string{"false"} // what is known is not asked again
	second, err := Make(context.Background(), o)
	require.NoError(t, err)
	require.Contains(t, second.Compile.Cache, "loaded from the compile cache")
	require.Equal(t, first.Compile.Key, second.Compile.Key)
	require.Equal(t, first.Compile.CodeBytes, second.Compile.CodeBytes)
	second.Compile = first.Compile
	require.Equal(t, first, second)

	o.Child = nil
	third, err := Make(context.Background(), o)
	require.NoError(t, err)
	require.Len(t, third.Prediction.Unpriced, 2)
	require.Contains(t, third.String(), "a roofline is the price of the tile kernel attention: its code was not asked for")
}

func TestPlanNeedsATopology(t *testing.T) {
	r, _, err := configs.Load("builtin:llama3_debug", nil)
	require.NoError(t, err)
	_, err = Make(context.Background(), Options{Recipe: r})
	require.ErrorContains(t, err, "give one, as in --topology v5e:4x4")
}
