package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tiles that do not fit are refused, with the key, and the reason.
func TestKernelMistakes(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"kernels.attention=flash"}, `kernels.attention: is "flash", which is not possible`},
		{[]string{"kernels.attention_tiles.queries=200"}, "kernels.attention_tiles.queries: is 200 and must be a multiple of 128, the native tile's; the nearest that works is 256"},
		{[]string{"kernels.expert_tiles.lhs.m=-1"}, "kernels.expert_tiles.lhs.m: is -1 and must be a positive multiple of 16, the native tile's; the nearest that works is 16"},
		{[]string{"kernels.expert_tiles.rhs.n=100"}, "kernels.expert_tiles.rhs.n: is 100 and must be a multiple of 128, the native tile's; the nearest that works is 128"},
		{[]string{"kernels.attention_tiles.keys=768"}, "kernels.attention_tiles.keys: is 768 and must divide the 8192 tokens that attention has in sequences of (training.seq_len is 8192)"},
		{[]string{"kernels.attention_tiles.keys=4096", "parallelism.context_parallel_degree=2"}, "kernels.attention_tiles.keys: is 4096 and must divide the 2048 tokens"},
		{[]string{"kernels.attention=tile", "training.seq_len=1000"}, `kernels.attention: is "tile", and training.seq_len is 1000: attention has sequences of 1000 tokens, which tiles divide only if they are a multiple of 128; set it to "auto"`},
		{[]string{`debug.xla_options=["xla_a=1", "--xla_b=2"]`}, `debug.xla_options[1]: is "--xla_b=2" and must be NAME=VALUE, such as xla_enable_async_all_gather=false, without dashes`},
	} {
		_, _, err := Load("llama3_8b", c.set)
		require.ErrorContains(t, err, c.want, "%v", c.set)
	}
	for _, set := range [][]string{
		{"kernels.attention_tiles={queries = 512, keys = 1024}"},
		{"kernels.attention=plain", "kernels.attention_tiles.keys=768"},
		{"kernels.attention_tiles.keys=8192"},
	} {
		_, _, err := Load("llama3_8b", set)
		require.NoError(t, err, "%v", set)
	}
}

func TestKernelWarnings(t *testing.T) {
	for _, c := range []struct {
		recipe string
		set    []string
		want   string
	}{
		{"llama3_debug", []string{"kernels.attention=tile"}, `kernels.attention is "tile": cpu has no tile kernels, they are interpreted`},
		{"qwen3_moe_debug", []string{"kernels.experts=tile"}, `kernels.experts is "tile": cpu has no tile kernels`},
		{"llama3_8b", []string{"training.seq_len=1000"}, "training.seq_len is 1000: attention has sequences of 1000 tokens, no multiple of 128, and is computed without tile kernels"},
		{"llama3_8b", []string{"training.seq_len=8320", "parallelism.context_parallel_degree=2"}, "attention has chunks of 2080 tokens, no multiple of 128"},
	} {
		r, _, err := Load(c.recipe, c.set)
		require.NoError(t, err)
		require.Contains(t, strings.Join(r.Warnings(), "\n"), c.want)
		r, _, err = Load(c.recipe, append(c.set, "kernels.attention=plain", "kernels.experts=plain"))
		require.NoError(t, err)
		require.NotContains(t, strings.Join(r.Warnings(), "\n"), "tile kernels")
	}
	r, _, err := Load("llama3_8b", nil)
	require.NoError(t, err)
	require.NotContains(t, strings.Join(r.Warnings(), "\n"), "kernel")
}
