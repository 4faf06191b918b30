package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"titan/sharding"
)

// The names under which Hugging Face repositories keep weights.
const (
	SingleName = "model.safetensors"
	IndexName  = "model.safetensors.index.json"
)

// ShardName returns the name of file i (from 0) of n: model-00001-of-00003.safetensors.
func ShardName(i, n int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n) }

// Set is one model in one or several files. It may be used from several
// goroutines.
type Set struct {
	path     string
	files    []*File
	at       map[string]int // tensor name to file
	names    []string
	unlisted []string
}

// Index is the content of an index file.
type Index struct {
	Metadata  map[string]any    `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`
}

// OpenModel opens the weights at path: a safetensors file, an index file, or a
// directory with model.safetensors.index.json or model.safetensors, in that
// order. All headers are read and checked against the index.
func OpenModel(path string) (*Set, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if st.IsDir() {
		if path, err = modelIn(path); err != nil {
			return nil, err
		}
	}
	s := &Set{path: path, at: map[string]int{}}
	if strings.HasSuffix(path, ".json") {
		err = s.openIndex()
	} else {
		err = s.openSingle()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// modelIn finds the file to open in a directory.
func modelIn(dir string) (string, error) {
	for _, name := range []string{IndexName, SingleName} {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("safetensors: %w", err)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("safetensors: %w", err)
	}
	var tensors, other []string
	for _, e := range list {
		switch filepath.Ext(e.Name()) {
		case ".safetensors":
			tensors = append(tensors, e.Name())
		case ".bin", ".pt", ".pth", ".gguf":
			other = append(other, e.Name())
		}
	}
	switch {
	case len(tensors) == 1 && !strings.Contains(tensors[0], "-of-"):
		return filepath.Join(dir, tensors[0]), nil
	case len(tensors) > 0:
		return "", fmt.Errorf("safetensors: %s has %s but no %s to say which tensors they hold; is the download complete?", dir, some(tensors), IndexName)
	case len(other) > 0:
		return "", fmt.Errorf("safetensors: %s has no safetensors files, only %s; convert them to safetensors first", dir, some(other))
	}
	return "", fmt.Errorf("safetensors: %s has neither %s nor %s", dir, IndexName, SingleName)
}

// some lists at most four names.
func some(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:4], ", ") + fmt.Sprintf(" and %d more", len(names)-4)
	}
	return strings.Join(names, ", ")
}

func (s *Set) openSingle() error {
	f, err := Open(s.path)
	if err != nil {
		return err
	}
	s.files = []*File{f}
	for _, t := range f.h.tensors {
		s.at[t.Name] = 0
		s.names = append(s.names, t.Name)
	}
	return nil
}

// ReadIndex reads an index file. It refuses names listed twice and file names
// that lead out of the directory.
func ReadIndex(path string) (*Index, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	bad := func(tensor, reason string) error { return &FormatError{path, tensor, reason} }
	index := &Index{WeightMap: map[string]string{}}
	dec := json.NewDecoder(bytes.NewReader(raw))
	found := false
	err = object(dec, func(key string) error {
		switch key {
		case "metadata":
			return dec.Decode(&index.Metadata)
		case "weight_map":
			found = true
			return object(dec, func(name string) error {
				t, err := dec.Token()
				if err != nil {
					return err
				}
				file, ok := t.(string)
				if !ok {
					return bad(name, "its file name is not a string")
				}
				if file == "" || file == "." || file == ".." || strings.ContainsAny(file, `/\`) {
					return bad(name, fmt.Sprintf("%q is not the name of a file beside the index", file))
				}
				if _, ok := index.WeightMap[name]; ok {
					return bad(name, "it is listed twice")
				}
				index.WeightMap[name] = file
				return nil
			})
		}
		var skip json.RawMessage
		return dec.Decode(&skip)
	})
	var format *FormatError
	switch {
	case errors.As(err, &format):
		return nil, err
	case err != nil:
		return nil, bad("", "not a valid index: "+describeJSON(err))
	case !found:
		return nil, bad("", `the index has no "weight_map"`)
	}
	return index, nil
}

func (s *Set) openIndex() error {
	index, err := ReadIndex(s.path)
	if err != nil {
		return err
	}
	byFile := map[string][]string{}
	for name, file := range index.WeightMap {
		byFile[file] = append(byFile[file], name)
	}
	var order []string
	for file := range byFile {
		order = append(order, file)
	}
	slices.Sort(order)
	for i, name := range order {
		f, err := Open(filepath.Join(filepath.Dir(s.path), name))
		if errors.Is(err, fs.ErrNotExist) {
			return &FormatError{s.path, "", fmt.Sprintf("%s is missing; it holds %s. Is the download complete?", name, some(byFile[name]))}
		}
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
		for _, t := range f.h.tensors {
			if index.WeightMap[t.Name] != name {
				s.unlisted = append(s.unlisted, t.Name+" in "+name)
				continue
			}
			s.at[t.Name] = i
			s.names = append(s.names, t.Name)
		}
		slices.Sort(byFile[name])
		for _, t := range byFile[name] {
			if _, ok := f.byName[t]; !ok {
				return &FormatError{s.path, t, "the index places it in " + name + ", which does not have it"}
			}
		}
	}
	return nil
}

// Path returns the file that was opened: the index or the single file.
func (s *Set) Path() string { return s.path }

// Files returns the paths of the files that hold the tensors.
func (s *Set) Files() []string {
	out := make([]string, len(s.files))
	for i, f := range s.files {
		out[i] = f.name
	}
	return out
}

// Unlisted names tensors that are in the files but that the index does not list
// there. They are not part of the model.
func (s *Set) Unlisted() []string { return slices.Clone(s.unlisted) }

// Entries returns the tensors, file by file in the order of their bytes.
func (s *Set) Entries() []Entry {
	out := make([]Entry, len(s.names))
	for i, n := range s.names {
		f := s.files[s.at[n]]
		out[i] = f.h.tensors[f.byName[n]].Entry
	}
	return out
}

// file returns the file that holds a tensor.
func (s *Set) file(name string) (*File, error) {
	i, ok := s.at[name]
	if !ok {
		return nil, missing(s.path, name, s.names)
	}
	return s.files[i], nil
}

// Tensor returns a tensor by name. The error names the nearest if there is none.
func (s *Set) Tensor(name string) (Info, error) {
	f, err := s.file(name)
	if err != nil {
		return Info{}, err
	}
	return f.Tensor(name)
}

// Bytes returns the data of a tensor; see File.Bytes.
func (s *Set) Bytes(name string) ([]byte, error) {
	f, err := s.file(name)
	if err != nil {
		return nil, err
	}
	return f.Bytes(name)
}

// ReadRegion fills dst with a region of a tensor; see File.ReadRegion.
func (s *Set) ReadRegion(name string, r sharding.Region, dst []byte) error {
	f, err := s.file(name)
	if err != nil {
		return err
	}
	return f.ReadRegion(name, r, dst)
}

// Close closes all files.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
