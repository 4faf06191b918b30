package models

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"unicode"

	"titan/internal/nearest"
	"titan/internal/recipekey"
	"titan/models/decoder"
)

// Config is the recipe's section [model].
type Config struct {
	Name         string           `toml:"name" doc:"model family: llama3, qwen3 or qwen3_moe; required"`
	Flavor       string           `toml:"flavor" doc:"size of the family, such as debugmodel, 8B or 30B-A3B; required"`
	HFAssetsPath string           `toml:"hf_assets_path" doc:"folder with the tokenizer.json of the data and, to begin from published weights, config.json and safetensors"`
	Override     decoder.Override `toml:"override" doc:"dimensions that differ from the flavor's"`
}

// DefaultConfig returns the values of [model] in a recipe that does not set
// them. There is no default model.
func DefaultConfig() Config { return Config{} }

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	if c.Name == "" {
		return recipekey.Errorf("model.name", "is missing; choose a family: %s", strings.Join(Names(), ", "))
	}
	flavors := Flavors(c.Name)
	switch {
	case flavors == nil:
		return recipekey.Errorf("model.name", "there is no model family %q%s", c.Name, nearest.Hint(c.Name, Names()))
	case c.Flavor == "":
		return recipekey.Errorf("model.flavor", "is missing; %s comes as %s", c.Name, strings.Join(flavors, ", "))
	}
	flavor, err := Lookup(c.Name, c.Flavor)
	if err != nil {
		return recipekey.Errorf("model.flavor", "%s has no flavor %q%s", c.Name, c.Flavor, nearest.Hint(c.Flavor, flavors))
	}
	var errs []error
	if flavor.MoE == nil {
		for _, k := range c.Override.Misplaced() {
			errs = append(errs, recipekey.Errorf("model.override."+k, "is for models with experts, and %s %s has none", c.Name, c.Flavor))
		}
	}
	// The checks below count layers, and so must not see what is out of bounds.
	errs = append(errs, dropUnbounded(&c.Override))
	resolved := c.Override.Apply(flavor)
	for _, e := range recipekey.Flatten(resolved.Validate()) {
		errs = append(errs, blame(&c.Override, e.Error()))
	}
	return errors.Join(errs...)
}

// Decoder returns the dimensions of the model: those of the flavor, with what
// [model.override] changes.
func (c Config) Decoder() (decoder.Config, error) {
	if err := c.Validate(); err != nil {
		return decoder.Config{}, err
	}
	flavor, err := Lookup(c.Name, c.Flavor)
	return c.Override.Apply(flavor), err
}

// Bounds beyond which a dimension is taken for a mistake.
const (
	maxLayers    = 10_000
	maxDimension = math.MaxInt32
)

// dropUnbounded refuses dimensions whose products would overflow, and unsets
// them.
func dropUnbounded(o *decoder.Override) error {
	v := reflect.ValueOf(o).Elem()
	var errs []error
	for i := range v.NumField() {
		n, ok := v.Field(i).Interface().(*int)
		if !ok || n == nil {
			continue
		}
		key, most := v.Type().Field(i).Tag.Get("toml"), maxDimension
		if key == "n_layers" {
			most = maxLayers
		}
		if *n > most {
			errs = append(errs, recipekey.Errorf("model.override."+key, "is %d and must be at most %d", *n, most))
			v.Field(i).SetZero()
		}
	}
	return errors.Join(errs...)
}

// blame returns the mistake as that of the first key in its text that o sets.
func blame(o *decoder.Override, mistake string) error {
	v := reflect.ValueOf(o).Elem()
	set := map[string]bool{}
	for i := range v.NumField() {
		set[v.Type().Field(i).Tag.Get("toml")] = !v.Field(i).IsNil()
	}
	for _, word := range strings.FieldsFunc(mistake, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) }) {
		if set[word] {
			if rest := strings.TrimPrefix(mistake, word+" "); strings.HasPrefix(rest, "is ") {
				mistake = rest // the key's name stands before it
			}
			return recipekey.Errorf("model.override."+word, "%s", mistake)
		}
	}
	return recipekey.Errorf("model.override", "%s", mistake)
}
