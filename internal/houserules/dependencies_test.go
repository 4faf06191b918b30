package houserules

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestDependenciesOfThisCheckout(t *testing.T) {
	found, err := CheckDependencies(os.DirFS("../.."))
	require.NoError(t, err)
	require.Empty(t, found, strings.Join(found, "\n"))
}

func TestCheckDependencies(t *testing.T) {
	mod := file("module titan", "", "go 1.26.0", "", "require example.org/one v1.0.0", "require (",
		"\texample.org/kit v1.0.0", "\texample.org/kit/v2 v2.0.0 // indirect", "\texample.org/lint v0.1.0 // indirect", "\texample.org/far v0.1.0 // indirect", ")",
		"", "tool example.org/lint/cmd/lint")
	const one, kit, lint = "| `example.org/one` | needed |", "| `example.org/kit/v2` | needed |", "| `example.org/lint` | needed |"
	for name, c := range map[string]struct {
		rows []string
		want []string
	}{
		"all":     {[]string{"| module | why |", "|---|---|", one, kit, lint, "| a job | own code, not example.org/far |"}, nil},
		"missing": {[]string{one, lint}, []string{"data/a_test.go uses example.org/kit/v2, which has no row in docs/dependencies.md"}},
		"tool":    {[]string{one, kit}, []string{"go.mod uses example.org/lint, which has no row in docs/dependencies.md"}},
		"unused":  {[]string{one, kit, lint, "| `example.org/far` | used by one |"}, []string{"docs/dependencies.md lists example.org/far, which nothing imports"}},
		"twice":   {[]string{one, kit, lint, one}, []string{"docs/dependencies.md lists example.org/one twice"}},
		"no why":  {[]string{one, kit, "| `example.org/lint` | |"}, []string{"docs/dependencies.md lists example.org/lint without a reason"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := CheckDependencies(fstest.MapFS{
				"go.mod": mod, dependencyList: file(c.rows...),
				"graph/a.go":     importing("fmt", "example.org/one/sub", "titan/dtype"),
				"data/a_test.go": importing("example.org/kit/v2"),
			})
			require.NoError(t, err)
			require.Equal(t, c.want, found)
		})
	}
}
