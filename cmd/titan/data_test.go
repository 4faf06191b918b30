package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func put(t *testing.T, path, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

// From text to a dataset, through the three verbs.
func TestDataVerbs(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a.go", "x/b.go", "x/c.go", "testdata/d.go"} {
		put(t, filepath.Join("in", name), "// "+name+"\n"+strings.Repeat("func f() error {\n\treturn nil\n}\n", 50))
	}
	put(t, "in/notes.txt", "not a Go file \xff")
	from := []string{"in", "--include", "*.go", "--exclude", "testdata"}
	code, stdout, stderr := titan(t, append([]string{"data", "train-tokenizer", "--vocab-size", "280", "--output", "tok"}, from...)...)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "tokenizer.json: 280 tokens, 22 merges")
	require.Contains(t, stdout, "in 3 documents")
	require.Empty(t, stderr)
	code, _, stderr = titan(t, append([]string{"data", "train-tokenizer", "--vocab-size", "280", "--output", "tok"}, from...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "titan: data train-tokenizer: tok has a tokenizer.json already; choose another directory, or allow it to be overwritten (--overwrite)")

	code, stdout, stderr = titan(t, append([]string{"data", "prepare", "--tokenizer", "tok", "--output", "out/d"}, from...)...)
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^dataset: \d+ tokens in 3 documents \(uint16, \d+ bytes\)`, stdout)
	require.Empty(t, stderr)

	code, stdout, stderr = titan(t, "data", "inspect", "out/d", "--tokenizer", "tok", "--verify")
	require.Equal(t, 0, code, stderr)
	for _, want := range []string{"nats a token", "<|begin_of_text|>// x/b.go\n", "[278] before, [279] behind", "verified"} {
		require.Contains(t, stdout, want)
	}
	code, stdout, _ = titan(t, "data", "inspect", "out/d", "--json")
	require.Equal(t, 0, code)
	var report struct {
		Entropy float64 `json:"unigram_entropy_nats"`
		Tokens  int64   `json:"tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Greater(t, report.Entropy, 1.0)
	require.Positive(t, report.Tokens)

	// A bad record ends it with its place, unless skipped; nothing is left.
	code, _, stderr = titan(t, "data", "prepare", "in", "--tokenizer", "tok", "--output", "bad/d")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "notes.txt:1: not valid UTF-8 at byte 14 of the document (0xff); mend it, or have bad records skipped and counted (--skip-bad)")
	left, _ := os.ReadDir("bad")
	require.Empty(t, left)
	code, stdout, stderr = titan(t, "data", "prepare", "in", "--tokenizer", "tok", "--output", "bad/d", "--skip-bad", "--eos", "none")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "1 records skipped")
}

// Where the family of the style has no opening token, none is put.
func TestStyleTokens(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "in/a.txt", strings.Repeat("some text and more ", 100))
	for style, want := range map[string]string{
		"llama3": `{"bos_token":"<|begin_of_text|>","eos_token":"<|end_of_text|>"}`,
		"qwen":   `{"eos_token":"<|endoftext|>"}`,
		"gpt2":   `{"eos_token":"<|endoftext|>"}`,
	} {
		code, _, stderr := titan(t, "data", "train-tokenizer", "in", "--style", style, "--vocab-size", "270", "--output", style)
		require.Equal(t, 0, code, stderr)
		raw, err := os.ReadFile(filepath.Join(style, "tokenizer_config.json"))
		require.NoError(t, err)
		var config map[string]any
		require.NoError(t, json.Unmarshal(raw, &config))
		delete(config, "tokenizer_class")
		delete(config, "clean_up_tokenization_spaces")
		raw, err = json.Marshal(config)
		require.NoError(t, err)
		require.JSONEq(t, want, string(raw))
	}
	code, _, stderr := titan(t, "data", "train-tokenizer", "in", "--vocab-size", "2000", "--output", "t", "--bos", "", "--eos", "<e>", "--special", "<s>")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stderr, "titan: note: the text gave only ")
	raw, err := os.ReadFile("t/tokenizer.json")
	require.NoError(t, err)
	require.Contains(t, string(raw), `"content":"<e>"`)
	require.Contains(t, string(raw), `"content":"<s>"`)
	require.NotContains(t, string(raw), "begin_of_text")
}

func TestDataUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"prepare", "titan: `titan data prepare` needs inputs: files, directories or globs; see `titan data prepare --help`\n"},
		{"prepare in", "titan: `titan data prepare` needs --tokenizer and --output; see `titan data prepare --help`\n"},
		{"prepare in --tokenizer t --output o --format jsnl", "titan: --format \"jsnl\" is not known; did you mean \"jsonl\"?\n"},
		{"prepare in --tokenizer t --output o --workers -1", "--workers must not be negative"},
		{"train-tokenizer in --vocab-size 300 --output o --min-frequency 0", "--min-frequency is 0 and must be positive"},
		{"inspect d --top -1", "--top -1"},
		{"train-tokenizer in --output o", "needs --vocab-size; see"},
		{"train-tokenizer in --output o --vocab-size 300 --style lama3", "did you mean \"llama3\"?"},
		{"train-tokenizer in --output o --vocab-size 300 --sample-bytes 3XB", "want a size such as 64MB, 1.5GiB or 4096"},
		{"inspect", "titan: `titan data inspect` needs one dataset prefix; see"},
		{"inspct", "titan: unknown command \"inspct\"; did you mean \"inspect\"? (see `titan data --help`)\n"},
	} {
		code, stdout, stderr := titan(t, append([]string{"data"}, strings.Fields(c.args)...)...)
		require.Equal(t, 2, code, "%q: %s", c.args, stderr)
		require.Contains(t, stderr, c.says)
		require.Empty(t, stdout)
	}
}

func TestByteSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4096": 4096, "64MB": 64e6, "1.5GiB": 3 << 29, "2 kB": 2000, "7B": 7, "1TiB": 1 << 40} {
		var b byteSize
		require.NoError(t, b.Set(in), in)
		require.EqualValues(t, want, b, in)
	}
	for _, in := range []string{"", "MB", "-1", "1e300", "NaN", "5XB", "1e30TB"} {
		require.Error(t, new(byteSize).Set(in), in)
	}
}
