package generate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/data/tokenizer"
	"titan/dtype"
	"titan/models/decoder"
	"titan/models/hfconfig"
	"titan/pjrt"
	"titan/sharding"
	"titan/train"
)

// Weights are the parameters of a model on disk.
type Weights struct {
	Where  string // for users
	Family string
	Config decoder.Config
	// Tokenizer is the folder that the model's tokenizer is said to be in, "" if
	// nothing is said.
	Tokenizer string
	// EOS are the tokens that end a text, as far as the model says; OpenTokenizer
	// adds what is said beside the tokenizer.
	EOS   []int
	Notes []string

	entries []safetensors.Entry
	restore func(context.Context, checkpoint.Target, checkpoint.Deliver) error
	close   func() error
}

// Close closes the files.
func (w *Weights) Close() error { return w.close() }

// OpenCheckpoint opens a checkpoint of a folder: that of a step, or
// checkpoint.Latest.
func OpenCheckpoint(folder *checkpoint.Folder, step int) (*Weights, error) {
	c, err := folder.Open(step)
	if err != nil {
		return nil, err
	}
	s, err := hfmodel.SavedModel(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Weights{
		Where: c.Path(), Family: s.Family, Config: s.Config, Tokenizer: s.Tokenizer,
		entries: c.Entries(), restore: c.Restore, close: c.Close,
	}, nil
}

// OpenHF opens a directory in Hugging Face's layout.
func OpenHF(dir string) (*Weights, error) {
	m, err := hfmodel.Open(dir)
	if err != nil {
		return nil, err
	}
	src, err := m.Tensors(dtype.F32)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &Weights{
		Where: dir, Family: m.Family, Config: m.Config, Tokenizer: dir, EOS: m.Tokens.EOS, Notes: m.Notes,
		entries: src.Entries(), close: m.Close,
		restore: func(ctx context.Context, t checkpoint.Target, d checkpoint.Deliver) error {
			return checkpoint.RestoreFrom(ctx, dir, src, t, d)
		},
	}, nil
}

// load puts the parameters on the machine's device, each layer's apart.
func load(ctx context.Context, m *train.Machine, w *Weights, compute dtype.DType, progress func(done, total int64)) (*engine, error) {
	rows := w.Config.Rows()
	e := &engine{machine: m, config: w.Config, compute: compute, chunk: maxChunk, params: make([]*pjrt.Buffer, len(rows))}
	of := map[string][]int{} // the rows of a parameter
	for i, r := range rows {
		of[r.Stack] = append(of[r.Stack], i)
	}
	target := checkpoint.Target{Mesh: m.Mesh}
	var done, total int64
	for _, p := range w.Config.Arrays() {
		stored := dtype.F32
		if i := slices.IndexFunc(w.entries, func(e safetensors.Entry) bool { return e.Name == p.Name }); i >= 0 && w.entries[i].DType.IsFloat() {
			stored = w.entries[i].DType // what is missing or no float, restoring reports
		}
		target.Tensors = append(target.Tensors, checkpoint.Tensor{Name: p.Name, DType: stored, Shape: p.Shape, Spec: sharding.Replicated(len(p.Shape))})
		total += p.Elements() * int64(stored.Size())
	}
	err := w.restore(ctx, target, func(tensor int, _ []int, data []byte) error {
		t := target.Tensors[tensor]
		list := of[t.Name]
		size := len(data) / len(list)
		for k, i := range list {
			to := storedType(rows[i], compute)
			row, err := convert(data[k*size:(k+1)*size], t.DType, to)
			if err != nil {
				return err
			}
			if e.params[i], err = m.Client.Put(row, to, rows[i].Shape, m.Client.LocalDevices()[0]); err != nil {
				return err
			}
		}
		if done += int64(len(data)); progress != nil {
			progress(done, total)
		}
		return nil
	})
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// convert changes the type of elements, rounding to nearest even.
func convert(data []byte, from, to dtype.DType) ([]byte, error) {
	if from == to {
		return data, nil
	}
	xs := make([]float32, len(data)/from.Size())
	for i := range xs {
		xs[i] = float32(dtype.Float(from, data, i))
	}
	return dtype.FromFloat32(to, xs)
}

// OpenTokenizer loads the tokenizer of a folder, or in a tokenizer.json; "" stands
// for the one that the model names.
func (w *Weights) OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	own := path == ""
	if own {
		path = w.Tokenizer
	}
	if path == "" {
		return nil, fmt.Errorf("generate: %s does not say where its tokenizer is", w.Where)
	}
	tok, err := tokenizer.Load(path)
	if own && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("generate: the tokenizer of %s should be in %s and is not (%w)", w.Where, path, err)
	}
	if err != nil {
		return nil, err
	}
	if filepath.Base(path) == "tokenizer.json" {
		path = filepath.Dir(path)
	}
	eos, err := endTokens(path)
	w.EOS = append(w.EOS, eos...)
	return tok, err
}

// endTokens returns the tokens that end a text according to the
// generation_config.json of a folder, nil if there is none.
func endTokens(dir string) ([]int, error) {
	path := filepath.Join(dir, "generation_config.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	f, err := hfconfig.Parse(path, data)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	t := f.Tokens()
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return t.EOS, nil
}
