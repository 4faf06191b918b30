package houserules

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestThisCheckout(t *testing.T) {
	found, err := Check(os.DirFS("../.."))
	require.NoError(t, err)
	require.Empty(t, found, strings.Join(found, "\n"))
}

const house = "# House\n| folder | job |\n|---|---|\n| `cmd/titan` | cli |\n| `data` · | batches |\n| `graph` | ir |\n| `pjrt` | binding |\n| `dtype` | types |\n"

func file(lines ...string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
}

func importing(paths ...string) *fstest.MapFile {
	lines := []string{"package p"}
	for _, p := range paths {
		lines = append(lines, fmt.Sprintf("import _ %q", p))
	}
	return file(lines...)
}

// Every rule finds what breaks it, and nothing else.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		text *fstest.MapFile
		want []string
	}{
		"down":      {"cmd/titan/a.go", importing("fmt", "titan/data", "titan/pjrt/plugins", "titan/dtype"), nil},
		"own":       {"graph/a.go", importing("titan/graph/sub"), nil},
		"lookalike": {"dtype/a.go", importing("titanium/graph"), nil},
		"up": {"pjrt/hlo/a.go", importing("fmt", "titan/dtype", "titan/graph"),
			[]string{"pjrt/hlo/a.go:4:8 imports titan/graph, which is not below pjrt in the table of docs/architecture.md"}},
		"stranger": {"graph/a.go", importing("titan/pjrt/hlo"),
			[]string{"graph/a.go:2:8 imports titan/pjrt/hlo, of which graph knows nothing"}},
		"unlisted import": {"graph/a.go", importing("titan/other"),
			[]string{"graph/a.go:2:8 imports titan/other, which is not below graph in the table of docs/architecture.md"}},
		"unlisted folder": {"util/a.go", importing(),
			[]string{"util/a.go: the folder util is not in the table of docs/architecture.md"}},
		"test code in the product": {"graph/a.go", importing("titan/internal/xlatest"),
			[]string{"graph/a.go:2:8 imports titan/internal/xlatest, which is no part of the product"}},
		"tests import all": {"dtype/a_test.go", importing("titan/graph", "titan/internal/x"), nil},
		"helper":           {"dtype/a.go", importing("titan/internal/near"), nil},
		"helper of helper": {"internal/near/a.go", importing("titan/internal/far"), nil},
		"test helper":      {"internal/xtest/a.go", importing("titan/cmd/titan", "titan/internal/near"), nil},
		"helper imports up": {"internal/near/a.go", importing("titan/dtype"),
			[]string{"internal/near/a.go:2:8 imports titan/dtype, which is not below internal in the table of docs/architecture.md"}},
		"not Go": {"graph/a.go", file("pakcage p"), []string{"graph/a.go:1:1: expected 'package', found pakcage"}},

		"longest": {"dtype/a.go", file("package p", strings.Repeat("\n", MaxLines-2)), nil},
		"too long": {"dtype/a.go", file("package p", strings.Repeat("\n", MaxLines-1)),
			[]string{"dtype/a.go has 501 lines, more than 500: split it by its jobs"}},
		"long test": {"dtype/a_test.go", file("package p", strings.Repeat("\n", 2*MaxLines)), nil},

		"path": {"docs/a.md", file("see", "run `/wo"+"rk/main/x`"),
			[]string{"docs/a.md:2 names a path of a developer's machine (\"`/wo" + "rk/m\")"}},
		"path in a binary": {"graph/testdata/a.pb", file("\x00\x01 /ro" + "ot/x\x00"),
			[]string{"graph/testdata/a.pb:1 names a path of a developer's machine (\" /ro" + "ot/x\")"}},
		"relative path": {"Makefile", file("cat ../sha" + "red/x"),
			[]string{"Makefile:1 names a path of a developer's machine (\"../sha" + "red/\")"}},
		"paths of a URL or repository": {"docs/a.md", file("host.org/work/x ./opt/y src/home/z /workshop/"), nil},
		"registry": {"README.md", file("https://py" + "pi.org/simple"),
			[]string{`README.md:1 names a package registry ("py` + `pi.org"); pip and go know theirs`}},
		"proxy": {".ci/run", file("export GO" + "PROXY=x"),
			[]string{`.ci/run:1 names a package registry ("GO` + `PROXY="); pip and go know theirs`}},
		"no source": {".git/config", file("/wo" + "rk/main"), nil},
		"built":     {"bin/titan", file("/wo" + "rk/main"), nil},

		"replace": {"go.mod", file("module titan", "", "replace a => b", "replace (", "c => d", ")", "// replacement"),
			[]string{"go.mod:3 replaces a module; users of go install would not get it", "go.mod:4 replaces a module; users of go install would not get it"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Check(fstest.MapFS{houseList: file(house), c.file: c.text})
			require.NoError(t, err)
			require.Equal(t, c.want, found)
		})
	}
}

func TestHouseList(t *testing.T) {
	_, err := Check(fstest.MapFS{})
	require.ErrorContains(t, err, houseList)
	_, err = Check(fstest.MapFS{houseList: file("no table")})
	require.ErrorContains(t, err, "no table of folders")
	_, err = Check(fstest.MapFS{houseList: file(house, "| `graph` | again |")})
	require.ErrorContains(t, err, "lists graph twice")
}
