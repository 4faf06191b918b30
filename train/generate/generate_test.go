package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"titan/checkpoint"
	"titan/checkpoint/safetensors"
	"titan/data/tokenizer"
	"titan/dtype"
	"titan/graph"
	"titan/models/decoder"
	"titan/train"
)

// byteTokenizer has a token for every byte and, if bos is not empty, that special
// token before every text.
func byteTokenizer(t testing.TB, bos string) *tokenizer.Tokenizer {
	t.Helper()
	spec := tokenizer.Spec{Style: tokenizer.GPT2, Tokens: tokenizer.ByteTokens()}
	if bos != "" {
		spec.Special, spec.BOS = []string{bos}, bos
	}
	raw, err := tokenizer.Build(spec)
	require.NoError(t, err)
	tok, err := tokenizer.Parse("bytes", raw)
	require.NoError(t, err)
	return tok
}

// run returns the result of a request and the text of each sample, whose pieces
// it checks.
func run(t *testing.T, g *Generator, r Request) (*Result, []string) {
	t.Helper()
	texts := make([]string, max(1, r.Samples))
	r.Emit = func(i int, piece string) error {
		require.NotEmpty(t, piece)
		require.True(t, utf8.ValidString(piece), "%q", piece)
		texts[i] += piece
		return nil
	}
	res, err := g.Generate(ctx, r)
	require.NoError(t, err)
	require.Len(t, res.Samples, len(texts))
	return res, texts
}

// The likeliest continuation is that of reading the whole text again for every
// token.
func TestGreedy(t *testing.T) {
	g := golden(t, "qwen3_moe")
	r := Request{Prompt: "func main", MaxTokens: 20, Samples: 2}
	res, texts := run(t, g, r)
	ids := append([]int32(nil), res.Prompt...)
	require.Equal(t, "func main", g.tok.Decode(ids, false))
	for range 20 {
		g.e.rewind(0)
		logits, err := g.e.read(ctx, ids)
		require.NoError(t, err)
		best := 0
		for i, x := range logits {
			if x > logits[best] {
				best = i
			}
		}
		ids = append(ids, int32(best))
	}
	for i, s := range res.Samples {
		require.Equal(t, ids[len(res.Prompt):], s.Tokens)
		require.Equal(t, MaxTokens, s.Ended)
		require.Equal(t, texts[0], texts[i])
	}
	require.Equal(t, 40, res.Tokens())
	_, again := run(t, g, r)
	require.Equal(t, texts, again)
}

func TestSeedsAndSamples(t *testing.T) {
	g := golden(t, "qwen3_moe")
	r := Request{Prompt: "x", MaxTokens: 24, Samples: 3, Sampling: Sampling{Temperature: 1, Seed: 7}}
	_, three := run(t, g, r)
	_, again := run(t, g, r)
	require.Equal(t, three, again)
	require.NotEqual(t, three[0], three[1])
	r.Samples = 1
	_, one := run(t, g, r)
	require.Equal(t, three[:1], one, "a sample does not depend on the others")
	r.Sampling.Seed = 8
	_, other := run(t, g, r)
	require.NotEqual(t, one, other)
}

// The text comes in whole characters, and is that of the tokens.
func TestTextOfTokens(t *testing.T) {
	g := golden(t, "qwen3_moe")
	_, hot := run(t, g, Request{Prompt: "x", MaxTokens: 60, Samples: 2, Sampling: Sampling{Temperature: 5}})
	for seed := range uint64(2) {
		r := Request{Prompt: "x", MaxTokens: 60, Sampling: Sampling{Temperature: 5, Seed: seed}}
		res, texts := run(t, g, r)
		all := g.tok.Decode(res.Samples[0].Tokens, true)
		require.True(t, strings.HasPrefix(all, texts[0]))
		require.LessOrEqual(t, len([]rune(all))-len([]rune(texts[0])), 1, "only a character that is cut short is left out")
	}
	require.NotEqual(t, hot[0], hot[1])
}

