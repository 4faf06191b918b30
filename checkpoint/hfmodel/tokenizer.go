package hfmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"titan/models/hfconfig"
)

const (
	generationName      = "generation_config.json"
	tokenizerName       = "tokenizer.json"
	tokenizerConfigName = "tokenizer_config.json"
)

// The files that make a tokenizer in Transformers, in all its versions.
var tokenizerNames = []string{
	tokenizerName, tokenizerConfigName, "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json",
}

// tokenizer is what a directory has of a tokenizer.
type tokenizer struct {
	dir   string // "" for none
	names []string
}

// tokenizerFiles looks for a tokenizer at a path: its directory, or its
// tokenizer.json.
func tokenizerFiles(path string) (*tokenizer, error) {
	if path == "" {
		return &tokenizer{}, nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("the tokenizer: %w", err)
	}
	if !st.IsDir() {
		if filepath.Base(path) != tokenizerName {
			return nil, fmt.Errorf("the tokenizer %s is neither a directory nor a %s", path, tokenizerName)
		}
		path = filepath.Dir(path)
	}
	t := &tokenizer{dir: path}
	for _, n := range tokenizerNames {
		st, err := os.Stat(filepath.Join(path, n))
		switch {
		case err == nil && st.Mode().IsRegular():
			t.names = append(t.names, n)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("the tokenizer: %w", err)
		}
	}
	if !slices.Contains(t.names, tokenizerName) && !slices.Contains(t.names, "tokenizer.model") {
		return nil, fmt.Errorf("%s has no %s: it is not a tokenizer", path, tokenizerName)
	}
	return t, nil
}

// copyTo copies the files. A tokenizer.json without tokenizer_config.json gets
// one: without, Transformers guesses the class from the model's.
func (t *tokenizer) copyTo(dir string, maxLength int) error {
	for _, n := range t.names {
		data, err := os.ReadFile(filepath.Join(t.dir, n))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, n), data, 0o644); err != nil {
			return err
		}
	}
	if !slices.Contains(t.names, tokenizerName) || slices.Contains(t.names, tokenizerConfigName) {
		return nil
	}
	o := hfconfig.Object{
		"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": maxLength,
		"clean_up_tokenization_spaces": false,
	}
	s, err := t.special()
	if err != nil {
		return err
	}
	for key, name := range map[string]string{"bos_token": s.begin, "eos_token": s.end} {
		if name != "" {
			o[key] = name
		}
	}
	data, err := o.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, tokenizerConfigName), data, 0o644)
}

// special tokens of a tokenizer.json.
type special struct {
	ids        map[string]int
	begin, end string // those that begin and end a text, if they have a usual name
}

func (t *tokenizer) special() (special, error) {
	s := special{ids: map[string]int{}}
	var file struct {
		AddedTokens []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := t.read(tokenizerName, &file); err != nil {
		return s, err
	}
	for _, a := range file.AddedTokens {
		s.ids[a.Content] = a.ID
	}
	first := func(names ...string) string {
		for _, n := range names {
			if _, ok := s.ids[n]; ok {
				return n
			}
		}
		return ""
	}
	// The names that titan's own tokenizer takes for these.
	s.begin = first("<|begin_of_text|>", "<|startoftext|>", "<s>", "<|bos|>", "<bos>")
	s.end = first("<|end_of_text|>", "<|endoftext|>", "</s>", "<|eos|>", "<eos>")
	return s, nil
}

// read decodes a file of the directory, leaving v alone if it is not there.
func (t *tokenizer) read(name string, v any) error {
	path := filepath.Join(t.dir, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// complete finds the special tokens that are not given: in the directory's
// generation_config.json or config.json, and else by the names that
// tokenizer_config.json gives, or the usual ones.
func (t *tokenizer) complete(k hfconfig.Tokens) (hfconfig.Tokens, error) {
	if t.dir == "" {
		return k, nil
	}
	fill := func(to *[]int, from []int) {
		if len(*to) == 0 {
			*to = from
		}
	}
	for _, name := range []string{generationName, hfconfig.Name} {
		path := filepath.Join(t.dir, name)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return k, err
		}
		f, err := hfconfig.Parse(path, data)
		if err != nil {
			return k, err
		}
		found := f.Tokens()
		if err := f.Err(); err != nil {
			return k, err
		}
		fill(&k.BOS, found.BOS)
		fill(&k.EOS, found.EOS)
		fill(&k.Pad, found.Pad)
	}
	s, err := t.special()
	if err != nil {
		return k, err
	}
	var named map[string]any
	if err := t.read(tokenizerConfigName, &named); err != nil {
		return k, err
	}
	name := func(key string) string {
		switch v := named[key].(type) {
		case string:
			return v
		case map[string]any: // an AddedToken
			c, _ := v["content"].(string)
			return c
		}
		return ""
	}
	for key, to := range map[string]*[]int{"bos_token": &k.BOS, "eos_token": &k.EOS, "pad_token": &k.Pad} {
		if id, ok := s.ids[name(key)]; ok {
			fill(to, []int{id})
		}
	}
	if named == nil { // what is written then says so, too
		if id, ok := s.ids[s.begin]; ok {
			fill(&k.BOS, []int{id})
		}
		if id, ok := s.ids[s.end]; ok {
			fill(&k.EOS, []int{id})
		}
	}
	return k, nil
}
