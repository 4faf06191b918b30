package inspect

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/data/indexed"
	"titan/data/prepare"
)

const llama3 = "../tokenizer/testdata/llama3"

func put(t *testing.T, path, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

// write makes a dataset as other software would: without a manifest.
func write(t *testing.T, prefix string, docs ...[]int32) {
	w, err := indexed.Create(prefix, indexed.Int32, false)
	require.NoError(t, err)
	for _, d := range docs {
		require.NoError(t, w.Append(d))
	}
	require.NoError(t, w.Commit())
}

// Counts 4, 2, 1, 1 of 8: the entropy is 1.75 bits.
func TestEntropy(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "d")
	write(t, prefix, []int32{7, 7, 3}, []int32{7, 900}, []int32{3, 5, 7})
	r, err := Run(t.Context(), Options{Prefix: prefix, Top: 2})
	require.NoError(t, err)
	require.InDelta(t, 1.75*math.Ln2, r.UnigramEntropy, 1e-12)
	require.Equal(t, []int64{8, 3, 2, 3, 3, 32}, []int64{r.Tokens, r.Documents, r.Shortest, r.Median, r.Longest, r.BinBytes})
	require.Equal(t, 4, r.Distinct)
	require.EqualValues(t, 900, r.LargestID)
	require.Equal(t, []Token{{ID: 7, Count: 4}, {ID: 3, Count: 2}}, r.Frequent)
	require.Nil(t, r.Manifest)
	require.Contains(t, r.String(), "1.2130 nats a token")
	require.Contains(t, r.String(), "not written by titan")

	_, err = Run(t.Context(), Options{Prefix: prefix, Verify: true})
	require.ErrorContains(t, err, "no manifest")
	_, err = Run(t.Context(), Options{Prefix: prefix, Tokenizer: llama3})
	require.NoError(t, err)
	require.NoError(t, os.Remove(prefix+".idx"))
	_, err = Run(t.Context(), Options{Prefix: prefix})
	require.ErrorContains(t, err, "d.idx")
}

func TestPrepared(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "in", "a.txt"), "func main() {\n\tprintln(\"é\")\n}\n")
	put(t, filepath.Join(dir, "in", "b.txt"), strings.Repeat("the quick \x1b[31m", 100))
	prefix := filepath.Join(dir, "d")
	res, err := prepare.Run(t.Context(), prepare.Options{Inputs: []string{filepath.Join(dir, "in")}, Tokenizer: llama3, Output: prefix})
	require.NoError(t, err)
	o := Options{Prefix: prefix + ".bin", Tokenizer: llama3, Samples: 5, Length: 20, Top: 3, Verify: true}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, res.Train, r.Manifest)
	require.True(t, r.Verified)
	require.EqualValues(t, 30+15*100+1, r.TextBytes)
	require.Len(t, r.Samples, 2)
	require.True(t, strings.HasPrefix(r.Samples[0].Text, "<|begin_of_text|>func main() {\n\tprint"))
	text := r.String()
	require.Contains(t, text, "document 1, ")
	require.Contains(t, text, "bytes a token")
	require.NotContains(t, text, "\x1b", "a document must not command the terminal")
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"unigram_entropy_nats":`)

	o2 := o
	o2.Tokenizer = "../tokenizer/testdata/qwen"
	_, err = Run(t.Context(), o2)
	require.ErrorContains(t, err, "made with another tokenizer")

	// Damage that keeps the size is found by its hash.
	bin, err := os.ReadFile(prefix + ".bin")
	require.NoError(t, err)
	bin[0] ^= 1
	require.NoError(t, os.WriteFile(prefix+".bin", bin, 0o666))
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "d.bin has SHA-256")
	o.Verify = false
	_, err = Run(t.Context(), o)
	require.NoError(t, err)

	m := *res.Train
	m.Tokens++
	raw, err = m.Marshal()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(prefix+".json", raw, 0o666))
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "do not belong together")
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "big"), []int32{1, 1 << 30})
	_, err := Run(t.Context(), Options{Prefix: filepath.Join(dir, "big")})
	require.ErrorContains(t, err, "no token ids")
	write(t, filepath.Join(dir, "d"), []int32{1, 5000})
	_, err = Run(t.Context(), Options{Prefix: filepath.Join(dir, "d"), Tokenizer: llama3})
	require.ErrorContains(t, err, "has id 5000, the vocabulary of "+llama3+" ends at 1023")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Run(ctx, Options{Prefix: filepath.Join(dir, "d")})
	require.ErrorIs(t, err, context.Canceled)
}
