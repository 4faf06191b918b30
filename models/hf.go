package models

import (
	"fmt"
	"slices"

	"titan/internal/nearest"
	"titan/models/decoder"
	"titan/models/hfconfig"
	"titan/models/llama3"
	"titan/models/qwen3"
	"titan/models/qwen3_moe"
)

var layouts = map[string]func() hfconfig.Family{
	"llama3":    llama3.HF,
	"qwen3":     qwen3.HF,
	"qwen3_moe": qwen3_moe.HF,
}

// HF returns a family's layout in Transformers. An unknown name is an error that
// lists what there is.
func HF(family string) (hfconfig.Family, error) {
	l, ok := layouts[family]
	if !ok {
		return hfconfig.Family{}, fmt.Errorf("there is no model %q%s", family, nearest.Hint(family, Names()))
	}
	return l(), nil
}

// FromHF returns the family and the dimensions of the model that a config.json
// describes.
func FromHF(f *hfconfig.File) (family string, c decoder.Config, err error) {
	t := f.ModelType()
	var known []string
	for _, name := range Names() {
		m := layouts[name]()
		if m.ModelType == t {
			c, err = f.Decoder(m)
			return name, c, err
		}
		known = append(known, m.ModelType)
	}
	slices.Sort(known)
	if t == "" {
		f.Fault("model_type", "is missing; titan has %q", known)
	} else {
		f.Fault("model_type", "is %q, which titan does not have%s", t, nearest.Hint(t, known))
	}
	return "", c, f.Err()
}
