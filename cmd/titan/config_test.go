package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigShow(t *testing.T) {
	t.Chdir(t.TempDir())
	code, stdout, stderr := titan(t, "config", "show", "--config", "qwen3_moe_debug", "--set", "training.steps=7", "--set", "training.steps=8")
	require.Equal(t, 0, code, stderr)
	for _, line := range []string{
		`name = "qwen3_moe" +# builtin:qwen3_moe_debug.toml:\d+`,
		`devices = 8 +# builtin:_debug.toml:\d+`,
		`steps = 8 +# --set training.steps=8`,
		`max_norm = 1.0 +# default`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", stdout)
	}
	code, bare, stderr := titan(t, "config", "show", "--config", "qwen3_moe_debug", "--set", "training.steps=8", "--bare")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, regexp.MustCompile(`(?m) +# .*$`).ReplaceAllString(stdout, ""), bare)

	require.NoError(t, os.WriteFile("again.toml", []byte(stdout), 0o644))
	code, again, stderr := titan(t, "config", "show", "--config", "again.toml", "--bare")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, bare, again, "what is shown is a recipe")
}

func TestConfigCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	code, stdout, stderr := titan(t, "config", "check", "--config", "qwen3_moe_debug.toml",
		"--set", "training.global_batch_size=32", "--set", "optimizer.state_dtype=bfloat16", "--set", "parallelism.data_parallel_replicate_degree=2", "--set", "training.steps=10")
	require.Equal(t, 0, code, stderr)
	// A device has a quarter of the 8,134,656 parameters in matrices and all
	// 2,560 in vectors, four bytes each; the moments have two bytes each.
	require.Equal(t, `recipe    builtin:qwen3_moe_debug.toml ← builtin:_debug.toml
model     qwen3_moe debugmodel: 8,137,216 parameters, 3,418,624 of them for each token
mesh      dp_replicate=2 × dp_shard=4 (8 devices), cpu
axis      dp_replicate=2  virtual devices of this process  gradients, added up
axis      dp_shard=4      virtual devices of this process  parameters gathered, gradients scattered, layer by layer
batch     32 sequences of 256 tokens in 4 passes, 1 a device: 8,192 tokens a step
run       10 steps, 81,920 tokens
memory    a device: parameters 7.8 MiB, gradients 7.8 MiB, optimizer state 7.8 MiB; 23.3 MiB in all, and activations
unsharded vectors, kept whole: layers.attn_norm, layers.q_norm, layers.k_norm, layers.ffn_norm, norm
note      lr_scheduler.warmup_steps is 20, but the schedule has 10 steps: warm-up is cut to 10
note      checkpoint.interval is 100, but training has 10 steps: there is only the checkpoint after the last step
note      data: there is no outputs/gosrc/tokens.idx here
note      validation.dataset_path: there is no outputs/gosrc/tokens_validation.idx here
note      model.hf_assets_path: there is no outputs/gosrc/tokenizer here
`, stdout[:strings.LastIndex(stdout, "ok ")])
	require.Regexp(t, `ok        recipe [0-9a-f]{12}\n$`, stdout)
}

// Which network each axis crosses, and what a pipeline wastes.
func TestConfigCheckNetworks(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		config string
		set    []string
		want   string
	}{
		{"llama3_70b", []string{
			"mesh.topology=tpu7x:4x4x4*4", "parallelism.pipeline_parallel_degree=2", "parallelism.data_parallel_replicate_degree=2",
			"parallelism.tensor_parallel_degree=4", "parallelism.context_parallel_degree=2", "training.local_batch_size=1", "training.global_batch_size=256",
		}, `mesh      pp=2 × dp_replicate=2 × dp_shard=16 × cp=2 × tp=4 (512 devices), tpu tpu7x:4x4x4*4
axis      pp=2            data-centre network between 2 slices                activations from stage to stage
axis      dp_replicate=2  data-centre network between 2 slices                gradients, added up
axis      dp_shard=16     ICI y ring of 4, z ring of 4, 1 link apart          parameters gathered, gradients scattered, layer by layer
axis      cp=2            ICI x ring of 2, up to 2 links apart                keys and values, in a ring, in every layer; parameters as dp_shard
axis      tp=4            2 devices of a chip, ICI x line of 2, 1 link apart  activations gathered and scattered, twice in every layer
batch     256 sequences of 8,192 tokens in 8 passes, 1 a device: 2,097,152 tokens a step
pipeline  2 stages of 40 layers, 8 passes: a stage waits for 11.1% of a step
`},
		{"llama3_8b", []string{"mesh.platform=cuda", "mesh.topology=", "mesh.devices=16", "parallelism.tensor_parallel_degree=2"}, `axis      dp_shard=8  network: known on the machine  parameters gathered, gradients scattered, layer by layer
axis      tp=2        network: known on the machine  activations gathered and scattered, twice in every layer
`},
	} {
		args := []string{"config", "check", "--config", c.config}
		for _, s := range c.set {
			args = append(args, "--set", s)
		}
		code, stdout, stderr := titan(t, args...)
		require.Equal(t, 0, code, stderr)
		for line := range strings.Lines(c.want) {
			require.Contains(t, stdout, line)
		}
	}
	code, stdout, stderr := titan(t, "config", "check", "--config", "qwen3_debug", "--set", "mesh.devices=1")
	require.Equal(t, 0, code, stderr)
	require.NotContains(t, stdout, "\naxis")

	// What is not sharded is said once: vectors as a rule, matrices with their size.
	code, stdout, stderr = titan(t, "config", "check", "--config", "llama3_debug", "--set", "model.override.dim=250", "--set", "model.override.hidden_dim=250", "--set", "model.override.n_heads=1", "--set", "model.override.n_kv_heads=1", "--set", "model.override.head_dim=14")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "\nunsharded vectors, kept whole: layers.attn_norm")
	require.Regexp(t, `\nnote      not sharded, [0-9.]+ MiB on every device: layers.wq, .*, of which no dimension divides by the 8 devices of dp_shard; with more copies `, stdout)
	require.Equal(t, 1, strings.Count(stdout, "layers.wq"))
}

