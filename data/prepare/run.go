package prepare

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"titan/data/indexed"
	"titan/data/manifest"
	"titan/data/source"
	"titan/data/tokenizer"
)

// Result tells what a run wrote: the manifests of the dataset and, with
// Options.Validation, of the one split off.
type Result struct {
	Train      *manifest.Manifest
	Validation *manifest.Manifest // nil without a split
}

// Run prepares a dataset. On an error, and when ctx ends, nothing is left.
func Run(ctx context.Context, o Options) (*Result, error) {
	res, err := run(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("data prepare: %w", err)
	}
	return res, nil
}

// part is one dataset being written.
type part struct {
	suffix  string
	w       *indexed.Writer
	sources []manifest.Source
}

// encoded is what one chunk became.
type encoded struct {
	input   int
	files   int64
	bytes   int64
	tokens  []int32 // of all documents, one after the other
	docs    []encodedDoc
	empty   int64
	skipped int64
}

type encodedDoc struct {
	end  int // in tokens
	part int
}

func run(ctx context.Context, o *Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	tok, err := tokenizer.Load(o.Tokenizer)
	if err != nil {
		return nil, err
	}
	before, behind, err := o.around(tok)
	if err != nil {
		return nil, err
	}
	files, err := source.Find(o.Inputs, o.Source)
	if err != nil {
		return nil, err
	}
	parts := []*part{{}}
	if o.Validation > 0 {
		parts = append(parts, &part{suffix: ValidationSuffix})
	}
	dtype := indexed.DTypeFor(tok.VocabSize())
	for _, p := range parts {
		if p.w, err = indexed.Create(o.Output+p.suffix, dtype, o.Overwrite); err != nil {
			return nil, err
		}
		defer p.w.Abort()
		for _, input := range o.Inputs {
			p.sources = append(p.sources, manifest.Source{Input: input})
		}
	}

	workers := o.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	enc := make([]*encoderState, workers)
	for i := range enc {
		enc[i] = &encoderState{e: tok.NewEncoder(), o: o, before: before, behind: behind}
		enc[i].e.Plain(o.PlainSpecial)
	}
	progress := newMeter(o.Progress, files)
	err = source.Process(ctx, files, o.Source, workers,
		func(worker int, c *source.Chunk) (*encoded, error) { return enc[worker].encode(c) },
		func(e *encoded) error {
			for _, p := range parts {
				s := &p.sources[e.input]
				s.Files += e.files
				s.Bytes += e.bytes
				s.Empty += e.empty
				s.Skipped += e.skipped
			}
			at := 0
			for _, d := range e.docs {
				p := parts[d.part]
				if err := p.w.Append(e.tokens[at:d.end]); err != nil {
					return err
				}
				p.sources[e.input].Documents++
				p.sources[e.input].Tokens += int64(d.end - at)
				at = d.end
			}
			progress.add(e)
			return nil
		})
	if err != nil {
		return nil, err
	}
	progress.end()

	var made []*manifest.Manifest
	for i, p := range parts {
		sum, err := p.w.Finish()
		if err != nil {
			return nil, err
		}
		m := &manifest.Manifest{
			Version: 1, Tokenizer: manifest.Tokenizer{SHA256: tok.Hash(), VocabSize: tok.VocabSize()},
			DType: dtype.String(), Tokens: sum.Tokens, Documents: sum.Documents,
			BinBytes: sum.BinBytes, BinSHA256: sum.BinSHA256,
			Before: append([]int32{}, before...), Behind: append([]int32{}, behind...),
			Plain: o.PlainSpecial, Sources: p.sources,
		}
		if len(parts) > 1 {
			m.Split = &manifest.Split{Part: []string{"train", "validation"}[i], Share: o.Validation, Seed: o.Seed}
		}
		data, err := m.Marshal()
		if err != nil {
			return nil, err
		}
		if err := p.w.Attach(".json", data); err != nil {
			return nil, err
		}
		made = append(made, m)
	}
	// The training set is committed last: with it the whole run is done.
	for i := len(parts) - 1; i >= 0; i-- {
		if err := parts[i].w.Commit(); err != nil {
			return nil, err
		}
	}
	res := &Result{Train: made[0]}
	if len(made) > 1 {
		res.Validation = made[1]
	}
	return res, nil
}

// encoderState is what one worker keeps.
type encoderState struct {
	e              *tokenizer.Encoder
	o              *Options
	before, behind []int32
}

func (s *encoderState) encode(c *source.Chunk) (*encoded, error) {
	out := &encoded{input: c.Input, files: int64(c.Files()), bytes: c.Bytes}
	err := c.Documents(func(text []byte) error {
		if len(text) == 0 {
			out.empty++
			return nil
		}
		out.tokens = append(out.tokens, s.before...)
		var err error
		// The encoder keeps no reference into the text.
		if out.tokens, err = s.e.Append(out.tokens, unsafe.String(&text[0], len(text))); err != nil {
			return err
		}
		out.tokens = append(out.tokens, s.behind...)
		d := encodedDoc{end: len(out.tokens)}
		if s.o.Validation > 0 && source.Share(text, s.o.Seed) < s.o.Validation {
			d.part = 1
		}
		out.docs = append(out.docs, d)
		return nil
	}, func(bad *source.BadRecord) error {
		if !s.o.SkipBad {
			return fmt.Errorf("%w; mend it, or have bad records skipped and counted (--skip-bad)", bad)
		}
		out.skipped++
		return nil
	})
	return out, err
}

// meter limits how often progress is told.
type meter struct {
	tell func(Progress)
	p    Progress
	last time.Time
}

func newMeter(tell func(Progress), files []source.File) *meter {
	m := &meter{tell: tell}
	for _, f := range files {
		m.p.TotalBytes += f.Size
	}
	return m
}

func (m *meter) add(e *encoded) {
	m.p.Bytes += e.bytes
	m.p.Documents += int64(len(e.docs))
	m.p.Tokens += int64(len(e.tokens))
	m.p.Skipped += e.skipped
	if m.tell != nil && time.Since(m.last) > 100*time.Millisecond {
		m.last = time.Now()
		m.tell(m.p)
	}
}

func (m *meter) end() {
	if m.tell != nil {
		m.tell(m.p)
	}
}

// String describes the result in a line a part.
func (r *Result) String() string {
	var b strings.Builder
	for _, m := range []*manifest.Manifest{r.Train, r.Validation} {
		if m == nil {
			continue
		}
		name := "dataset"
		if m.Split != nil {
			name = m.Split.Part
		}
		var bytes, skipped, empty int64
		for _, s := range m.Sources {
			bytes, skipped, empty = bytes+s.Bytes, skipped+s.Skipped, empty+s.Empty
		}
		fmt.Fprintf(&b, "%s: %d tokens in %d documents (%s, %d bytes); inputs %d bytes, %d records skipped, %d empty\n",
			name, m.Tokens, m.Documents, m.DType, m.BinBytes, bytes, skipped, empty)
	}
	return b.String()
}
