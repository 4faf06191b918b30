package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// patched returns testdata/qwen/tokenizer.json with parts replaced: "model.x"
// inside the model, added tokens appended.
func patched(t testing.TB, patch map[string]any) []byte {
	data, err := os.ReadFile("testdata/qwen/tokenizer.json")
	require.NoError(t, err)
	var f map[string]any
	require.NoError(t, json.Unmarshal(data, &f))
	for k, v := range patch {
		if k == "added_tokens" {
			f[k] = append(f[k].([]any), v.([]any)...)
		} else if name, ok := strings.CutPrefix(k, "model."); ok {
			f["model"].(map[string]any)[name] = v
		} else {
			f[k] = v
		}
	}
	data, err = json.Marshal(f)
	require.NoError(t, err)
	return data
}

// Other pre-tokenizers, behaviours and kinds of added tokens. The values come
// from the Python tokenizers library.
func TestVariants(t *testing.T) {
	data, err := os.ReadFile("testdata/variants.json")
	require.NoError(t, err)
	var f struct {
		Variants []struct {
			Name  string
			Patch map[string]any
			Cases []struct {
				Text    string
				IDs     []int32
				Decoded string
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &f))
	require.NotEmpty(t, f.Variants)
	for _, v := range f.Variants {
		tok, err := Parse(v.Name, patched(t, v.Patch))
		require.NoError(t, err, v.Name)
		for _, c := range v.Cases {
			require.Equal(t, c.IDs, encode(t, tok, c.Text, false), "%s %q", v.Name, c.Text)
			require.Equal(t, c.Decoded, tok.Decode(c.IDs, false), "%s %q", v.Name, c.Text)
		}
	}
}

func TestRefused(t *testing.T) {
	type m = map[string]any
	byteLevel := m{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	for want, patch := range map[string]m{
		"truncates or pads":                       {"truncation": m{"max_length": 5}},
		`model.type is "Unigram"`:                 {"model.type": "Unigram"},
		"model.dropout is 0.1":                    {"model.dropout": 0.1},
		"end_of_word_suffix":                      {"model.end_of_word_suffix": "</w>"},
		"model.vocab is empty":                    {"model.vocab": m{}},
		`model.merges[0] joins "zz" and "yy"`:     {"model.merges": []any{[]any{"zz", "yy"}}},
		"model.merges[0] has 3 parts":             {"model.merges": []any{[]any{"a", "b", "c"}}},
		`model.merges[0] is "ab"`:                 {"model.merges": []any{"ab"}},
		`normalizer: type "Lowercase"`:            {"normalizer": m{"type": "Lowercase"}},
		"pre_tokenizer has no ByteLevel":          {"pre_tokenizer": nil},
		`pre_tokenizer: type "Metaspace"`:         {"pre_tokenizer": m{"type": "Metaspace"}},
		"pretokenizers[1] comes after ByteLevel":  {"pre_tokenizer": m{"type": "Sequence", "pretokenizers": []any{byteLevel, byteLevel}}},
		`unknown field "surprise"`:                {"pre_tokenizer": m{"type": "ByteLevel", "surprise": 1}},
		`behavior "Odd"`:                          {"pre_tokenizer": m{"type": "Split", "pattern": m{"Regex": "a"}, "behavior": "Odd", "invert": false}},
		`split pattern "("`:                       {"pre_tokenizer": m{"type": "Split", "pattern": m{"Regex": "("}, "behavior": "Isolated", "invert": false}},
		`post_processor: type "BertProcessing"`:   {"post_processor": m{"type": "BertProcessing"}},
		"leaves out the text":                     {"post_processor": m{"type": "TemplateProcessing", "single": []any{}, "pair": []any{}, "special_tokens": m{}}},
		`decoder: type "WordPiece"`:               {"decoder": m{"type": "WordPiece"}},
		`token "a" has id 2000 here and 64`:       {"added_tokens": []any{m{"id": 2000, "content": "a"}}},
		`id 5 belongs to both "&" and "<x>"`:      {"added_tokens": []any{m{"id": 5, "content": "<x>"}}},
		"id 1030 where the next free one is 1024": {"added_tokens": []any{m{"id": 1030, "content": "<x>"}}},
		`token "<x>" has id -1`:                   {"added_tokens": []any{m{"id": -1, "content": "<x>"}}},
		"which turns it into":                     {"added_tokens": []any{m{"id": 1024, "content": "e\u0301", "normalized": true}}},
		`unknown field "vocabulary"`:              {"vocabulary": 1},
	} {
		_, err := Parse("some.json", patched(t, patch))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "tokenizer some.json: ")
	}
	_, err := Parse("x", []byte(`{"model": {"type": "BPE", "vocab": {"a": 0}}}`))
	require.ErrorContains(t, err, `no token "Ā" for the byte 0x00`)
	_, err = Parse("x", []byte(`{"a"`))
	require.ErrorContains(t, err, "not a tokenizer.json")
	_, err = Load(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestDocumentTokens(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/tokenizer.json", patched(t, nil), 0o666))
	tok, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, "", tok.BOS())
	require.Equal(t, "<|endoftext|>", tok.EOS())
	config := func(s string) {
		require.NoError(t, os.WriteFile(dir+"/tokenizer_config.json", []byte(s), 0o666))
		tok, err = Load(dir + "/tokenizer.json")
	}
	config(`{"bos_token": null, "eos_token": {"content": "<|im_end|>", "lstrip": false}}`)
	require.NoError(t, err)
	require.Equal(t, "<|im_end|>", tok.EOS())
	config(`{"bos_token": "<|im_start|>"}`)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>", tok.BOS())
	config(`{"eos_token": "<eos>"}`)
	require.ErrorContains(t, err, `eos_token is "<eos>", which is not in the vocabulary`)
	config(`{`)
	require.ErrorContains(t, err, "tokenizer_config.json")
}
