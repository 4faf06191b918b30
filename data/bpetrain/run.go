package bpetrain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"titan/data/source"
	"titan/data/tokenizer"
	"titan/internal/wholefile"
)

// Options say what to learn. Inputs, VocabSize and Output are required.
type Options struct {
	Inputs []string // files, directories, globs
	Source source.Options

	Style        tokenizer.Style // "" is Llama3
	VocabSize    int             // with the special tokens; at least 256 more than those
	MinFrequency int64           // a pair must occur as often to be joined; 0 is 2
	// Special tokens get the last ids, in this order. BOS is put before every
	// text by the post-processor; BOS and EOS are named in
	// tokenizer_config.json. Both must be among Special, or empty.
	Special  []string
	BOS, EOS string

	// SampleBytes learns from about so many bytes of the inputs (as they are on
	// disk) instead of all: every document is taken with the same probability,
	// decided by its text and Seed.
	SampleBytes int64
	Seed        uint64

	Output    string // directory for tokenizer.json and tokenizer_config.json
	Overwrite bool
	SkipBad   bool // leave out and count bad records instead of stopping
	Workers   int  // 0: one a core
	Progress  func(Progress)
}

// Progress tells how far a run is: it reads, and then learns.
type Progress struct {
	Bytes, TotalBytes int64 // of the inputs, on disk
	Tokens, VocabSize int   // learnt, without special tokens; 0 while reading
}

// Result tells what was learnt.
type Result struct {
	VocabSize  int   // with special tokens; less than asked for if pairs ran out
	Merges     int   // can exceed the learnt tokens: two pairs may spell one
	Documents  int64 // learnt from
	TextBytes  int64 // in those
	AllBytes   int64 // of text in the inputs
	Skipped    int64 // bad records
	Pretokens  int64 // different ones
	SHA256     string
	Exhausted  bool // no pair occurred often enough any more
	OutputFile string
}

// Run learns a tokenizer and writes it; on an error nothing is left.
func Run(ctx context.Context, o Options) (*Result, error) {
	res, err := run(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("data train-tokenizer: %w", err)
	}
	return res, nil
}

func run(ctx context.Context, o *Options) (*Result, error) {
	if o.Style == "" {
		o.Style = tokenizer.Llama3
	}
	if o.MinFrequency == 0 {
		o.MinFrequency = 2
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	split, err := o.Style.Splitter()
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	files, err := source.Find(o.Inputs, o.Source)
	if err != nil {
		return nil, err
	}
	res := &Result{OutputFile: filepath.Join(o.Output, "tokenizer.json")}
	counts, err := read(ctx, o, files, split, res)
	if err != nil {
		return nil, err
	}
	switch {
	case res.AllBytes == 0:
		return nil, errors.New("the inputs have no text")
	case len(counts) == 0:
		return nil, fmt.Errorf("a sample of %d bytes took no document; take a larger one", o.SampleBytes)
	}
	res.Pretokens = int64(len(counts))
	size := o.VocabSize - len(o.Special)
	l, err := learn(ctx, counts, size, o.MinFrequency, func(n int) {
		o.Progress(Progress{Tokens: n, VocabSize: size})
	})
	if err != nil {
		return nil, err
	}
	data, err := tokenizer.Build(l.spec(tokenizer.Spec{Style: o.Style, Special: o.Special, BOS: o.BOS}))
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Parse(res.OutputFile, data)
	if err != nil {
		return nil, err
	}
	res.VocabSize, res.Merges, res.SHA256 = tok.VocabSize(), len(l.merges), tok.Hash()
	res.Exhausted = len(l.tokens) < size
	return res, o.write(data)
}

func (o *Options) check() error {
	if o.Output == "" {
		return errors.New("no output directory")
	}
	if least := 256 + len(o.Special); o.VocabSize < least {
		return fmt.Errorf("vocabulary of %d is too small: 256 bytes and %d special tokens make %d", o.VocabSize, len(o.Special), least)
	}
	if o.SampleBytes < 0 {
		return fmt.Errorf("a sample of %d bytes is impossible", o.SampleBytes)
	}
	if o.VocabSize > 1<<24 {
		return fmt.Errorf("vocabulary of %d is too large; the limit is %d", o.VocabSize, 1<<24)
	}
	names := map[string]bool{}
	for _, s := range o.Special {
		if s == "" || names[s] {
			return fmt.Errorf("special token %q is empty or named twice", s)
		}
		names[s] = true
	}
	for _, x := range [][2]string{{"opening", o.BOS}, {"closing", o.EOS}} {
		if x[1] != "" && !names[x[1]] {
			return fmt.Errorf("the %s token %q is not among the special tokens %q", x[0], x[1], o.Special)
		}
	}
	_, err := os.Stat(filepath.Join(o.Output, "tokenizer.json"))
	if err == nil && !o.Overwrite {
		return fmt.Errorf("%s has a tokenizer.json already; choose another directory, or allow it to be overwritten (--overwrite)", o.Output)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read counts the pre-tokens of all documents.
func read(ctx context.Context, o *Options, files []source.File, split func(string, func(string)), res *Result) (map[string]int64, error) {
	type part struct {
		counts                               map[string]int64
		bytes, text, all, documents, skipped int64
	}
	var p Progress
	for _, f := range files {
		p.TotalBytes += f.Size
	}
	share := 1.0
	if o.SampleBytes > 0 && p.TotalBytes > 0 {
		share = float64(o.SampleBytes) / float64(p.TotalBytes)
	}
	total := map[string]int64{}
	err := source.Process(ctx, files, o.Source, o.Workers, func(_ int, c *source.Chunk) (*part, error) {
		out := &part{counts: map[string]int64{}, bytes: c.Bytes}
		err := c.Documents(func(text []byte) error {
			out.all += int64(len(text))
			// Apart from the picks of `titan data prepare`, which take the seed as it is.
			if share < 1 && source.Share(text, ^o.Seed) >= share {
				return nil
			}
			out.documents++
			out.text += int64(len(text))
			if len(text) > 0 {
				count(out.counts, split, unsafe.String(&text[0], len(text)))
			}
			return nil
		}, func(bad *source.BadRecord) error {
			if !o.SkipBad {
				return fmt.Errorf("%w; mend it, or have bad records skipped and counted (--skip-bad)", bad)
			}
			out.skipped++
			return nil
		})
		return out, err
	}, func(c *part) error {
		for k, n := range c.counts {
			total[k] += n
		}
		res.Documents += c.documents
		res.TextBytes += c.text
		res.AllBytes += c.all
		res.Skipped += c.skipped
		p.Bytes += c.bytes
		o.Progress(p)
		return nil
	})
	return total, err
}

// write puts both files into the output directory, each whole or not at all,
// tokenizer.json last.
func (o *Options) write(tokenizerJSON []byte) error {
	if err := os.MkdirAll(o.Output, 0o777); err != nil {
		return err
	}
	config := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	if o.BOS != "" {
		config["bos_token"] = o.BOS
	}
	if o.EOS != "" {
		config["eos_token"] = o.EOS
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(config); err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(o.Output, "tokenizer_config.json"), b.Bytes()); err != nil {
		return err
	}
	return wholefile.Write(filepath.Join(o.Output, "tokenizer.json"), tokenizerJSON)
}
