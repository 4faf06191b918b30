package data

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/data/indexed"
	"titan/data/manifest"
)

const vocab = 50000

// dataset writes documents of distinct tokens, so that a token names its place
// in the stream: first, first+1, ...
func dataset(t testing.TB, name string, first int32, lengths ...int) string {
	prefix := filepath.Join(t.TempDir(), name)
	w, err := indexed.Create(prefix, indexed.DTypeFor(vocab), false)
	require.NoError(t, err)
	defer w.Abort()
	for _, n := range lengths {
		doc := make([]int32, n)
		for i := range doc {
			doc[i] = first
			first++
		}
		require.NoError(t, w.Append(doc))
	}
	_, err = w.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	return prefix
}

func lengths(seed uint64, n, most int) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i := range out {
		out[i] = 1 + rng.IntN(most)
	}
	return out
}

func open(t testing.TB, o Options) *Loader {
	l, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func allRows(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// Over each epoch every token but the first is the label of exactly one valid
// position, in training as in a pass.
func TestEveryTokenOncePerEpoch(t *testing.T) {
	for _, pass := range []bool{false, true} {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 2))
			prefix := dataset(t, "d", 0, lengths(seed, 60, 40)...)
			o := Options{Sources: []Source{{Prefix: prefix}}, SeqLen: 1 + rng.IntN(50), Vocab: vocab, Seed: seed, Pass: pass}
			o.GlobalBatch = 1 + rng.IntN(5)
			l := open(t, o)
			tokens := int(l.Tokens())
			counts := make([]int, tokens)
			epochs := 3
			if pass {
				epochs = 1
			}
			samples := epochs * (tokens - 1 + o.SeqLen - 1) / o.SeqLen
			if !pass {
				samples = epochs * ((tokens - 1 + o.SeqLen - 1) / o.SeqLen)
			}
			valid, perEpoch := int64(0), map[int64]int64{}
			steps := int64((samples + o.GlobalBatch - 1) / o.GlobalBatch)
			if pass {
				require.Equal(t, steps, l.Steps())
			}
			for step := range steps {
				b, err := l.Batch(step, allRows(o.GlobalBatch))
				require.NoError(t, err)
				for r := range b.Rows {
					if int64(step)*int64(o.GlobalBatch)+int64(r) >= int64(samples) {
						if pass {
							require.Equal(t, -1, b.Sources[r].Source)
						}
						if !pass {
							continue
						}
					}
					for j := r * o.SeqLen; j < (r+1)*o.SeqLen; j++ {
						if b.LossMask[j] == 0 {
							require.Zero(t, b.Segments[j])
							require.Zero(t, b.Inputs[j])
							continue
						}
						require.Equal(t, b.Inputs[j]+1, b.Labels[j])
						counts[b.Labels[j]]++
						perEpoch[b.Sources[r].Epoch]++
						valid++
					}
				}
			}
			require.Zero(t, counts[0])
			for i, c := range counts[1:] {
				require.Equal(t, epochs, c, "seed %d pass %v token %d of %d, seq %d", seed, pass, i+1, tokens, o.SeqLen)
			}
			require.Len(t, perEpoch, epochs)
			for _, n := range perEpoch {
				require.EqualValues(t, tokens-1, n)
			}
			if pass {
				_, err := l.Batch(steps, nil)
				require.ErrorIs(t, err, ErrEnd)
			}
		}
	}
}

// row cuts one row out of a batch.
func row(b *Batch, i int) []any {
	lo, hi := i*b.SeqLen, (i+1)*b.SeqLen
	return []any{b.Inputs[lo:hi], b.Labels[lo:hi], b.Positions[lo:hi], b.Segments[lo:hi], b.LossMask[lo:hi], b.Sources[i]}
}

func mixed(t testing.TB, seed uint64) Options {
	return Options{
		Sources: []Source{
			{dataset(t, "a", 0, lengths(1, 100, 30)...), 3},
			{dataset(t, "b", 10000, lengths(2, 40, 90)...), 1},
			{dataset(t, "c", 20000, lengths(3, 200, 9)...), 0.5},
		},
		SeqLen: 24, GlobalBatch: 16, Vocab: vocab, Seed: seed,
		ResetPositions: true, IsolateDocuments: true, MaskBoundaries: true,
	}
}

