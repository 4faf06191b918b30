// Package inspect looks into a token dataset: the work of `titan data inspect`.
//
//	report, err := inspect.Run(ctx, inspect.Options{Prefix: "data/code", Tokenizer: "assets/mine"})
//	fmt.Print(report)
package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"titan/data/indexed"
	"titan/data/manifest"
	"titan/data/tokenizer"
)

// Options say what to look at. Prefix is required.
type Options struct {
	Prefix    string
	Tokenizer string // a tokenizer.json or its directory: decodes samples
	Samples   int    // documents to show, spread over the dataset; needs Tokenizer
	Length    int    // tokens of a sample; 0 is 48
	Top       int    // most frequent tokens to list
	Verify    bool   // compare the tokens with the hash in the manifest

	Progress func(done, total int64) // tokens; may be nil
}

// Report is what was found.
type Report struct {
	Prefix    string `json:"prefix"`
	DType     string `json:"dtype"`
	BinBytes  int64  `json:"bin_bytes"`
	Tokens    int64  `json:"tokens"`
	Documents int64  `json:"documents"`
	Shortest  int64  `json:"shortest_document"` // tokens
	Median    int64  `json:"median_document"`
	Longest   int64  `json:"longest_document"`

	Distinct  int   `json:"distinct_tokens"`
	LargestID int32 `json:"largest_id"`
	// UnigramEntropy is −Σ p·ln p in nats a token, p the share of a token id in
	// the dataset: the loss of the best model that ignores all context.
	UnigramEntropy float64 `json:"unigram_entropy_nats"`
	// TextBytes is what the tokens spell, without special ones; 0 without a
	// tokenizer.
	TextBytes int64   `json:"text_bytes,omitempty"`
	Frequent  []Token `json:"most_frequent,omitempty"`

	Manifest *manifest.Manifest `json:"manifest,omitempty"`
	Verified bool               `json:"verified,omitempty"`
	Samples  []Sample           `json:"samples,omitempty"`
}

// Token is an id with the number of its occurrences.
type Token struct {
	ID    int32  `json:"id"`
	Count int64  `json:"count"`
	Text  string `json:"text,omitempty"`
}

// Sample is the beginning of a document.
type Sample struct {
	Document int64  `json:"document"`
	Tokens   int64  `json:"tokens"` // of the whole document
	Text     string `json:"text"`
}

// maxID bounds the table of counts; no vocabulary comes near it.
const maxID = 1 << 26

// Run reads the whole dataset. Errors name the file; a tokenizer that cannot
// have made the dataset is one.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := run(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("data inspect: %w", err)
	}
	return r, nil
}

