package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/hfmodel"
	"titan/data/tokenizer"
	"titan/pjrt/compilecache"
)

// byteTokenizer makes a folder with a tokenizer whose tokens are bytes.
func byteTokenizer(t *testing.T) string {
	t.Helper()
	raw, err := tokenizer.Build(tokenizer.Spec{Style: tokenizer.GPT2, Tokens: tokenizer.ByteTokens()})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), raw, 0o644))
	return dir
}

func TestGenerate(t *testing.T) {
	t.Setenv(compilecache.EnvVar, t.TempDir())
	repository, outputs, assets := goldenRepository(t, "llama"), t.TempDir(), byteTokenizer(t)
	folder := filepath.Join(outputs, "checkpoint")
	m, err := hfmodel.Open(repository)
	require.NoError(t, err)
	defer m.Close()
	saveGolden(t, repository, folder, map[string]any{hfmodel.StateKey: hfmodel.Saved{Family: m.Family, Config: m.Config, Tokenizer: assets}}, 10, 20)
	generate := func(args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := titan(t, append([]string{"generate", "--max-tokens", "12"}, args...)...)
		require.Equal(t, 0, code, stderr)
		return stdout, stderr
	}
	hot := []string{"--prompt", "func main", "--temperature", "2"}
	text, log := generate(append(hot, "--checkpoint", folder)...)
	require.NotEmpty(t, strings.TrimSpace(text))
	require.Contains(t, log, "llama3, ")
	require.Contains(t, log, "step-00000020")
	require.Contains(t, log, "extend_1: compiled in ")
	require.Regexp(t, `(?m)^prompt: 9 tokens in .* tokens/s\)$`, log)
	require.Regexp(t, `(?m)^sampled: 12 tokens in .* tokens/s\)$`, log)
	require.Contains(t, log, "sample: 12 tokens, ended by max tokens\n")

	// The second start compiles nothing, and every way to name the model gives the
	// same text.
	again, log := generate(append(hot, "--checkpoint", filepath.Join(folder, "step-00000010"))...)
	require.Equal(t, text, again)
	require.NotContains(t, log, "compiled in")
	require.Contains(t, log, "extend_16: loaded from the compile cache")
	again, _ = generate(append(hot, "--checkpoint", folder, "--step", "10", "--num", "1", "--seed", "0", "--top-p", "1", "--top-k", "0")...)
	require.Equal(t, text, again)
	again, _ = generate(append(hot, "--hf", repository, "--tokenizer", filepath.Join(assets, "tokenizer.json"))...)
	require.Equal(t, text, again)
	recipe := filepath.Join(t.TempDir(), "recipe.toml")
	require.NoError(t, os.WriteFile(recipe, []byte("[job]\ndump_folder = \""+outputs+"\"\n[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"), 0o644))
	again, _ = generate(append(hot, "--config", recipe)...)
	require.Equal(t, text, again)
	again, _ = generate(append(hot, "--checkpoint", folder, "--seed", "1")...)
	require.NotEqual(t, text, again)

	// Prompts from files and standard input; several samples, each on lines of its own.
	prompt := filepath.Join(t.TempDir(), "prompt")
	require.NoError(t, os.WriteFile(prompt, []byte("func main"), 0o644))
	echoed, _ := generate("--checkpoint", folder, "--prompt", "@"+prompt, "--temperature", "2", "--echo")
	require.Equal(t, "func main"+text, echoed)
	stdin := os.Stdin
	os.Stdin, err = os.Open(prompt)
	require.NoError(t, err)
	three, log := generate("--checkpoint", folder, "--prompt", "-", "--temperature", "2", "--num", "3")
	os.Stdin.Close()
	os.Stdin = stdin
	require.True(t, strings.HasPrefix(three, "--- sample 1 of 3\n"+text+"--- sample 2 of 3\n"), "%q", three)
	require.Equal(t, 3, strings.Count(three, "\n--- sample ")+1)
	require.Contains(t, log, "sampled: 36 tokens")

	// Text up to a stop string, and nothing of it.
	greedy, _ := generate("--checkpoint", folder, "--prompt", "a", "--temperature", "0")
	runes := []rune(strings.TrimSuffix(greedy, "\n"))
	require.Greater(t, len(runes), 4)
	stop := string(runes[2:4])
	stopped, log := generate("--checkpoint", folder, "--prompt", "a", "--temperature", "0", "--stop", "not there", "--stop", stop)
	require.Equal(t, greedy[:strings.Index(greedy, stop)], strings.TrimSuffix(stopped, "\n"))
	require.Contains(t, log, "ended by stop string")
}