func TestEndOfText(t *testing.T) {
	g := golden(t, "qwen3_moe")
	res, texts := run(t, g, Request{Prompt: "ab", MaxTokens: 30})
	tokens := res.Samples[0].Tokens
	end := tokens[10]
	first := 0
	for tokens[first] != end {
		first++
	}
	g.eos = map[int32]bool{end: true}
	res, ended := run(t, g, Request{Prompt: "ab", MaxTokens: 30, Stop: []string{"\x00 never"}})
	require.Equal(t, tokens[:first+1], res.Samples[0].Tokens)
	require.Equal(t, EndOfText, res.Samples[0].Ended)
	require.Equal(t, g.tok.Decode(tokens[:first], true), ended[0])
	require.NotEqual(t, texts, ended)
}

func TestStopStringOfSeveralTokens(t *testing.T) {
	g := golden(t, "qwen3_moe")
	r := Request{Prompt: "ab", MaxTokens: 60, Sampling: Sampling{Temperature: 0.7, Seed: 3}}
	_, texts := run(t, g, r)
	runes := []rune(texts[0])
	require.Greater(t, len(runes), 20)
	stop := string(runes[8:12])
	r.Stop = []string{"never in it", stop}
	res, stopped := run(t, g, r)
	require.Equal(t, texts[0][:strings.Index(texts[0], stop)], stopped[0])
	require.Equal(t, StopString, res.Samples[0].Ended)
	require.Less(t, len(res.Samples[0].Tokens), 60)
}

// A model reads no further than it was made for.
func TestLongestSequence(t *testing.T) {
	g := golden(t, "qwen3_moe")
	long := strings.Repeat("a", 120)
	res, _ := run(t, g, Request{Prompt: long})
	require.Len(t, res.Samples[0].Tokens, 8)
	require.Equal(t, LongestSequence, res.Samples[0].Ended)
	res, _ = run(t, g, Request{Prompt: long, MaxTokens: 8})
	require.Equal(t, MaxTokens, res.Samples[0].Ended)
	for says, r := range map[string]Request{
		"the prompt has 120 tokens and 9 more are asked for, but the model reads at most 128 (max_seq_len): ask for at most 8": {Prompt: long, MaxTokens: 9},
		"the prompt has 128 tokens and the model reads at most 128 (max_seq_len)":                                              {Prompt: strings.Repeat("a", 128)},
		"the prompt is empty and the tokenizer has no token that begins a text":                                                {Prompt: ""},
		"max-tokens is -1":  {Prompt: "a", MaxTokens: -1},
		"temperature is -1": {Prompt: "a", Sampling: Sampling{Temperature: -1}},
		"stop is empty":     {Prompt: "a", Stop: []string{""}},
	} {
		_, err := g.Generate(ctx, r)
		require.ErrorContains(t, err, says)
	}
}

func TestInterrupted(t *testing.T) {
	g := golden(t, "qwen3_moe")
	c, cancel := context.WithCancel(ctx)
	n := 0
	r := Request{Prompt: "ab", MaxTokens: 60, Samples: 2, Sampling: Sampling{Temperature: 1}, Emit: func(int, string) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	}}
	res, err := g.Generate(c, r)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, res.Samples, 1)
	require.NotEmpty(t, res.Samples[0].Tokens)
	require.Empty(t, res.Samples[0].Ended)

	broken := errors.New("broken pipe")
	r.Emit = func(int, string) error { return broken }
	_, err = g.Generate(ctx, r)
	require.ErrorIs(t, err, broken)
	_, err = g.Generate(ctx, Request{Prompt: "ab", MaxTokens: 3})
	require.NoError(t, err, "it goes on after an error")
}

// made is a model of given weights, without a file.
func made(c decoder.Config, d dtype.DType, value func(name string, i int) float32) *Weights {
	w := &Weights{Where: "nowhere", Family: "llama3", Config: c, close: func() error { return nil }}
	for _, p := range c.Params() {
		w.entries = append(w.entries, safetensors.Entry{Name: p.Name, DType: d, Shape: p.Shape})
	}
	w.restore = func(_ context.Context, t checkpoint.Target, deliver checkpoint.Deliver) error {
		for k, x := range t.Tensors {
			xs := make([]float32, graph.T(dtype.F32, x.Shape...).Elements())
			for i := range xs {
				xs[i] = value(x.Name, i)
			}
			raw, err := dtype.FromFloat32(x.DType, xs)
			if err != nil {
				return err
			}
			if err := deliver(k, []int{0}, raw); err != nil {
				return err
			}
		}
		return nil
	}
	return w
}

