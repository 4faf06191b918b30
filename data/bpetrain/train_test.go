package bpetrain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/data/tokenizer"
)

func put(t testing.TB, path, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

// slow learns by the definition: count all pairs anew for each merge.
func slow(counts map[string]int64, merges int, min int64) [][2]string {
	words := map[string][]string{}
	for t := range counts {
		words[t] = strings.Split(tokenizer.Spell(t), "")
	}
	ids := map[string]int{}
	for i, t := range tokenizer.ByteTokens() {
		ids[t] = i
	}
	var out [][2]string
	for len(out) < merges {
		pairs := map[[2]string]int64{}
		for t, w := range words {
			for i := 1; i < len(w); i++ {
				pairs[[2]string{w[i-1], w[i]}] += counts[t]
			}
		}
		var best [2]string
		var most int64
		for p, n := range pairs {
			before := n == most && (ids[p[0]] < ids[best[0]] || ids[p[0]] == ids[best[0]] && ids[p[1]] < ids[best[1]])
			if n > most || before {
				best, most = p, n
			}
		}
		if most < min || most == 0 {
			break
		}
		out = append(out, best)
		joined := best[0] + best[1]
		if _, ok := ids[joined]; !ok {
			ids[joined] = len(ids)
		}
		for t, w := range words {
			var next []string
			for i := 0; i < len(w); i++ {
				if i+1 < len(w) && w[i] == best[0] && w[i+1] == best[1] {
					next = append(next, joined)
					i++
					continue
				}
				next = append(next, w[i])
			}
			words[t] = next
		}
	}
	return out
}

func TestLearnsAsDefined(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		counts := map[string]int64{}
		for range 40 {
			var b strings.Builder
			for range 1 + rng.IntN(8) {
				// Few letters and no runs of one: of "aaa" the definition above
				// and a trainer that keeps counts may differ.
				c := byte('a' + rng.IntN(5))
				if s := b.String(); s != "" && s[len(s)-1] == c {
					continue
				}
				b.WriteByte(c)
			}
			counts[b.String()] += int64(1 + rng.IntN(9))
		}
		l, err := learn(t.Context(), counts, 256+40, 2, func(int) {})
		require.NoError(t, err)
		s := l.spec(tokenizer.Spec{})
		want := slow(counts, len(s.Merges), 2)
		require.Equal(t, want, s.Merges, "round %d", round)
		require.NotEmpty(t, want)
	}
}

func corpus(t testing.TB, dir string) {
	rng := rand.New(rand.NewPCG(3, 4))
	words := []string{"func ", "return ", "err", " != nil", " {\n\t", "}\n", "é", "x", "1234", " the", "日本", "if "}
	for i := range 60 {
		var b strings.Builder
		for range 2000 {
			b.WriteString(words[rng.IntN(len(words))])
		}
		put(t, filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), b.String())
	}
}

// The file is a function of documents and options, whatever the workers.
func TestDeterministic(t *testing.T) {
	dir := t.TempDir()
	corpus(t, filepath.Join(dir, "in"))
	for _, style := range tokenizer.Styles() {
		var first []byte
		for _, workers := range []int{1, 4, 2} {
			o := Options{Inputs: []string{filepath.Join(dir, "in")}, Style: style, VocabSize: 330, Workers: workers, MinFrequency: 2,
				Special: []string{"<|bos|>", "<|end|>"}, BOS: "<|bos|>", EOS: "<|end|>", Output: filepath.Join(dir, "out"), Overwrite: true}
			res, err := Run(t.Context(), o)
			require.NoError(t, err)
			require.EqualValues(t, 60, res.Documents)
			data, err := os.ReadFile(res.OutputFile)
			require.NoError(t, err)
			if first == nil {
				first = data
			}
			require.Equal(t, string(first), string(data))

			tok, err := tokenizer.Load(o.Output)
			require.NoError(t, err)
			require.Equal(t, res.VocabSize, tok.VocabSize())
			require.Equal(t, res.SHA256, tok.Hash())
			require.Equal(t, "<|bos|>", tok.BOS())
			require.Equal(t, "<|end|>", tok.EOS())
			text := "func x1234 the err != nil {\n\té日本"
			ids, err := tok.Encode(text, true)
			require.NoError(t, err)
			require.EqualValues(t, tok.VocabSize()-2, ids[0])
			require.Equal(t, text, tok.Decode(ids, true))
			require.Less(t, len(ids), 20)
		}
	}
	names, err := os.ReadDir(filepath.Join(dir, "out"))
	require.NoError(t, err)
	require.Len(t, names, 2)
}

func TestSampleAndExhaustion(t *testing.T) {
	dir := t.TempDir()
	corpus(t, filepath.Join(dir, "in"))
	o := Options{Inputs: []string{filepath.Join(dir, "in")}, VocabSize: 50000, Output: filepath.Join(dir, "out"), Overwrite: true}
	res, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.True(t, res.Exhausted)
	require.Less(t, res.VocabSize, 50000)
	require.Equal(t, res.AllBytes, res.TextBytes)
	all := res.TextBytes

	// A sample is near its size, the same whatever the workers, another by seed.
	o.SampleBytes, o.VocabSize = all/3, 300
	sums := map[string]bool{}
	for _, workers := range []int{1, 4} {
		o.Workers = workers
		res, err = Run(t.Context(), o)
		require.NoError(t, err)
		require.False(t, res.Exhausted)
		require.Equal(t, all, res.AllBytes)
		require.InEpsilon(t, all/3, res.TextBytes, 0.4)
		require.Less(t, res.Documents, int64(60))
		sums[res.SHA256] = true
	}
	require.Len(t, sums, 1)
	o.Seed++
	res, err = Run(t.Context(), o)
	require.NoError(t, err)
	sums[res.SHA256] = true
	require.Len(t, sums, 2)

	o.SampleBytes = 1
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "took no document")
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "in", "a.txt"), "some text")
	put(t, filepath.Join(dir, "bad.txt"), "a\nb\xff")
	put(t, filepath.Join(dir, "empty.txt"), "")
	put(t, filepath.Join(dir, "there", "tokenizer.json"), "{}")
	base := Options{Inputs: []string{filepath.Join(dir, "in")}, VocabSize: 300, Output: filepath.Join(dir, "out")}
	for want, change := range map[string]func(*Options){
		"vocabulary of 257 is too small":  func(o *Options) { o.VocabSize, o.Special = 257, []string{"<a>", "<b>"} },
		"too large":                       func(o *Options) { o.VocabSize = 1 << 30 },
		`style "x"`:                       func(o *Options) { o.Style = "x" },
		"no output directory":             func(o *Options) { o.Output = "" },
		"no input":                        func(o *Options) { o.Inputs = nil },
		`special token "<a>" is empty or`: func(o *Options) { o.Special = []string{"<a>", "<a>"} },
		`closing token "<e>"`:             func(o *Options) { o.EOS = "<e>" },
		"has a tokenizer.json already":    func(o *Options) { o.Output = filepath.Join(dir, "there") },
		"bad.txt:2: not valid UTF-8":      func(o *Options) { o.Inputs = []string{filepath.Join(dir, "bad.txt")} },
		"the inputs have no text":         func(o *Options) { o.Inputs = []string{filepath.Join(dir, "empty.txt")} },
	} {
		o := base
		change(&o)
		_, err := Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, base)
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, base.Output)
}
