package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

type sample struct {
	Text        string   `json:"text"`
	IDs         []int32  `json:"ids"`
	WithSpecial []int32  `json:"ids_with_special"`
	Tokens      []string `json:"tokens"`
	DecodedKeep string   `json:"decoded_keep_special"`
	DecodedSkip string   `json:"decoded_skip_special"`
}

func load(t testing.TB, name string) *Tokenizer {
	tok, err := Load(filepath.Join("testdata", name))
	require.NoError(t, err)
	return tok
}

func samples(t testing.TB, name string) []sample {
	data, err := os.ReadFile(filepath.Join("testdata", name, "samples.json"))
	require.NoError(t, err)
	var f struct{ Samples []sample }
	require.NoError(t, json.Unmarshal(data, &f))
	require.NotEmpty(t, f.Samples)
	return f.Samples
}

func encode(t testing.TB, tok *Tokenizer, text string, special bool) []int32 {
	ids, err := tok.Encode(text, special)
	require.NoError(t, err)
	if ids == nil {
		ids = []int32{}
	}
	return ids
}

// The values come from the Python tokenizers library.
func TestGoldens(t *testing.T) {
	for _, name := range []string{"llama3", "qwen"} {
		tok := load(t, name)
		require.Equal(t, 1024, tok.VocabSize())
		for _, s := range samples(t, name) {
			require.Equal(t, s.IDs, encode(t, tok, s.Text, false), "%s %q", name, s.Text)
			require.Equal(t, s.WithSpecial, encode(t, tok, s.Text, true), "%s %q", name, s.Text)
			for i, id := range s.IDs {
				token, ok := tok.Token(id)
				require.True(t, ok)
				require.Equal(t, s.Tokens[i], token)
			}
			require.Equal(t, s.DecodedKeep, tok.Decode(s.IDs, false), "%s %q", name, s.Text)
			require.Equal(t, s.DecodedSkip, tok.Decode(s.WithSpecial, true), "%s %q", name, s.Text)
		}
	}
}
