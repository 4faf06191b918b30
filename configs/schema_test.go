package configs

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryKeyIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Schema() {
		require.NotEmpty(t, k.Name, "a field of %s has no toml tag", k.Section)
		require.NotEmpty(t, k.Doc, "%s has no doc tag", k.Full())
		require.NotContains(t, k.Doc, "\n")
		require.NotEmpty(t, k.Type)
		require.False(t, seen[k.Full()], "%s is there twice", k.Full())
		seen[k.Full()] = true
	}
	for _, s := range Sections() {
		require.NotEmpty(t, SectionDoc(s), s)
	}
	require.True(t, seen["extends"] && seen["model.override.n_layers"] && seen["optimizer.param_groups[].pattern"] && seen["data.sources[].weight"])
	require.Empty(t, SectionDoc("nothing"))
}

// The types that recipes use are those that are read and printed.
func TestTypesOfKeys(t *testing.T) {
	var walk func(v reflect.Type, path string)
	walk = func(v reflect.Type, path string) {
		for i := range v.NumField() {
			f := v.Field(i)
			ft := f.Type
			require.True(t, f.IsExported(), "%s.%s", path, f.Name)
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Slice {
				ft = ft.Elem()
			}
			switch ft.Kind() {
			case reflect.Struct:
				walk(ft, path+"."+f.Name)
			case reflect.String, reflect.Bool, reflect.Int, reflect.Uint64, reflect.Float64:
			default:
				require.Fail(t, "type that is not read", "%s.%s: %v", path, f.Name, f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Recipe](), "")
}

// What is said of TorchTitan's keys is not said of a key that there is.
func TestTorchTitanKeysAreNotOurs(t *testing.T) {
	ours := map[string]bool{}
	for _, k := range Schema() {
		ours[k.Section], ours[k.Full()] = true, true
	}
	for key, why := range torchTitan {
		require.False(t, ours[key], "%s is a key of titan", key)
		if section, ok := strings.CutPrefix(why, "belongs in ["); ok {
			_, name, _ := strings.Cut(key, ".")
			require.True(t, ours[strings.TrimSuffix(section, "]")+"."+name], key)
		}
		if name, ok := strings.CutPrefix(why, "is called "); ok {
			name, _, _ = strings.Cut(strings.ReplaceAll(name, ",", " "), " ")
			section, _, _ := strings.Cut(key, ".")
			require.True(t, ours[section+"."+name] || ours[name], key)
		}
	}
}

func TestSchemaOf(t *testing.T) {
	keys, err := SchemaOf("[[optimizer.param_groups]]")
	require.NoError(t, err)
	require.Equal(t, "optimizer.param_groups[].pattern", keys[0].Full())
	keys, err = SchemaOf("model")
	require.NoError(t, err)
	require.Equal(t, "model.name", keys[0].Full())
	require.Equal(t, "model.override.z_loss_coef", keys[len(keys)-1].Full())
	for _, name := range []string{"trainig", "", "mod"} {
		_, err = SchemaOf(name)
		require.ErrorContains(t, err, "there is no section")
	}
}
