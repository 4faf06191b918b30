package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"titan/data/tokenizer"
	"titan/dtype"
	"titan/internal/plural"
	"titan/train"
)

// Options say how a model is run.
type Options struct {
	// Compute is the type of matrices and of the cache; F32 if zero.
	Compute dtype.DType
	// Progress, if not nil, is told the bytes of parameters read so far of all.
	Progress func(done, total int64)
	// Compiled, if not nil, is told of every program compiled or loaded.
	Compiled func(name, how string)
}

// Generator is a model on a device, with its tokenizer. It is used by one
// goroutine at a time.
type Generator struct {
	e   *engine
	tok *tokenizer.Tokenizer
	eos map[int32]bool
}

// New puts a model on the machine's device. The weights may be closed then; the
// machine must stay open until the generator is closed.
func New(ctx context.Context, m *train.Machine, w *Weights, tok *tokenizer.Tokenizer, o Options) (*Generator, error) {
	if o.Compute == dtype.Invalid {
		o.Compute = dtype.F32
	}
	if n := tok.VocabSize(); n > w.Config.VocabSize {
		return nil, fmt.Errorf("generate: the tokenizer has token ids up to %d, the model of %s has a vocabulary of %d: the tokenizer is not the model's", n-1, w.Where, w.Config.VocabSize)
	}
	e, err := load(ctx, m, w, o.Compute, o.Progress)
	if err != nil {
		return nil, err
	}
	if o.Compiled != nil {
		e.note = func(c *train.Compiled) { o.Compiled(c.Module.Name(), c.Outcome.String()) }
	}
	g := &Generator{e: e, tok: tok, eos: map[int32]bool{}}
	for _, id := range w.EOS {
		g.eos[int32(id)] = true
	}
	if id, ok := tok.ID(tok.EOS()); ok {
		g.eos[id] = true
	}
	return g, nil
}

// Close frees the model.
func (g *Generator) Close() { g.e.close() }

// Request says what is asked of a model.
type Request struct {
	Prompt string
	// MaxTokens bounds a sample. 0 stands for DefaultMaxTokens, or what the
	// model's longest sequence leaves.
	MaxTokens int
	Samples   int // of the same prompt; 0 means 1
	Sampling  Sampling
	// Stop ends a sample where one of these strings would appear.
	Stop []string
	// Emit is given the text of the samples, one after the other, as it is made: in
	// whole characters, without special tokens. An error ends all.
	Emit func(sample int, text string) error
}

// Validate reports a value that makes no sense for any model and prompt; its name
// comes first.
func (r Request) Validate() error {
	if r.MaxTokens < 0 {
		return fmt.Errorf("max-tokens is %d and must be positive", r.MaxTokens)
	}
	_, err := newStopper(r.Stop)
	return errors.Join(err, r.Sampling.Validate())
}

// DefaultMaxTokens is the length of samples where none is asked for.
const DefaultMaxTokens = 256

// Ending says why a sample ended.
type Ending string

// The endings.
const (
	EndOfText  Ending = "end of text"
	StopString Ending = "stop string"
	MaxTokens  Ending = "max tokens"
	// LongestSequence: prompt and sample are as long as the model can read.
	LongestSequence Ending = "the model's longest sequence"
)

// Sample is one answer.
type Sample struct {
	Tokens []int32 // with the one that ended the text, if one did
	Ended  Ending
}

// Result is what came of a request.
type Result struct {
	Prompt  []int32
	Samples []Sample
	// Reading is how long the model took to read the prompt, Sampling how long all
	// samples took then; compiling counts in neither.
	Reading, Sampling time.Duration
}

// Tokens counts the sampled tokens.
func (r *Result) Tokens() int {
	n := 0
	for _, s := range r.Samples {
		n += len(s.Tokens)
	}
	return n
}

// Summary returns lines for the log.
func (r *Result) Summary() []string {
	rate := func(n int, d time.Duration) string {
		return fmt.Sprintf("%s in %.2fs (%.1f tokens/s)", plural.Of(n, "token"), d.Seconds(), float64(n)/max(d.Seconds(), 1e-9))
	}
	lines := []string{"prompt: " + rate(len(r.Prompt), r.Reading), "sampled: " + rate(r.Tokens(), r.Sampling)}
	for i, s := range r.Samples {
		name := ""
		if len(r.Samples) > 1 {
			name = fmt.Sprintf(" %d", i+1)
		}
		if s.Ended != "" {
			lines = append(lines, fmt.Sprintf("sample%s: %s, ended by %s", name, plural.Of(len(s.Tokens), "token"), s.Ended))
		}
	}
	return lines
}