// The global batch of a step does not depend on how rows are spread over hosts,
// on their order, on what was asked before, or on the loader asked.
func TestHostsAndResume(t *testing.T) {
	o := mixed(t, 11)
	whole := open(t, o)
	var global []*Batch
	for step := range int64(40) {
		b, err := whole.Batch(step, allRows(16))
		require.NoError(t, err)
		global = append(global, b)
	}
	for _, hosts := range []int{1, 2, 4, 16} {
		for h := range hosts {
			l := open(t, o) // each host, and each resume, opens its own
			var rows []int
			for r := h; r < 16; r += hosts {
				rows = append(rows, r)
			}
			slices.Reverse(rows)
			for _, step := range []int64{39, 0, 17} {
				b, err := l.Batch(step, rows)
				require.NoError(t, err)
				valid := int64(0)
				for i, r := range rows {
					require.Equal(t, row(global[step], r), row(b, i))
					for _, m := range b.LossMask[i*b.SeqLen : (i+1)*b.SeqLen] {
						valid += int64(m)
					}
				}
				require.Equal(t, valid, b.Valid)
			}
		}
	}
	// Resumed iterators continue with the same steps.
	for _, k := range []int64{0, 7, 23} {
		it := whole.Iterate(k, allRows(16), 3)
		for step := k; step < 40; step++ {
			b, err := it.Next()
			require.NoError(t, err)
			require.Equal(t, global[step], b)
		}
		it.Close()
		_, err := it.Next()
		require.Error(t, err)
	}
	// Another seed is another order of the same data.
	o.Seed++
	b, err := open(t, o).Batch(0, allRows(16))
	require.NoError(t, err)
	require.NotEqual(t, global[0].Inputs, b.Inputs)
}

func TestMixingFollowsWeights(t *testing.T) {
	l := open(t, mixed(t, 5))
	counts := make([]float64, 3)
	const steps = 640 // 10 blocks of 1024 rows
	for step := range int64(steps) {
		b, err := l.Batch(step, allRows(16))
		require.NoError(t, err)
		for r, from := range b.Sources {
			counts[from.Source]++
			first := b.Inputs[r*b.SeqLen]
			require.EqualValues(t, from.Source, first/10000)
		}
	}
	for i, w := range []float64{3, 1, 0.5} {
		require.InDelta(t, steps*16*w/4.5, counts[i], 1.01)
	}
	require.InDelta(t, steps*16*3/4.5/float64(l.sets[0].samples), l.Epochs(steps)[0], 1e-9)
}

func TestDocumentBoundaries(t *testing.T) {
	prefix := dataset(t, "d", 0, 3, 1, 5, 2) // documents start at 0, 3, 4, 9
	o := Options{Sources: []Source{{Prefix: prefix}}, SeqLen: 8, GlobalBatch: 1, Vocab: vocab, Pass: true, Pad: 9,
		ResetPositions: true, IsolateDocuments: true, MaskBoundaries: true}
	l := open(t, o)
	require.EqualValues(t, 2, l.Steps())
	b, err := l.Batch(0, []int{0})
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7}, b.Inputs)
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6, 7, 8}, b.Labels)
	require.Equal(t, []int32{0, 1, 2, 0, 0, 1, 2, 3}, b.Positions)
	require.Equal(t, []int32{1, 1, 1, 2, 3, 3, 3, 3}, b.Segments)
	require.Equal(t, []float32{1, 1, 0, 0, 1, 1, 1, 1}, b.LossMask)
	require.EqualValues(t, []int64{6, 8}, []int64{b.Valid, b.Tokens})
	b, err = l.Batch(1, []int{0})
	require.NoError(t, err)
	require.Equal(t, []int32{8, 9, 9, 9, 9, 9, 9, 9}, b.Inputs)
	require.Equal(t, []int32{9, 10, 9, 9, 9, 9, 9, 9}, b.Labels)
	require.Equal(t, []int32{0, 0, 0, 0, 0, 0, 0, 0}, b.Positions)
	require.Equal(t, []int32{1, 2, 0, 0, 0, 0, 0, 0}, b.Segments)
	require.Equal(t, []float32{0, 1, 0, 0, 0, 0, 0, 0}, b.LossMask)
	require.EqualValues(t, []int64{1, 2}, []int64{b.Valid, b.Tokens}, "padding is no token, a masked boundary is")

	o.ResetPositions, o.IsolateDocuments, o.MaskBoundaries = false, false, false
	b, err = open(t, o).Batch(0, []int{0})
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7}, b.Positions)
	require.Equal(t, []int32{1, 1, 1, 1, 1, 1, 1, 1}, b.Segments)
	require.EqualValues(t, 8, b.Valid)
}

