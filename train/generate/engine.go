package generate

import (
	"context"
	"errors"
	"fmt"

	"titan/dtype"
	"titan/models/decoder"
	"titan/pjrt"
	"titan/train"
)

// engine is a model on a device that reads one sequence.
type engine struct {
	machine *train.Machine
	config  decoder.Config
	compute dtype.DType
	chunk   int // tokens read at a time; a power of two

	params   []*pjrt.Buffer          // of Config.Rows
	programs map[int]*train.Compiled // by the tokens they read
	note     func(*train.Compiled)   // of every program compiled

	length int            // of the cache
	cache  []*pjrt.Buffer // each layer's keys and values; nil until begin
	filled int            // positions that hold what was read
}

func (e *engine) close() {
	for _, p := range e.programs {
		p.Close()
	}
	_ = pjrt.CloseBuffers(e.cache, e.params)
	e.programs, e.cache, e.params = nil, nil, nil
}

// begin empties the cache and makes it at least n tokens long.
func (e *engine) begin(n int) error {
	e.filled = 0
	if e.cache != nil && n <= e.length {
		return nil
	}
	for _, p := range e.programs { // their cache has another length
		p.Close()
	}
	e.programs = map[int]*train.Compiled{}
	_ = pjrt.CloseBuffers(e.cache)
	e.cache, e.length = nil, max(cacheLength(n), e.chunk)
	t := e.config.CacheType(1, e.length, e.compute)
	zeros := make([]byte, t.Bytes()) // the rows not read yet must not be NaN: they are masked, not skipped
	for range 2 * e.config.Layers {
		b, err := e.machine.Client.Put(zeros, t.DType, t.Shape, e.machine.Client.LocalDevices()[0])
		if err != nil {
			_ = pjrt.CloseBuffers(e.cache)
			e.cache = nil
			return fmt.Errorf("generate: a cache for %d tokens (%d bytes): %w", e.length, 2*e.config.Layers*t.Bytes(), err)
		}
		e.cache = append(e.cache, b)
	}
	return nil
}

// program compiles the program that reads T tokens, once.
func (e *engine) program(T int) (*train.Compiled, error) {
	if p := e.programs[T]; p != nil {
		return p, nil
	}
	mod, err := BuildExtend(e.config, e.compute, T, e.length)
	if err != nil {
		return nil, err
	}
	p, err := e.machine.Compile(mod)
	if err != nil {
		return nil, fmt.Errorf("generate: compiling the model for %d tokens: %w", T, err)
	}
	e.programs[T] = p
	if e.note != nil {
		e.note(p)
	}
	return p, nil
}

// prepare compiles what reading n tokens, and then single ones, takes.
func (e *engine) prepare(n int) error {
	for _, T := range append(chunksFor(n, e.chunk), 1) {
		if _, err := e.program(T); err != nil {
			return err
		}
	}
	return nil
}

// rewind forgets all but the first n tokens.
func (e *engine) rewind(n int) { e.filled = min(e.filled, n) }

// read reads tokens, at least one, behind those that the cache holds and returns
// the logits of the one that comes next.
func (e *engine) read(ctx context.Context, tokens []int32) (logits []float32, err error) {
	if len(tokens) == 0 {
		return nil, errors.New("generate: there is no token to read")
	}
	if e.cache == nil {
		return nil, errors.New("generate: there is no cache; a run of the model failed before")
	}
	if e.filled+len(tokens) > e.length {
		return nil, fmt.Errorf("generate: the cache is full: it has %d of at most %d tokens, and %d more were to be read", e.filled, e.length, len(tokens))
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= e.config.VocabSize {
			return nil, fmt.Errorf("generate: token %d is outside the model's vocabulary of %d: the tokenizer is not the model's", t, e.config.VocabSize)
		}
	}
	var out *pjrt.Buffer
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			_ = pjrt.CloseBuffers([]*pjrt.Buffer{out})
			return nil, err
		}
		n := min(len(tokens), e.chunk)
		if e.filled+chunkFor(n, e.chunk) > e.length {
			n = 1 // padding would not fit
		}
		if out != nil {
			_ = out.Close()
		}
		if out, err = e.step(tokens[:n]); err != nil {
			return nil, err
		}
		tokens = tokens[n:]
	}
	defer out.Close()
	raw, err := out.Bytes()
	if err != nil {
		return nil, fmt.Errorf("generate: running the model: %w", err)
	}
	logits = make([]float32, e.config.VocabSize)
	copy(pjrt.AsBytes(logits), raw)
	return logits, nil
}

// step reads one chunk.
func (e *engine) step(tokens []int32) (logits *pjrt.Buffer, err error) {
	p, err := e.program(chunkFor(len(tokens), e.chunk))
	if err != nil {
		return nil, err
	}
	args := append(append([]*pjrt.Buffer(nil), e.params...), e.cache...)
	padded := make([]int32, chunkFor(len(tokens), e.chunk))
	copy(padded, tokens)
	for _, a := range [][]int32{padded, {int32(e.filled)}, {int32(len(tokens) - 1)}} {
		b, err := p.Put(len(args), pjrt.AsBytes(a))
		if err != nil {
			return nil, err
		}
		defer pjrt.CloseBuffers(b)
		args = append(args, b[0])
	}
	outs, err := p.Exe.Run([][]*pjrt.Buffer{args}, pjrt.ExecuteOptions{})
	if err != nil {
		e.lost()
		return nil, fmt.Errorf("generate: running the model: %w", err)
	}
	_ = pjrt.CloseBuffers(e.cache) // donated
	n := len(e.cache)
	e.cache = outs[0][:n:n]
	e.filled += len(tokens)
	return outs[0][n], nil
}

// lost drops a cache that a failed run may have taken.
func (e *engine) lost() {
	_ = pjrt.CloseBuffers(e.cache)
	e.cache, e.filled = nil, 0
}
