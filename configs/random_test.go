package configs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// survives loads a text and, where it is a recipe, its printed form again.
func survives(t *testing.T, text string, set ...string) (ok bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			require.Fail(t, "loading panics", "%v\n%s\n--set %q", p, text, set)
		}
	}()
	require.NoError(t, os.WriteFile("x.toml", []byte(text), 0o644))
	r, o, err := Load("x.toml", set)
	if err != nil {
		var all *Error
		require.ErrorAs(t, err, &all)
		for _, p := range all.Problems {
			require.NotEqual(t, Place{}, p.Place, text)
		}
		return false
	}
	require.NoError(t, r.Validate())
	require.NoError(t, os.WriteFile("y.toml", []byte(r.TOML(o)), 0o644))
	again, _, err := Load("y.toml", nil)
	require.NoError(t, err)
	require.Equal(t, r, again, text)
	return true
}

func TestTruncatedRecipes(t *testing.T) {
	r, o, err := Load("qwen3_moe_debug", []string{"data.sources=[{path='a'}]", "training.dataset_path=", "model.override.n_layers=3"})
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	text, whole := r.TOML(o), 0
	for i := 0; i <= len(text); i += 7 {
		if survives(t, text[:i]) {
			whole++
		}
	}
	require.Greater(t, whole, 20, "a recipe cut at the end of a line is one")
}

// Recipes of random keys with random values, some of them right.
func TestRandomRecipes(t *testing.T) {
	t.Chdir(t.TempDir())
	rng := rand.New(rand.NewPCG(1, 2))
	keys := Schema()
	values := []string{"0", "1", "-1", "2", "7", "1e300", "-0.5", "nan", "true", "false", `""`, `"x"`, `"float32"`, `"default"`, `"norm"`, `"8B"`,
		"[]", "[1, 0]", `["q"]`, "{}", "{ a = 1 }", "[{}]", "9223372036854775807", "2020-01-01"}
	good := 0
	for range 1500 {
		var b strings.Builder
		name := "qwen3_moe"
		if rng.IntN(2) == 0 {
			name = "llama3"
		}
		fmt.Fprintf(&b, "model.name = %q\nmodel.flavor = \"debugmodel\"\n", name)
		line := func() string {
			k := keys[1+rng.IntN(len(keys)-1)]
			v := values[rng.IntN(len(values))]
			if k.Default != "" && rng.IntN(3) > 0 {
				v = k.Default
			}
			if k.OfElements {
				return k.Section + "[0]." + k.Name + "=" + v
			}
			return k.Full() + "=" + v
		}
		used := map[string]bool{"model": true}
		for range rng.IntN(4) {
			l := line()
			key, value, _ := strings.Cut(l, "=")
			if !used[key] && !strings.Contains(key, "[") {
				fmt.Fprintf(&b, "%s = %s\n", key, value)
			}
			used[key] = true
		}
		var set []string
		for range rng.IntN(3) {
			set = append(set, line())
		}
		if survives(t, b.String(), set...) {
			good++
		}
	}
	require.Greater(t, good, 300)
}
