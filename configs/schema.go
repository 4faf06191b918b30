package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"titan/internal/nearest"
)

// Key documents one key of a recipe.
type Key struct {
	Section string `json:"section"` // table it stands in, "model.override"; empty for extends
	Name    string `json:"name"`    // within the section
	Type    string `json:"type"`    // "an integer", …
	Default string `json:"default"` // as TOML; empty if there is none
	Doc     string `json:"doc"`
	// OfElements is set where the section is an array of tables.
	OfElements bool `json:"array_of_tables,omitempty"`
}

// Full returns the key with its section: "training.seq_len", or
// "data.sources[].path".
func (k Key) Full() string {
	switch {
	case k.Section == "":
		return k.Name
	case k.OfElements:
		return k.Section + "[]." + k.Name
	}
	return k.Section + "." + k.Name
}

// Schema documents every key, in the order of the sections.
func Schema() []Key {
	keys := []Key{{Name: extendsKey, Type: "a string", Doc: "path of a recipe, from this one's folder, or name of a built-in one, that this recipe changes"}}
	d := Defaults()
	return append(keys, schemaOf("", reflect.ValueOf(d), false)...)
}

func schemaOf(section string, v reflect.Value, ofElements bool) []Key {
	var keys, nested []Key
	for i := range v.NumField() {
		f, fv := v.Type().Field(i), v.Field(i)
		name := f.Tag.Get("toml")
		switch {
		case fv.Kind() == reflect.Struct:
			nested = append(nested, schemaOf(joinKey(section, name), fv, ofElements)...)
			continue
		case isTables(fv.Type()):
			nested = append(nested, schemaOf(joinKey(section, name), reflect.Zero(fv.Type().Elem()), true)...)
			continue
		}
		k := Key{Section: section, Name: name, Type: typeName(fv.Type()), Doc: f.Tag.Get("doc"), OfElements: ofElements}
		if !ofElements && !(fv.Kind() == reflect.Pointer && fv.IsNil()) {
			k.Default = formatValue(fv)
		}
		keys = append(keys, k)
	}
	return append(keys, nested...)
}

func isTables(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// Sections returns the names of all tables of a recipe, such as
// "optimizer.param_groups", in the order of Schema.
func Sections() []string { return slices.Clone(sections[1:]) }

// SchemaOf documents one table and those in it. An unknown name is an error that
// names the nearest.
func SchemaOf(section string) ([]Key, error) {
	section = strings.Trim(section, "[]")
	var keys []Key
	for _, k := range Schema() {
		if section != "" && within(k.Section, section) {
			keys = append(keys, k)
		}
	}
	if keys == nil {
		return nil, fmt.Errorf("there is no section %q%s", section, nearest.Hint(section, Sections()))
	}
	return keys, nil
}

// SectionDoc returns what a section is for.
func SectionDoc(section string) string {
	t, doc := reflect.TypeFor[Recipe](), ""
	for name := range strings.SplitSeq(section, ".") {
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("toml") == name {
				doc = f.Tag.Get("doc")
			}
		}
		next, ok := tagged(t, name)
		if !ok || next.Kind() != reflect.Struct {
			return doc
		}
		t = next
	}
	return doc
}
