package hfmodel

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/hfconfig"
)

// write makes a directory of files.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

const bare = `{"added_tokens": [{"id": 250, "content": "<|begin_of_text|>"}, {"id": 251, "content": "<|end_of_text|>"}, {"id": 252, "content": "<pad>"}]}`

func TestTokenizerFiles(t *testing.T) {
	c := goldenModels()["llama"].config
	ids := func(bos, eos, pad []int) hfconfig.Tokens { return hfconfig.Tokens{BOS: bos, EOS: eos, Pad: pad} }
	for name, test := range map[string]struct {
		files map[string]string
		given hfconfig.Tokens
		want  hfconfig.Tokens
	}{
		"bare":  {map[string]string{"tokenizer.json": bare}, hfconfig.Tokens{}, ids([]int{250}, []int{251}, nil)},
		"given": {map[string]string{"tokenizer.json": bare}, ids(nil, []int{7}, []int{8}), ids([]int{250}, []int{7}, []int{8})},
		"named": {map[string]string{"tokenizer.json": bare, "tokenizer_config.json": `{"eos_token": {"content": "<pad>"}, "pad_token": "<pad>", "bos_token": null}`},
			hfconfig.Tokens{}, ids(nil, []int{252}, []int{252})},
		"generation": {map[string]string{"tokenizer.json": bare, "generation_config.json": `{"eos_token_id": [3, 4]}`, "config.json": `{"eos_token_id": 5, "bos_token_id": 6}`},
			hfconfig.Tokens{}, ids([]int{6}, []int{3, 4}, nil)},
		"sentencepiece": {map[string]string{"tokenizer.model": "x", "config.json": `{"bos_token_id": 1}`}, hfconfig.Tokens{}, ids([]int{1}, nil, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			test.files["weights.bin"] = "not copied"
			dir, out := writeFiles(t, test.files), filepath.Join(t.TempDir(), "out")
			require.NoError(t, Export(ctx, out, "llama3", c, newSynthetic(c), ExportOptions{Tokenizer: dir, Tokens: test.given}))
			_, _, tokens, _, err := ReadConfig(out)
			require.NoError(t, err)
			require.Equal(t, test.want, tokens)
			for _, n := range []string{"tokenizer.json", "tokenizer.model"} {
				if want, ok := test.files[n]; ok {
					got, err := os.ReadFile(filepath.Join(out, n))
					require.NoError(t, err)
					require.Equal(t, want, string(got))
				}
			}
			require.NoFileExists(t, filepath.Join(out, "weights.bin"))
			var generation map[string]any
			raw, err := os.ReadFile(filepath.Join(out, "generation_config.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &generation))
			require.Contains(t, generation, "eos_token_id")

			made, err := os.ReadFile(filepath.Join(out, "tokenizer_config.json"))
			switch name {
			case "bare", "given", "generation":
				require.NoError(t, err)
				require.JSONEq(t, `{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128, "clean_up_tokenization_spaces": false,
					"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}`, string(made))
			case "named":
				require.Equal(t, test.files["tokenizer_config.json"], string(made))
			case "sentencepiece":
				require.Error(t, err)
			}
		})
	}
}

func TestTokenizerFaults(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		says string
	}{
		"absent":     {filepath.Join(t.TempDir(), "no"), "no such file"},
		"none":       {t.TempDir(), "has no tokenizer.json"},
		"other file": {filepath.Join(writeFiles(t, map[string]string{"vocab.json": "{}"}), "vocab.json"), "neither a directory nor a tokenizer.json"},
		"damaged":    {writeFiles(t, map[string]string{"tokenizer.json": "{"}), "tokenizer.json: unexpected end"},
		"config":     {writeFiles(t, map[string]string{"tokenizer.json": "{}", "config.json": `{"eos_token_id": "x"}`}), `eos_token_id: is "x" and must be a list of whole numbers`},
	} {
		t.Run(name, func(t *testing.T) {
			m := goldenModels()["llama"].config
			err := Export(ctx, filepath.Join(t.TempDir(), "out"), "llama3", m, newSynthetic(m), ExportOptions{Tokenizer: c.path})
			require.ErrorContains(t, err, c.says)
		})
	}
	// tokenizer.json itself names its directory.
	f, err := tokenizerFiles(filepath.Join(writeFiles(t, map[string]string{"tokenizer.json": bare, "vocab.json": "{}"}), "tokenizer.json"))
	require.NoError(t, err)
	require.Equal(t, []string{"tokenizer.json", "vocab.json"}, f.names)
}