func TestGenerateFaults(t *testing.T) {
	repository, folder, assets := goldenRepository(t, "llama"), filepath.Join(t.TempDir(), "checkpoint"), byteTokenizer(t)
	saveGolden(t, repository, folder, nil, 10)
	recipe := filepath.Join(t.TempDir(), "recipe.toml")
	require.NoError(t, os.WriteFile(recipe, []byte("[job]\ndump_folder = \"nowhere\"\n[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"), 0o644))
	from := []string{"--checkpoint", folder, "--tokenizer", assets}
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{2, nil, "needs one of --checkpoint, --hf and --config, and was given none"},
		{2, []string{"--checkpoint", folder, "--hf", repository}, "and was given --checkpoint and --hf"},
		{2, []string{"--hf", repository, "--step", "3"}, "a Hugging Face folder has none"},
		{2, []string{"--hf", repository, "--set", "a.b=3"}, "there is no --config"},
		{2, []string{"--checkpoint", filepath.Join(folder, "step-00000010"), "--step", "3"}, "but the path names step 10"},
		{2, append(from, "--max-tokens", "0"), "--max-tokens is 0 and must be positive"},
		{2, append(from, "--num", "0"), "--num is 0 and must be positive"},
		{2, append(from, "--temperature", "-1"), "--temperature is -1"},
		{2, append(from, "--temperature", "warm"), "see `titan generate --help`"},
		{2, append(from, "--top-p", "0"), "--top-p is 0 and must be above 0"},
		{2, append(from, "--top-p", "1.1"), "--top-p is 1.1"},
		{2, append(from, "--stop", ""), "--stop is empty"},
		{2, append(from, "--dtype", "int8"), `--dtype is "int8" and must be float32 or bfloat16`},
		{1, append(from, "--prompt", "@"+filepath.Join(assets, "none")), "--prompt: open "},
		{1, append(from, "--prompt", "@/dev/zero"), "--prompt: it has more than 16 MiB"},
		{1, append(from, "--prompt", "x", "--platform", "gpu"), "--platform names the plugin gpu"},
		{1, append(from, "--step", "11"), "10"},
		{1, []string{"--checkpoint", filepath.Join(assets, "none")}, "no such file"},
		{1, []string{"--checkpoint", folder}, "does not say where its tokenizer is; --tokenizer names"},
		{1, []string{"--checkpoint", folder, "--tokenizer", folder}, "--tokenizer: "},
		{1, []string{"--hf", assets}, "has no config.json"},
		{1, []string{"--config", recipe}, "where the recipe keeps its checkpoints, does not exist: train first"},
		{1, from, "the prompt is empty and the tokenizer has no token that begins a text"},
		{1, append(from, "--prompt", strings.Repeat("a", 128)), "the model reads at most 128 (max_seq_len)"},
		{1, append(from, "--prompt", "a", "--max-tokens", "200"), "ask for at most 127"},
	} {
		code, stdout, stderr := titan(t, append([]string{"generate"}, c.args...)...)
		require.Equal(t, c.code, code, "%q: %s", c.args, stderr)
		require.Contains(t, stderr, c.says)
		require.Empty(t, stdout)
	}
}