var tiny = decoder.Config{
	VocabSize: 264, Dim: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, HiddenDim: 8, MaxSeqLen: 64, NormEps: 1e-5, RopeTheta: 1e4, TieEmbeddings: true,
}

// wave gives matrices some values and norms the weight 1.
func wave(name string, i int) float32 {
	if strings.HasSuffix(name, "norm") {
		return 1
	}
	return float32(math.Sin(float64(i)*0.7) * 0.5)
}

// A tokenizer that begins texts with a token does so for empty ones, too; and rows
// of the vocabulary without a token are never drawn.
func TestBeginOfTextAndPaddedVocabulary(t *testing.T) {
	w := made(tiny, dtype.F32, func(name string, i int) float32 {
		if row := i / tiny.Dim; name == "embed" && row > 256 {
			return 50 // by far the likeliest, if they counted
		}
		return wave(name, i)
	})
	var compiled []string
	var done, total int64
	g, err := New(ctx, machine(t), w, byteTokenizer(t, "<|begin_of_text|>"), Options{
		Compiled: func(name, _ string) { compiled = append(compiled, name) },
		Progress: func(d, n int64) { done, total = d, n },
	})
	require.NoError(t, err)
	defer g.Close()
	require.NotZero(t, total)
	require.Equal(t, total, done)
	res, texts := run(t, g, Request{MaxTokens: 30, Sampling: Sampling{Temperature: 1}})
	require.Equal(t, []int32{256}, res.Prompt)
	for _, id := range res.Samples[0].Tokens {
		require.LessOrEqual(t, id, int32(256))
	}
	require.NotContains(t, texts[0], "begin_of_text")
	require.Equal(t, []string{"extend_1"}, compiled)
	res, _ = run(t, g, Request{Prompt: "hi", MaxTokens: 1})
	require.Equal(t, []int32{256, 'h' - '!', 'i' - '!'}, res.Prompt)
	require.Contains(t, strings.Join(res.Summary(), "\n"), "ended by max tokens")
}

func TestTokenizerOfAnotherModel(t *testing.T) {
	c := tiny
	c.VocabSize = 200
	_, err := New(ctx, machine(t), made(c, dtype.F32, wave), byteTokenizer(t, ""), Options{})
	require.EqualError(t, err, "generate: the tokenizer has token ids up to 255, the model of nowhere has a vocabulary of 200: the tokenizer is not the model's")
}

func TestBrokenWeights(t *testing.T) {
	w := made(tiny, dtype.F32, func(string, int) float32 { return float32(math.NaN()) })
	g, err := New(ctx, machine(t), w, byteTokenizer(t, "<s>"), Options{})
	require.NoError(t, err)
	defer g.Close()
	_, err = g.Generate(ctx, Request{MaxTokens: 2})
	require.ErrorContains(t, err, "the model's parameters, or what it computes from them, are not finite")
}

// Weights are converted once, whatever type they are stored in and computed with.
func TestTypes(t *testing.T) {
	logits := map[[2]dtype.DType][]float32{}
	for _, stored := range []dtype.DType{dtype.F32, dtype.BF16} {
		for _, compute := range []dtype.DType{dtype.F32, dtype.BF16} {
			e, err := load(ctx, machine(t), made(tiny, stored, wave), compute, nil)
			require.NoError(t, err)
			require.NoError(t, e.begin(20))
			got, err := e.read(ctx, []int32{1})
			require.NoError(t, err)
			logits[[2]dtype.DType{stored, compute}] = got
			for i, r := range tiny.Rows() {
				want := compute
				if len(r.Shape) < 2 {
					want = dtype.F32
				}
				require.Equal(t, want, e.params[i].DType(), r.Name)
			}
			e.close()
		}
	}
	of := func(stored, compute dtype.DType) []float32 { return logits[[2]dtype.DType{stored, compute}] }
	require.Equal(t, of(dtype.BF16, dtype.BF16), of(dtype.F32, dtype.BF16))
	require.NotEqual(t, of(dtype.F32, dtype.F32), of(dtype.BF16, dtype.F32))
	for key, l := range logits {
		require.InDeltaSlice(t, of(dtype.F32, dtype.F32), l, 0.1, key)
	}
}

