// Package hfconfig reads and writes the config.json of Hugging Face
// repositories for the model families, which say here what theirs look like.
//
//	f, err := hfconfig.Parse(path, data)
//	c, err := f.Decoder(family)            // family by f.ModelType()
//	data, err := hfconfig.Marshal(family, c, hfconfig.Meta{DType: dtype.BF16})
//
// Files of both key styles are read: that of published repositories (rope_theta,
// rope_scaling, torch_dtype, num_experts) and that of Transformers 5
// (rope_parameters, dtype, num_local_experts). The older one is written: every
// version of Transformers, vLLM and SGLang reads it.
//
// A value that would change what the model computes and that titan does not
// have, such as a bias or a sliding window, is refused by name.
package hfconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Name is the file's name in a repository.
const Name = "config.json"

// File is a config.json. Reading a key marks it as known; what is wrong is
// collected and returned by Decoder, all at once.
type File struct {
	path string
	keys map[string]any
	used map[string]bool
	errs []error
}

// Parse reads the content of a config.json; path stands in errors.
func Parse(path string, data []byte) (*File, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	f := &File{path: path, used: map[string]bool{}}
	if err := d.Decode(&f.keys); err != nil {
		return nil, fmt.Errorf("%s is not a JSON object: %w", path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s has something after its JSON object", path)
	}
	if f.keys == nil {
		return nil, fmt.Errorf("%s is not a JSON object: it is null", path)
	}
	return f, nil
}

// Fault records that a key's value cannot be used.
func (f *File) Fault(key, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// lookup returns the value of a key; ok is false if it is absent or null.
func (f *File) lookup(key string) (v any, ok bool) {
	f.used[key] = true
	v, ok = f.keys[key]
	return v, ok && v != nil
}

// Has reports whether a key is there and not null.
func (f *File) Has(key string) bool { _, ok := f.lookup(key); return ok }

// value returns a key's value as convert reads it; the default, if there is one,
// when the key is absent or null. what names the wanted type in faults.
func value[T any](f *File, key, what string, convert func(any) (T, bool), def []T) T {
	var zero T
	v, ok := f.lookup(key)
	if !ok {
		if len(def) == 0 {
			f.Fault(key, "is missing")
			return zero
		}
		return def[0]
	}
	out, ok := convert(v)
	if !ok {
		f.Fault(key, "is %s and must be %s", show(v), what)
	}
	return out
}

// Int returns an integer. Without a default the key must be there.
func (f *File) Int(key string, def ...int) int { return value(f, key, "a whole number", asInt, def) }

// Float returns a number.
func (f *File) Float(key string, def ...float64) float64 {
	return value(f, key, "a number", asFloat, def)
}

// Bool returns true or false.
func (f *File) Bool(key string, def ...bool) bool {
	return value(f, key, "true or false", as[bool], def)
}

// String returns a string.
func (f *File) String(key string, def ...string) string {
	return value(f, key, "a string", as[string], def)
}

// Ints returns a list of integers. A single one is a list, too.
func (f *File) Ints(key string, def ...[]int) []int {
	return value(f, key, "a list of whole numbers", asInts, def)
}

// Only refuses a key whose value is none of those allowed; an absent or null one
// is fine. why says what titan does not have.
func (f *File) Only(key, why string, allowed ...any) {
	v, ok := f.lookup(key)
	if !ok {
		return
	}
	for _, a := range allowed {
		if show(v) == show(a) {
			return
		}
		if n, ok := a.(float64); ok {
			if x, ok := asFloat(v); ok && x == n {
				return
			}
		}
	}
	f.Fault(key, "is %s: %s", show(v), why)
}

// Ignore marks keys as known that do not matter here.
func (f *File) Ignore(keys ...string) {
	for _, k := range keys {
		f.used[k] = true
	}
}

// Err returns what was found wrong.
func (f *File) Err() error {
	if len(f.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", f.path, errors.Join(f.errs...))
}

// Unknown returns the keys that nothing has asked for, sorted.
func (f *File) Unknown() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(f.keys)) {
		if !f.used[k] && !strings.HasPrefix(k, "_") {
			out = append(out, k)
		}
	}
	return out
}

// show returns a value as it stands in the file, shortened.
func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 100 {
		return string(b[:100]) + "…"
	}
	return string(b)
}

func as[T any](v any) (T, bool) { t, ok := v.(T); return t, ok }

func asFloat(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	x, err := n.Float64()
	return x, err == nil
}

// asInt also takes 1e6 and 8.0.
func asInt(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if i, err := n.Int64(); err == nil {
		return int(i), true
	}
	x, err := n.Float64()
	return int(x), err == nil && x == float64(int(x))
}

func asInts(v any) ([]int, bool) {
	list, ok := v.([]any)
	if !ok {
		i, ok := asInt(v)
		return []int{i}, ok
	}
	out := make([]int, len(list))
	for k, e := range list {
		if out[k], ok = asInt(e); !ok {
			return nil, false
		}
	}
	return out, true
}
