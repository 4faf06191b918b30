package wholefile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.json"), filepath.Join(dir, "link")
	require.NoError(t, Write(path, []byte("one")))
	require.NoError(t, os.Symlink("a.json", link))
	require.NoError(t, Write(link, []byte("two")))
	require.Equal(t, "two", content(t, path))
	st, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, st.Mode()&os.ModeSymlink)

	require.NoError(t, Write(os.DevNull, []byte("x")))
	require.ErrorContains(t, Write(dir, nil), "is a folder")
	require.ErrorIs(t, Write(filepath.Join(dir, "no", "a"), nil), os.ErrNotExist)
	require.ErrorContains(t, Write(filepath.Join(path, "a"), nil), "not a directory")
}