func TestCacheLimits(t *testing.T) {
	g := golden(t, "qwen3_moe")
	e := g.e
	require.NoError(t, e.begin(60))
	room := e.length
	e.rewind(0)
	ids := make([]int32, room)
	for i := range ids {
		ids[i] = int32(i % 50)
	}
	_, err := e.read(ctx, append(ids, 1))
	require.EqualError(t, err, fmt.Sprintf("generate: the cache is full: it has 0 of at most %d tokens, and %d more were to be read", room, room+1))
	_, err = e.read(ctx, nil)
	require.Error(t, err)
	_, err = e.read(ctx, []int32{256})
	require.ErrorContains(t, err, "token 256 is outside the model's vocabulary of 256")
	_, err = e.read(ctx, []int32{-1})
	require.Error(t, err)

	// At the end of the cache there is no room for padding.
	_, err = e.read(ctx, ids[:room-3])
	require.NoError(t, err)
	got, err := e.read(ctx, ids[room-3:])
	require.NoError(t, err)
	e.rewind(0)
	want, err := e.read(ctx, ids)
	require.NoError(t, err)
	require.InDeltaSlice(t, want, got, 3e-5)
	_, err = e.read(ctx, []int32{1})
	require.ErrorContains(t, err, fmt.Sprintf("has %d of at most %d", room, room))
}

func TestEndTokensBesideTheTokenizer(t *testing.T) {
	dir := t.TempDir()
	raw, err := tokenizer.Build(tokenizer.Spec{Style: tokenizer.GPT2, Tokens: tokenizer.ByteTokens(), Special: []string{"</s>"}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), raw, 0o644))
	w := made(tiny, dtype.F32, wave)
	_, err = w.OpenTokenizer("")
	require.EqualError(t, err, "generate: nowhere does not say where its tokenizer is")
	w.Tokenizer = filepath.Join(dir, "gone")
	_, err = w.OpenTokenizer("")
	require.ErrorContains(t, err, "the tokenizer of nowhere should be in "+w.Tokenizer+" and is not")

	w.Tokenizer = dir
	tok, err := w.OpenTokenizer("")
	require.NoError(t, err)
	require.Empty(t, w.EOS)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id": [3, 4]}`), 0o644))
	_, err = w.OpenTokenizer(filepath.Join(dir, "tokenizer.json"))
	require.NoError(t, err)
	require.Equal(t, []int{3, 4}, w.EOS)
	g, err := New(ctx, machine(t), w, tok, Options{})
	require.NoError(t, err)
	defer g.Close()
	require.Equal(t, map[int32]bool{3: true, 4: true, 256: true}, g.eos)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{`), 0o644))
	_, err = w.OpenTokenizer("")
	require.ErrorContains(t, err, "generation_config.json")
}

// The programs share what they can: one for single tokens, and powers of two.
func TestChunks(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 2: {16}, 16: {16}, 17: {32}, 255: {256}, 256: {256}, 257: {256, 1}, 300: {256, 64}, 512: {256, 256}} {
		require.Equal(t, want, chunksFor(n, 256), "%d tokens", n)
	}
	require.Equal(t, []int{64, 64, 128, 1024}, []int{cacheLength(1), cacheLength(64), cacheLength(65), cacheLength(1000)})
	mod, err := BuildExtend(tiny, dtype.F32, 4, 64)
	require.NoError(t, err)
	require.Equal(t, "extend_4", mod.Name())
	var _ *train.Compiled // its inputs are the rows, the caches, and three more
	require.Len(t, mod.Inputs(), len(tiny.Rows())+2*tiny.Layers+3)
}
