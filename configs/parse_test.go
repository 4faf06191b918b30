package configs

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"

	"titan/recipes"
)

// plain turns nodes into what the library decodes.
func (n *node) plain() any {
	switch n.kind {
	case tableKind:
		m := map[string]any{}
		for k, v := range n.table {
			m[k] = v.plain()
		}
		return m
	case arrayKind:
		s := []any{}
		for _, e := range n.elems {
			s = append(s, e.plain())
		}
		return s
	case stringKind:
		return n.text
	case integerKind:
		return n.i
	case floatKind:
		if math.IsNaN(n.f) {
			return "nan"
		}
		return n.f
	case boolKind:
		return n.b
	}
	return "date"
}

// normal makes what the library decodes comparable.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = normal(e)
		}
	case []any:
		for i, e := range v {
			v[i] = normal(e)
		}
	case float64:
		if math.IsNaN(v) {
			return "nan"
		}
	case time.Time, toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return "date"
	}
	return v
}

// agree checks that a document is read as the library reads it.
func agree(t *testing.T, text string) {
	t.Helper()
	var want map[string]any
	err := toml.Unmarshal([]byte(strings.TrimPrefix(text, "\ufeff")), &want)
	got, problems := parse([]byte(text), "x.toml", 0)
	if err != nil {
		require.NotEmpty(t, problems, "%q: %v", text, err)
		require.Nil(t, got)
		for _, p := range problems {
			require.LessOrEqual(t, p.Place.Line, strings.Count(text, "\n")+1)
		}
		return
	}
	require.Empty(t, problems, "%q", text)
	if want == nil {
		want = map[string]any{}
	}
	require.Equal(t, normal(want), got.plain(), "%q", text)
}

const everything = `a = 1
b.c.d = [1, 2.5, "x", true, { e = 1, f.g = [[], {}] }, 1979-05-27, 07:32:00, 1979-05-27T07:32:00Z]
"q.r" = { 's t' = """
multi "line" \
   text""" , u = 'raw\' }
numbers = [+1_000, 0xff, 0o17, 0b101, -0.5e-1_0, inf, -inf, nan, +0.0]
[b.x]
y = 1
[[z]]
a = 1
[z.sub]
b = 2
[[z.sub.deep]]
[[z]]
a = 2
[[z.sub]]
c = 3
[z.sub.more]
[b.c.e]
`

func TestParseAgreesWithLibrary(t *testing.T) {
	agree(t, everything)
	agree(t, strings.ReplaceAll(everything, "\n", "\r\n"))
	for i := range everything { // cut anywhere
		agree(t, everything[:i])
		agree(t, everything[i:])
	}
	for _, text := range []string{"", "\n", "\ufeff", "\ufeffa=1", "a=1\n[a]", "[a]\n[a]", "[a.b]\n[a]\n[a.b]", "a={b=1}\n[a.c]", "a=[]\n[[a]]", "[[a]]\n[a]",
		"a.b=1\na.b.c=2", "[a]\nb=1\n[[a.b]]", "a=[{b=1}]\n[[a]]\nc=1", "[[a]]\n[[a.b]]\n[a.b.c]\nd=1", "a=1\x00", "\xef\xbb", "a.b=1\n[a]\nc=1", "[a.b.c]\n[a]\nb.d=1"} {
		agree(t, text)
	}
}

func TestBuiltinRecipesParse(t *testing.T) {
	for _, name := range recipes.Names() {
		text, err := recipes.Read(name)
		require.NoError(t, err)
		agree(t, string(text))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(everything)
	files, _ := filepath.Glob("testdata/mistakes/*.toml")
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			return
		}
		agree(t, text)
	})
}

// Whatever a recipe and its overrides say, loading ends with a recipe that
// reads back, or with mistakes that have a place.
func FuzzLoad(f *testing.F) {
	f.Add(small, "training.steps=5")
	f.Add(small+"[[optimizer.param_groups]]\npattern = \"norm\"\n", "optimizer.param_groups[0].lr=1")
	files, _ := filepath.Glob("testdata/mistakes/*.toml")
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(text), "model.flavor=debugmodel")
	}
	f.Fuzz(func(t *testing.T, text, set string) {
		if len(text) > 1<<12 {
			return
		}
		path := filepath.Join(t.TempDir(), "x.toml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		r, o, err := Load(path, []string{set})
		if err != nil {
			var all *Error
			require.ErrorAs(t, err, &all)
			require.NotEmpty(t, all.Problems)
			for _, p := range all.Problems {
				require.NotEqual(t, Place{}, p.Place)
				require.NotEmpty(t, p.Msg)
			}
			return
		}
		require.NoError(t, r.Validate())
		again := filepath.Join(t.TempDir(), "y.toml")
		require.NoError(t, os.WriteFile(again, []byte(r.TOML(o)), 0o644))
		r2, _, err := Load(again, nil)
		require.NoError(t, err, r.TOML(o))
		require.Equal(t, r, r2)
	})
}