// A pass over several sources is each of them once, then masked rows.
func TestPassOverSources(t *testing.T) {
	o := mixed(t, 1)
	o.Pass, o.MaskBoundaries = true, false
	l := open(t, o)
	it := l.Iterate(0, allRows(16), 4)
	defer it.Close()
	seen := map[int32]int{}
	rows, empty := 0, 0
	for {
		b, err := it.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for r := range b.Rows {
			rows++
			if b.Sources[r].Source < 0 {
				empty++
			}
		}
		for j, m := range b.LossMask {
			if m == 1 {
				seen[b.Labels[j]]++
			}
		}
	}
	require.EqualValues(t, l.Steps()*16, rows)
	require.Less(t, empty, 16)
	require.EqualValues(t, l.Tokens()-3, len(seen))
	for tok, n := range seen {
		require.Equal(t, 1, n, tok)
	}
	_, err := it.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestErrors(t *testing.T) {
	prefix := dataset(t, "d", 0, 100)
	base := Options{Sources: []Source{{Prefix: prefix}}, SeqLen: 10, GlobalBatch: 10, Vocab: vocab}
	other := dataset(t, "e", 0, 100)
	for want, change := range map[string]func(*Options){
		"no dataset":           func(o *Options) { o.Sources = nil },
		"sequence length is 0": func(o *Options) { o.SeqLen = 0 },
		"global batch is -1":   func(o *Options) { o.GlobalBatch = -1 },
		"vocabulary is 0":      func(o *Options) { o.Vocab = 0 },
		"padding id":           func(o *Options) { o.Pad = vocab },
		"smaller than a batch: 100 tokens make 10 sequences of 10, and a step takes 11": func(o *Options) { o.GlobalBatch = 11 },
		"named twice":           func(o *Options) { o.Sources = []Source{{Prefix: prefix}, {Prefix: prefix}} },
		"source 1 has weight 0": func(o *Options) { o.Sources = []Source{{prefix, 1}, {other, 0}} },
		"single token":          func(o *Options) { o.Sources = []Source{{Prefix: dataset(t, "f", 0, 1)}} },
		"none.idx":              func(o *Options) { o.Sources = []Source{{Prefix: prefix + "none"}} },
	} {
		o := base
		change(&o)
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
	l := open(t, base)
	for want, f := range map[string]func() error{
		"row 10":  func() error { _, err := l.Batch(0, []int{10}); return err },
		"row -1":  func() error { _, err := l.Batch(0, []int{-1}); return err },
		"step -1": func() error { _, err := l.Batch(-1, nil); return err },
	} {
		require.ErrorContains(t, f(), want)
	}
	// An id beyond the vocabulary is named with its place; the iterator stops.
	o := base
	o.Sources = []Source{{Prefix: dataset(t, "g", 950, 20, 80)}}
	o.Vocab, o.Sequential, o.GlobalBatch = 1000, true, 1
	it := open(t, o).Iterate(0, []int{0}, 2)
	defer it.Close()
	var err error
	for err == nil {
		_, err = it.Next()
	}
	require.ErrorContains(t, err, "step 4, row 0: dataset")
	require.ErrorContains(t, err, "document 1, token 30 has id 1000, outside the vocabulary of 1000")
	_, again := it.Next()
	require.Equal(t, err, again)
}

func TestManifestIsChecked(t *testing.T) {
	prefix := dataset(t, "d", 0, 60, 40)
	m := manifest.Manifest{Version: 1, Tokens: 100, Documents: 2, Tokenizer: manifest.Tokenizer{SHA256: "abc", VocabSize: 500}}
	o := Options{Sources: []Source{{Prefix: prefix}}, SeqLen: 10, GlobalBatch: 2, Vocab: 500, TokenizerSHA256: "abc"}
	put := func(m manifest.Manifest) {
		data, err := m.Marshal()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(prefix+".json", data, 0o666))
	}
	put(m)
	l := open(t, o)
	one, err := l.Fingerprint()
	require.NoError(t, err)
	o.Vocab = 499
	_, err = New(o)
	require.ErrorContains(t, err, "vocabulary of 500 tokens, the model has 499")
	o.Vocab, o.TokenizerSHA256 = 500, "abd"
	_, err = New(o)
	require.ErrorContains(t, err, "another tokenizer.json")
	o.TokenizerSHA256 = ""
	m.Tokens = 99
	put(m)
	_, err = New(o)
	require.ErrorContains(t, err, "do not belong together")
	m.Tokens, m.BinSHA256 = 100, "other content"
	put(m)
	two, err := open(t, o).Fingerprint()
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	require.NoError(t, os.WriteFile(prefix+".json", []byte("{"), 0o666))
	_, err = New(o)
	require.ErrorContains(t, err, prefix+".json")
}

// Closing early, late, and after an error leaves no goroutine.
func TestIteratorCloses(t *testing.T) {
	l := open(t, mixed(t, 1))
	before := runtime.NumGoroutine()
	for i := range 50 {
		it := l.Iterate(int64(i), allRows(16), 1+i%5)
		for range i % 7 {
			_, err := it.Next()
			require.NoError(t, err)
		}
		it.Close()
		it.Close()
	}
	// Goroutines that are done may take a moment to be gone.
	for i := 0; runtime.NumGoroutine() > before && i < 5000; i++ {
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
	it := l.Iterate(0, []int{99}, 3)
	_, err := it.Next()
	require.ErrorContains(t, err, "row 99")
	it.Close()
}

func FuzzLoader(f *testing.F) {
	f.Add(uint64(1), 8, 4, 3, int64(5), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, seqLen, batch, docs int, step int64, flags uint8) {
		if docs < 1 || docs > 200 || seqLen > 1000 || batch > 100 {
			return
		}
		o := Options{Sources: []Source{{Prefix: dataset(t, "d", 0, lengths(seed, docs, 50)...)}},
			SeqLen: seqLen, GlobalBatch: batch, Vocab: vocab, Seed: seed, Pass: flags&1 != 0, Sequential: flags&2 != 0,
			ResetPositions: flags&4 != 0, IsolateDocuments: flags&8 != 0, MaskBoundaries: flags&16 != 0}
		l, err := New(o)
		if err != nil {
			return
		}
		defer l.Close()
		b, err := l.Batch(step, allRows(batch))
		if err != nil {
			return
		}
		for j, m := range b.LossMask {
			if m == 1 {
				require.Equal(t, b.Inputs[j]+1, b.Labels[j])
				require.Positive(t, b.Segments[j])
			}
			require.Less(t, int(b.Positions[j]), seqLen)
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	o := mixed(b, 1)
	o.Sources = o.Sources[:1]
	o.SeqLen, o.GlobalBatch = 4096, 1
	o.Sources[0].Prefix = dataset(b, "big", 0, lengths(1, 100, 500)...)
	l := open(b, o)
	b.SetBytes(4 * 4096)
	step := int64(0)
	for b.Loop() {
		if _, err := l.Batch(step, []int{0}); err != nil {
			b.Fatal(err)
		}
		step++
	}
}

func TestConfigOptions(t *testing.T) {
	c := DefaultConfig()
	require.Empty(t, c.Options("").Sources)
	require.Equal(t, []Source{{Prefix: "a"}}, c.Options("a").Sources)
	c.Sources = []SourceConfig{{Path: "x", Weight: 2}, {Path: "y", Weight: 1}}
	c.MaskBoundaries = true
	o := c.Options("a")
	require.Equal(t, []Source{{Prefix: "x", Weight: 2}, {Prefix: "y", Weight: 1}}, o.Sources)
	require.True(t, o.MaskBoundaries && !o.IsolateDocuments && !o.ResetPositions)
}
