package wholefile

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What cannot be finished leaves what was there, and nothing beside it. A limit of the
// size of files stands for a full disk.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, Write(path, []byte("old")))

	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: before.Max}))
	err := Write(path, bytes.Repeat([]byte("x"), 4096))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))

	require.ErrorIs(t, err, syscall.EFBIG)
	require.Equal(t, "old", content(t, path))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
