package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindPatterns(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.go", "a_test.go", "z/b.go", "z/testdata/c.go", "y/vendor/d.go", "y/e.md", ".git/f.go"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o666))
	}
	for _, c := range []struct {
		include, exclude, want string
	}{
		{"", "", "a.go a_test.go y/e.md y/vendor/d.go z/b.go z/testdata/c.go"},
		{"*.go", "", "a.go a_test.go y/vendor/d.go z/b.go z/testdata/c.go"},
		{"*.go", "testdata vendor *_test.go", "a.go z/b.go"},
		{"z/**", "", "z/b.go z/testdata/c.go"},
		{"*.go *.md", "y/vendor", "a.go a_test.go y/e.md z/b.go z/testdata/c.go"},
		{"**/*.go", "z/*.go", "a.go a_test.go y/vendor/d.go z/testdata/c.go"},
	} {
		files, err := Find([]string{dir}, Options{Include: strings.Fields(c.include), Exclude: strings.Fields(c.exclude)})
		require.NoError(t, err)
		var got []string
		for _, f := range files {
			rel, err := filepath.Rel(dir, f.Path)
			require.NoError(t, err)
			got = append(got, filepath.ToSlash(rel))
		}
		require.Equal(t, c.want, strings.Join(got, " "), "include %q exclude %q", c.include, c.exclude)
	}
	_, err := Find([]string{dir}, Options{Exclude: []string{"*"}})
	require.ErrorContains(t, err, "no file matches")
	_, err = Find([]string{dir}, Options{Exclude: []string{"[a"}})
	require.ErrorContains(t, err, `pattern "[a" is malformed`)
}
