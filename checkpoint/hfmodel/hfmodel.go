// Package hfmodel joins the model families with their directories in the layout
// of Hugging Face: config.json, generation_config.json, safetensors, tokenizer.
//
//	m, err := hfmodel.Open("Qwen3-0.6B")
//	defer m.Close()
//	err = m.Check("qwen3", recipe)         // every difference to a recipe's model
//	src, err := m.Tensors(dtype.F32)       // named and shaped as decoder.Params says
//
//	err = hfmodel.Export(ctx, dir, "qwen3", config, src, hfmodel.ExportOptions{DType: dtype.BF16})
package hfmodel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"titan/checkpoint/hf"
	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/models"
	"titan/models/decoder"
	"titan/models/hfconfig"
	"titan/sharding"
)

// Model is an open directory.
type Model struct {
	Path   string
	Family string
	Config decoder.Config
	Tokens hfconfig.Tokens
	// DType is the element type of the weights: that of the embedding.
	DType dtype.DType
	// Notes are for the log: keys of config.json that titan does not know, which
	// Transformers ignores as well, and tensors that the index does not list.
	Notes []string

	set *safetensors.Set
}

// ReadConfig reads the config.json of a directory. It fails, listing all faults,
// if titan does not have such a model.
func ReadConfig(dir string) (family string, c decoder.Config, t hfconfig.Tokens, notes []string, err error) {
	path := filepath.Join(dir, hfconfig.Name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("hfmodel: %s has no %s: it is not a model in Hugging Face's layout", dir, hfconfig.Name)
		return family, c, t, notes, err
	}
	if err != nil {
		return family, c, t, notes, fmt.Errorf("hfmodel: %w", err)
	}
	f, err := hfconfig.Parse(path, data)
	if err != nil {
		return family, c, t, notes, fmt.Errorf("hfmodel: %w", err)
	}
	if family, c, err = models.FromHF(f); err != nil {
		return family, c, t, notes, fmt.Errorf("hfmodel: %w", err)
	}
	t = f.Tokens()
	if u := f.Unknown(); len(u) > 0 {
		notes = append(notes, fmt.Sprintf("%s has keys that %s does not have and that are not used: %s", path, family, strings.Join(u, ", ")))
	}
	return family, c, t, notes, nil
}

// Open opens a directory with config.json and safetensors, in one file or many
// with an index. It reads and checks all headers, but not the weights.
func Open(dir string) (*Model, error) {
	m := &Model{Path: dir}
	var err error
	if m.Family, m.Config, m.Tokens, m.Notes, err = ReadConfig(dir); err != nil {
		return nil, err
	}
	if m.set, err = safetensors.OpenModel(dir); err != nil {
		return nil, err
	}
	if u := m.set.Unlisted(); len(u) > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("%s does not list %s, which are in its files and are not used", m.set.Path(), strings.Join(u, ", ")))
	}
	if e, err := m.set.Tensor(embedName); err == nil {
		m.DType = e.DType
	}
	if _, err := m.view(dtype.F32); err != nil { // to find faults now
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close closes the files.
func (m *Model) Close() error { return m.set.Close() }

// Tensors returns the weights as the parameters of decoder.Config.Params: their
// names and shapes, with elements of the given floating point type. They are
// read when asked for, until Close.
//
// A tied model that stores its output layer nevertheless has it compared with
// the embedding first: versions of Transformers disagree about which of two
// different ones counts, so they are refused.
func (m *Model) Tensors(as dtype.DType) (safetensors.Source, error) {
	if m.Config.TieEmbeddings {
		if err := m.checkTied(); err != nil {
			return nil, err
		}
	}
	return m.view(as)
}

func (m *Model) view(as dtype.DType) (safetensors.Source, error) {
	src, err := View(m.Family, m.Config, m.Path, m.set, as)
	if err != nil && !m.Config.TieEmbeddings {
		if _, missing := m.set.Tensor(headName); missing != nil {
			err = fmt.Errorf("%w (%s says tie_word_embeddings false, or nothing; if the output layer is the embedding it must say true)", err, hfconfig.Name)
		}
	}
	return src, err
}

// View returns tensors named as a family's are in Transformers (weights, or
// anything of their shapes such as gradients) as the parameters of
// decoder.Config.Params. where names the source in errors.
func View(family string, c decoder.Config, where string, theirs safetensors.Source, as dtype.DType) (safetensors.Source, error) {
	b, err := bind(family, c, as)
	if err != nil {
		return nil, err
	}
	return b.Import(where, theirs)
}

const (
	embedName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
)

// checkTied compares the output layer of a tied model, if there is one, with the
// embedding.
func (m *Model) checkTied() error {
	head, err := m.set.Tensor(headName)
	if err != nil {
		return nil // as it should be
	}
	embed, err := m.set.Tensor(embedName)
	if err != nil {
		return err
	}
	differ := fmt.Errorf("hfmodel: %s: %s says tie_word_embeddings true, but %s is not %s; if the model has an output layer of its own it must say false",
		m.Path, hfconfig.Name, headName, embedName)
	if head.DType != embed.DType || !slices.Equal(head.Shape, embed.Shape) {
		return differ
	}
	return safetensors.Slabs(head.Entry, safetensors.DefaultChunk, func(r sharding.Region) error {
		a, b := make([]byte, r.Elements()*head.DType.Size()), make([]byte, r.Elements()*head.DType.Size())
		if err := errors.Join(m.set.ReadRegion(headName, r, a), m.set.ReadRegion(embedName, r, b)); err != nil {
			return err
		}
		if !bytes.Equal(a, b) {
			return differ
		}
		return nil
	})
}

// bind applies a family's table to the parameters of a model.
func bind(family string, c decoder.Config, d dtype.DType) (*hf.Binding, error) {
	m, err := models.HF(family)
	if err != nil {
		return nil, fmt.Errorf("hfmodel: %w", err)
	}
	if !d.IsFloat() {
		return nil, fmt.Errorf("hfmodel: weights cannot be %v; it is not a floating point type", d)
	}
	table, err := hf.Parse(m.Mapping(c))
	if err != nil {
		return nil, err
	}
	return table.Bind(Entries(c, d))
}

// Entries returns the parameters of a model as tensors of the given type.
func Entries(c decoder.Config, d dtype.DType) []safetensors.Entry {
	var out []safetensors.Entry
	for _, p := range c.Params() {
		out = append(out, safetensors.Entry{Name: p.Name, DType: d, Shape: p.Shape})
	}
	return out
}
