package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValuesOfADocument(t *testing.T) {
	v, err := Values([]byte("a = 1\n[b]\nc = [1, 2]\nd = []\n[[b.e]]\nf = \"x\"\n[[b.e]]\nf = 0.5\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": int64(1), "b.c": []any{int64(1), int64(2)}, "b.d": []any{}, "b.e[0].f": "x", "b.e[1].f": 0.5}, v)
	_, err = Values([]byte("a = "))
	require.ErrorContains(t, err, "the recipe cannot be read")

	r, o, err := Load("builtin:llama3_debug", []string{"cost.price_per_chip_hour=1.25", "optimizer.param_groups=[{pattern=\"norm\"}]"})
	require.NoError(t, err)
	v, err = Values([]byte(r.TOML(o)))
	require.NoError(t, err)
	require.Equal(t, 1.25, v["cost.price_per_chip_hour"])
	require.Equal(t, "USD", v["cost.currency"])
	require.Equal(t, "norm", v["optimizer.param_groups[0].pattern"])
	require.EqualValues(t, r.Training.SeqLen, v["training.seq_len"])
}
