// Package models knows the model families by name. Each family is a package of
// three files: its sizes, its sharding, and its Hugging Face layout; the blocks
// they are made of are in models/decoder.
//
//	c, err := models.Lookup("qwen3_moe", "30B-A3B")
package models

import (
	"fmt"
	"maps"
	"slices"

	"titan/internal/nearest"
	"titan/models/decoder"
	"titan/models/llama3"
	"titan/models/qwen3"
	"titan/models/qwen3_moe"
)

var families = map[string]func() map[string]decoder.Config{
	"llama3":    llama3.Flavors,
	"qwen3":     qwen3.Flavors,
	"qwen3_moe": qwen3_moe.Flavors,
}

// Names returns the families.
func Names() []string { return slices.Sorted(maps.Keys(families)) }

// Flavors returns the sizes of a family, nil if there is no such family.
func Flavors(name string) []string {
	f, ok := families[name]
	if !ok {
		return nil
	}
	return slices.Sorted(maps.Keys(f()))
}

// Lookup returns the dimensions of a family's flavor. An unknown name is an
// error that lists what there is.
func Lookup(name, flavor string) (decoder.Config, error) {
	f, ok := families[name]
	if !ok {
		return decoder.Config{}, fmt.Errorf("there is no model %q%s", name, nearest.Hint(name, Names()))
	}
	c, ok := f()[flavor]
	if !ok {
		return decoder.Config{}, fmt.Errorf("model %s has no flavor %q%s", name, flavor, nearest.Hint(flavor, Flavors(name)))
	}
	return c, nil
}