func run(ctx context.Context, o *Options) (*Report, error) {
	if o.Length <= 0 {
		o.Length = 48
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	d, err := indexed.Open(o.Prefix)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	r := &Report{
		Prefix: d.Prefix(), DType: d.DType().String(), BinBytes: d.Tokens() * int64(d.DType().Size()),
		Tokens: d.Tokens(), Documents: d.Documents(),
	}
	r.Manifest, err = manifest.Read(d.Prefix())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if m := r.Manifest; m != nil && (m.Tokens != r.Tokens || m.Documents != r.Documents) {
		return nil, fmt.Errorf("dataset %s has %d tokens in %d documents, its manifest says %d in %d: they do not belong together; prepare it again",
			d.Prefix(), r.Tokens, r.Documents, m.Tokens, m.Documents)
	}
	var tok *tokenizer.Tokenizer
	if o.Tokenizer != "" {
		if tok, err = tokenizer.Load(o.Tokenizer); err != nil {
			return nil, err
		}
		if m := r.Manifest; m != nil && m.Tokenizer.SHA256 != tok.Hash() {
			return nil, fmt.Errorf("dataset %s was made with another tokenizer (SHA-256 %s) than %s (%s)", d.Prefix(), m.Tokenizer.SHA256, o.Tokenizer, tok.Hash())
		}
	}
	if o.Verify {
		if err := verify(r); err != nil {
			return nil, err
		}
	}
	if err := r.lengths(d); err != nil {
		return nil, err
	}
	counts, err := count(ctx, d, o.Progress)
	if err != nil {
		return nil, err
	}
	if r.LargestID = int32(len(counts)) - 1; tok != nil && len(counts) > tok.VocabSize() {
		return nil, fmt.Errorf("dataset %s has id %d, the vocabulary of %s ends at %d: it was made with another tokenizer", d.Prefix(), r.LargestID, o.Tokenizer, tok.VocabSize()-1)
	}
	r.statistics(counts, tok, o.Top)
	if tok != nil {
		r.Samples, err = samples(d, tok, o)
	}
	return r, err
}

// count returns how often each id occurs; it ends with the largest.
func count(ctx context.Context, d *indexed.Dataset, progress func(done, total int64)) ([]int64, error) {
	var counts []int64
	buf := make([]int32, 1<<20)
	for at := int64(0); at < d.Tokens(); at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		progress(at, d.Tokens())
		buf = buf[:min(int64(len(buf)), d.Tokens()-at)]
		if err := d.Read(buf, at); err != nil {
			return nil, err
		}
		if low, high := slices.Min(buf), slices.Max(buf); low < 0 || high >= maxID {
			return nil, fmt.Errorf("dataset %s has ids from %d to %d between its tokens %d and %d: these are no token ids", d.Prefix(), low, high, at, at+int64(len(buf)))
		} else if int(high) >= len(counts) {
			counts = append(counts, make([]int64, int(high)+1-len(counts))...)
		}
		for _, id := range buf {
			counts[id]++
		}
	}
	progress(d.Tokens(), d.Tokens())
	return counts, nil
}

func (r *Report) lengths(d *indexed.Dataset) error {
	lengths := make([]int64, d.Documents())
	for i := range lengths {
		start, end, err := d.Document(int64(i))
		if err != nil {
			return err
		}
		lengths[i] = end - start
	}
	slices.Sort(lengths)
	r.Shortest, r.Median, r.Longest = lengths[0], lengths[len(lengths)/2], lengths[len(lengths)-1]
	return nil
}

func (r *Report) statistics(counts []int64, tok *tokenizer.Tokenizer, top int) {
	var all []Token
	for id, n := range counts {
		if n == 0 {
			continue
		}
		t := Token{ID: int32(id), Count: n}
		r.Distinct++
		p := float64(n) / float64(r.Tokens)
		r.UnigramEntropy -= p * math.Log(p)
		if tok != nil {
			t.Text = string(tok.AppendBytes(nil, []int32{t.ID}, false))
			if !tok.Special(t.ID) {
				r.TextBytes += n * int64(len(t.Text))
			}
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b Token) int { return int(min(max(b.Count-a.Count, -1), 1)) })
	r.Frequent = all[:min(len(all), max(top, 0))]
}

func samples(d *indexed.Dataset, tok *tokenizer.Tokenizer, o *Options) ([]Sample, error) {
	n := min(int64(max(o.Samples, 0)), d.Documents())
	var out []Sample
	for i := range n {
		doc := i * d.Documents() / n
		start, end, err := d.Document(doc)
		if err != nil {
			return nil, err
		}
		ids := make([]int32, min(end-start, int64(o.Length)))
		if err := d.Read(ids, start); err != nil {
			return nil, err
		}
		out = append(out, Sample{Document: doc, Tokens: end - start, Text: tok.Decode(ids, false)})
	}
	return out, nil
}

// verify compares the .bin file with the manifest.
func verify(r *Report) error {
	if r.Manifest == nil {
		return fmt.Errorf("dataset %s has no manifest %s.json to be verified against", r.Prefix, r.Prefix)
	}
	f, err := os.Open(r.Prefix + ".bin")
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("%s.bin: %w", r.Prefix, err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != r.Manifest.BinSHA256 {
		return fmt.Errorf("%s.bin has SHA-256 %s, its manifest says %s: the file is damaged; prepare it again", r.Prefix, sum, r.Manifest.BinSHA256)
	}
	r.Verified = true
	return nil
}
