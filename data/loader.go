package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"titan/data/indexed"
	"titan/data/manifest"
)

// Source is one dataset of a mixture.
type Source struct {
	Prefix string // PREFIX.bin and PREFIX.idx
	// Weight is the share of samples from it, relative to the other weights. If
	// none has a weight, all count the same.
	Weight float64
}

// Options say what batches look like. Sources, SeqLen, GlobalBatch and Vocab are
// required.
type Options struct {
	Sources     []Source
	SeqLen      int // positions of a row
	GlobalBatch int // rows of a step over all hosts
	Vocab       int // ids must be below it
	Seed        uint64
	// TokenizerSHA256 is the hash of the tokenizer.json in use. Where it and a
	// dataset's manifest are there, they must agree.
	TokenizerSHA256 string

	// Pass makes one finite pass over all sources, in order, unshuffled and
	// regardless of weights: for validation. The last step is filled up with
	// masked rows.
	Pass bool
	// Sequential keeps the samples of a source in their stored order.
	Sequential bool

	// ResetPositions starts positions at 0 with every document.
	ResetPositions bool
	// IsolateDocuments gives every document of a row a segment id of its own, so
	// that attention can keep to the document.
	IsolateDocuments bool
	// MaskBoundaries takes the first token of a document out of the loss where
	// the position that would predict it belongs to another document.
	MaskBoundaries bool
	// Pad fills up rows; it has no effect on anything but must be below Vocab.
	Pad int32
}

// Loader serves batches. It may be used by several goroutines.
type Loader struct {
	o    Options
	sets []*set
	mix  *mixture
	sum  int64 // samples of all sources
}

// set is an open source.
type set struct {
	*indexed.Dataset
	weight  float64 // share of all samples
	samples int64   // of an epoch
}

// ErrEnd is what Batch returns for a step after the last of a Pass.
var ErrEnd = errors.New("data: the pass has ended")

// New opens the sources and checks them against the options.
func New(o Options) (*Loader, error) {
	l := &Loader{o: o}
	if err := l.open(); err != nil {
		l.Close()
		return nil, fmt.Errorf("data: %w", err)
	}
	return l, nil
}

func (l *Loader) open() error {
	o := &l.o
	for _, x := range []struct {
		name  string
		value int
	}{{"sequence length", o.SeqLen}, {"global batch", o.GlobalBatch}, {"vocabulary", o.Vocab}} {
		if x.value <= 0 || x.value > math.MaxInt32 {
			return fmt.Errorf("%s is %d, want 1 to %d", x.name, x.value, math.MaxInt32)
		}
	}
	if o.Pad < 0 || int(o.Pad) >= o.Vocab {
		return fmt.Errorf("padding id %d is outside the vocabulary of %d", o.Pad, o.Vocab)
	}
	if len(o.Sources) == 0 {
		return errors.New("no dataset; name at least one")
	}
	weights := make([]float64, len(o.Sources))
	weighted := false
	for i, s := range o.Sources {
		weights[i] = s.Weight
		weighted = weighted || s.Weight != 0
		for _, other := range o.Sources[:i] {
			if other.Prefix == s.Prefix {
				return fmt.Errorf("dataset %s is named twice; give it one larger weight", s.Prefix)
			}
		}
	}
	if !weighted {
		for i := range weights {
			weights[i] = 1
		}
	}
	var err error
	if l.mix, err = newMixture(weights, o.Seed); err != nil {
		return err
	}
	total := 0.0
	for _, w := range weights {
		total += w
	}
	for i, s := range o.Sources {
		d, err := indexed.Open(s.Prefix)
		if err != nil {
			return err
		}
		st := &set{Dataset: d, weight: weights[i] / total}
		l.sets = append(l.sets, st)
		st.samples = (d.Tokens() - 1 + int64(o.SeqLen) - 1) / int64(o.SeqLen)
		l.sum += st.samples
		if err := l.checkSet(st); err != nil {
			return err
		}
	}
	return nil
}

// checkSet refuses a dataset that does not fit the options.
func (l *Loader) checkSet(s *set) error {
	o := &l.o
	if s.samples == 0 {
		return fmt.Errorf("dataset %s has a single token; nothing can be predicted from it", s.Prefix())
	}
	// Rows of one step that come from the set: more than an epoch of them would
	// put the same sample into a batch twice.
	if need := int64(math.Ceil(s.weight*float64(o.GlobalBatch) - 1e-9)); !o.Pass && s.samples < need {
		return fmt.Errorf("dataset %s is smaller than a batch: %d tokens make %d sequences of %d, and a step takes %d; use a smaller batch or sequence length, or more data",
			s.Prefix(), s.Tokens(), s.samples, o.SeqLen, need)
	}
	m, err := manifest.Read(s.Prefix())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case m.Tokens != s.Tokens() || m.Documents != s.Documents():
		return fmt.Errorf("dataset %s has %d tokens in %d documents, but its manifest %s.json says %d in %d: they do not belong together; prepare it again",
			s.Prefix(), s.Tokens(), s.Documents(), s.Prefix(), m.Tokens, m.Documents)
	case m.Tokenizer.VocabSize > o.Vocab:
		return fmt.Errorf("dataset %s was made with a vocabulary of %d tokens, the model has %d", s.Prefix(), m.Tokenizer.VocabSize, o.Vocab)
	case o.TokenizerSHA256 != "" && m.Tokenizer.SHA256 != o.TokenizerSHA256:
		return fmt.Errorf("dataset %s was made with another tokenizer.json (SHA-256 %s, in use is %s); prepare it again", s.Prefix(), m.Tokenizer.SHA256, o.TokenizerSHA256)
	}
	return nil
}

// Close closes the datasets. Close iterators first.
func (l *Loader) Close() error {
	var errs []error
	for _, s := range l.sets {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Tokens returns the tokens of all sources together.
func (l *Loader) Tokens() int64 {
	n := int64(0)
	for _, s := range l.sets {
		n += s.Tokens()
	}
	return n
}

// Steps returns the number of steps of a Pass, or of going through all sources
// once if they had weights by their size.
func (l *Loader) Steps() int64 {
	return (l.sum + int64(l.o.GlobalBatch) - 1) / int64(l.o.GlobalBatch)
}

// Epochs returns, for each source, how often it has been gone through before
// the given step; with several sources, by their shares.
func (l *Loader) Epochs(step int64) []float64 {
	out := make([]float64, len(l.sets))
	for i, s := range l.sets {
		done := float64(step) * float64(l.o.GlobalBatch)
		if l.o.Pass {
			out[i] = min(done/float64(l.sum), 1)
			continue
		}
		out[i] = done * s.weight / float64(s.samples)
	}
	return out
}

// Fingerprint returns a hash of everything that decides what a batch holds.
// A resumed run compares it: a different one means different data.
func (l *Loader) Fingerprint() (string, error) {
	h := sha256.New()
	o := l.o
	fmt.Fprintln(h, "titan data 1", o.SeqLen, o.GlobalBatch, o.Seed, o.Pass, o.Sequential, o.ResetPositions, o.IsolateDocuments, o.MaskBoundaries)
	for _, s := range l.sets {
		f, err := s.Fingerprint()
		if err != nil {
			return "", err
		}
		content := ""
		if m, err := manifest.Read(s.Prefix()); err == nil {
			content = m.BinSHA256
		}
		fmt.Fprintln(h, math.Float64bits(s.weight), f, content)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