// The output in the documentation is what the command prints.
func TestConfigCheckDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```\n\\$ titan (config check [^\n]*)\n(.*?)\n```").FindSubmatch(page)
	require.NotNil(t, found)
	t.Chdir(t.TempDir())
	code, stdout, stderr := titan(t, strings.Fields(string(found[1]))...)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, string(found[2]), stdout[:strings.LastIndex(stdout, "\nok ")])

	mistakes := regexp.MustCompile("(?s)```\n(my.toml:4: parallelism.*?)\n```").FindSubmatch(page)
	require.NotNil(t, mistakes)
	require.NoError(t, os.WriteFile("my.toml", []byte(`extends = "qwen3_30b_a3b"
mesh.topology = "v6e:8x8*2"
[parallelism]
data_parallel_replicate_degree = 1
tensor_parallel_degree = 6
expert_parallel_degree = 12
context_parallel_degree = 3
pipeline_parallel_degree = 5
`), 0o644))
	code, _, stderr = titan(t, "config", "check", "--config", "my.toml")
	require.Equal(t, 1, code)
	require.Equal(t, "titan: the recipe has 5 mistakes:\n  "+strings.ReplaceAll(string(mistakes[1]), "\n", "\n  ")+"\n", stderr)
}

func TestConfigMistakes(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("my.toml", []byte("extends = \"qwen3_debug\"\n[training]\nstep = 5\nseq_len = \"1k\"\n"), 0o644))
	for _, verb := range []string{"show", "check"} {
		code, stdout, stderr := titan(t, "config", verb, "--config", "my.toml", "--set", "optimizer.lr=-1")
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Equal(t, `titan: the recipe has 3 mistakes:
  my.toml:3: training.step: unknown key; did you mean "steps"?
  my.toml:4: training.seq_len: expected an integer, got the string "1k"
  --set optimizer.lr=-1: optimizer.lr: is -1 and must be zero or positive
`, stderr)
		code, _, stderr = titan(t, "config", verb)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, "needs --config")
		code, _, stderr = titan(t, "config", verb, "my.toml")
		require.Equal(t, 2, code, stderr)
	}
	code, _, stderr := titan(t, "config", "show", "--config", "qwen3_moe_debgu")
	require.Equal(t, 1, code)
	require.Equal(t, "titan: --config: there is no file and no built-in recipe \"qwen3_moe_debgu\"; did you mean \"qwen3_moe_debug\"?\n", stderr)
}

func TestConfigSchema(t *testing.T) {
	code, stdout, stderr := titan(t, "config", "schema")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "\n[training]\n    batches, steps and precision\n")
	require.Contains(t, stdout, "\n  seq_len: an integer, default 2048\n      tokens of a sequence\n")
	require.Contains(t, stdout, "\n[[optimizer.param_groups]]\n")
	for line := range strings.Lines(stdout) {
		require.LessOrEqual(t, len(line), 101, line)
	}
	code, one, stderr := titan(t, "config", "schema", "comm")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, one)

	code, stdout, stderr = titan(t, "config", "schema", "--json")
	require.Equal(t, 0, code, stderr)
	var keys []map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &keys))
	require.Contains(t, keys, map[string]any{"section": "training", "name": "steps", "type": "an integer", "default": "10000",
		"doc": "steps of the whole run, counted from its very beginning"})

	code, _, stderr = titan(t, "config", "schema", "trainig")
	require.Equal(t, 2, code)
	require.Equal(t, "titan: there is no section \"trainig\"; did you mean \"training\"?\n", stderr)
	code, _, _ = titan(t, "config", "schema", "a", "b")
	require.Equal(t, 2, code)
}

func TestConfigList(t *testing.T) {
	code, stdout, stderr := titan(t, "config", "list")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `(?m)^qwen3_235b_a22b +tpu7x:8x8x16 +Qwen3 235B`, stdout)
	require.Regexp(t, `(?m)^llama3_debug +8 cpu +Llama 3`, stdout)
	require.NotContains(t, stdout, "_tpu")
}