// Generate answers a request. After an error, such as that of a cancelled context,
// the result holds what there was.
func (g *Generator) Generate(ctx context.Context, r Request) (*Result, error) {
	res := &Result{}
	err := r.Validate()
	if err != nil {
		return res, fmt.Errorf("generate: %w", err)
	}
	if res.Prompt, err = g.encode(r.Prompt); err != nil {
		return res, err
	}
	var ended Ending
	if r.MaxTokens, ended, err = g.room(len(res.Prompt), r.MaxTokens); err != nil {
		return res, err
	}
	if err := g.e.begin(len(res.Prompt) + r.MaxTokens); err != nil {
		return res, err
	}
	if err := g.e.prepare(len(res.Prompt)); err != nil {
		return res, err
	}
	began := time.Now()
	logits, err := g.e.read(ctx, res.Prompt)
	res.Reading = time.Since(began)
	if err != nil {
		return res, err
	}
	began = time.Now()
	defer func() { res.Sampling = time.Since(began) }()
	for i := range max(1, r.Samples) {
		g.e.rewind(len(res.Prompt)) // all samples go on from what was read
		s, err := g.sample(ctx, logits, r, i)
		if s.Ended == MaxTokens {
			s.Ended = ended
		}
		res.Samples = append(res.Samples, s)
		if err != nil {
			return res, err
		}
	}
	return res, nil
}

// encode returns the prompt's tokens behind those that begin a text.
func (g *Generator) encode(prompt string) ([]int32, error) {
	prefix, _ := g.tok.Around()
	ids, err := g.tok.NewEncoder().Append(append([]int32(nil), prefix...), prompt)
	if err != nil {
		return nil, fmt.Errorf("generate: the prompt: %w", err)
	}
	if len(ids) == 0 {
		id, ok := g.tok.ID(g.tok.BOS())
		if !ok {
			return nil, errors.New("generate: the prompt is empty and the tokenizer has no token that begins a text, so there is nothing to go on from: give a prompt")
		}
		ids = []int32{id}
	}
	return ids, nil
}

// room returns how many tokens a sample may have, and what it means to reach it.
func (g *Generator) room(prompt, asked int) (int, Ending, error) {
	most := g.e.config.MaxSeqLen
	left := most - prompt
	switch {
	case left < 1:
		return 0, "", fmt.Errorf("generate: the prompt has %s and the model reads at most %d (max_seq_len), so there is no room for an answer: shorten the prompt", plural.Of(prompt, "token"), most)
	case asked > left:
		return 0, "", fmt.Errorf("generate: the prompt has %s and %d more are asked for, but the model reads at most %d (max_seq_len): ask for at most %d, or shorten the prompt", plural.Of(prompt, "token"), asked, most, left)
	case asked > 0:
		return asked, MaxTokens, nil
	case left < DefaultMaxTokens:
		return left, LongestSequence, nil
	}
	return DefaultMaxTokens, MaxTokens, nil
}

// sample makes one sample from the logits of its first token.
func (g *Generator) sample(ctx context.Context, logits []float32, r Request, number int) (s Sample, err error) {
	sampler := NewSampler(r.Sampling, number)
	text := g.tok.NewStream(true)
	stop, err := newStopper(r.Stop)
	if err != nil {
		return s, fmt.Errorf("generate: %w", err)
	}
	emit := func(t string) error {
		if t == "" || r.Emit == nil {
			return nil
		}
		return r.Emit(number, t)
	}
	for {
		// Rows of the vocabulary without a token, which only pad it, are not drawn.
		id, err := sampler.Next(logits[:g.tok.VocabSize()])
		if err != nil {
			return s, fmt.Errorf("generate: %w", err)
		}
		s.Tokens = append(s.Tokens, id)
		if g.eos[id] {
			s.Ended = EndOfText
			return s, emit(stop.add(text.Rest()) + stop.rest())
		}
		if err := emit(stop.add(text.Next(id))); err != nil {
			return s, err
		}
		if stop.found {
			s.Ended = StopString
			return s, nil
		}
		if len(s.Tokens) == r.MaxTokens {
			// A character that is cut short here is left out.
			s.Ended = MaxTokens
			return s, emit(stop.rest())
		}
		if logits, err = g.e.read(ctx, s.Tokens[len(s.Tokens)-1:]); err != nil {
			return s, err
		}
	}
}
