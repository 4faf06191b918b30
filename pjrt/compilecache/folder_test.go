package compilecache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/somewhere")
	t.Setenv(EnvVar, "")
	d, err := Dir()
	require.NoError(t, err)
	require.Equal(t, filepath.FromSlash("/somewhere/titan/compiled"), d)
	require.Equal(t, d, OpenDefault().Path())
	t.Setenv(EnvVar, "/else/where")
	d, err = Dir()
	require.NoError(t, err)
	require.Equal(t, filepath.FromSlash("/else/where"), d)
	t.Setenv(EnvVar, "off")
	require.Empty(t, OpenDefault().Path())
	t.Setenv(EnvVar, "")
	t.Setenv("XDG_CACHE_HOME", "relative")
	require.Contains(t, OpenDefault().off, "absolute")
}

// fake puts a file of n bytes into the cache, used the given time ago.
func fake(t *testing.T, c *Cache, key string, n int, ago time.Duration) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.file(key), make([]byte, n), 0o600))
	used := time.Now().Add(-ago)
	require.NoError(t, os.Chtimes(c.file(key), used, used))
}

func keysOf(t *testing.T, c *Cache) []string {
	t.Helper()
	entries, err := c.Entries()
	require.NoError(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Key)
	}
	return out
}

func TestEviction(t *testing.T) {
	c := Open(t.TempDir())
	c.MaxBytes = 100
	fake(t, c, "old", 40, 3*time.Hour)
	fake(t, c, "middle", 40, 2*time.Hour)
	fake(t, c, "young", 20, time.Hour)
	require.NoError(t, c.evict("young"))
	require.Equal(t, []string{"young", "middle", "old"}, keysOf(t, c), "they fit")
	fake(t, c, "new", 30, 0)
	require.NoError(t, c.evict("new"))
	require.Equal(t, []string{"new", "young", "middle"}, keysOf(t, c), "what was used longest ago goes")
	fake(t, c, "back in time", 95, 9*time.Hour)
	require.NoError(t, c.evict("back in time"))
	require.Equal(t, []string{"back in time"}, keysOf(t, c), "what was just written stays, whatever its date")
	fake(t, c, "huge", 1000, 0)
	require.NoError(t, c.evict("huge"))
	require.Equal(t, []string{"huge"}, keysOf(t, c), "also if it alone is too large")
}

// A hit counts as a use.
func TestHitsAreUses(t *testing.T) {
	c := Open(t.TempDir())
	out := get(t, c, 1)
	long := time.Now().Add(-100 * time.Hour)
	require.NoError(t, os.Chtimes(c.file(out.Key), long, long))
	fake(t, c, "other", 10, time.Hour)
	require.Equal(t, []string{"other", out.Key}, keysOf(t, c))
	require.True(t, get(t, c, 1).Hit)
	require.Equal(t, []string{out.Key, "other"}, keysOf(t, c))
	c.MaxBytes = 1
	get(t, c, 2)
	require.Len(t, keysOf(t, c), 1, "storing keeps to the bound")
}

func TestEntriesAndClear(t *testing.T) {
	c := Open(filepath.Join(t.TempDir(), "x"))
	require.Empty(t, keysOf(t, c))
	n, size, err := c.Clear()
	require.NoError(t, err)
	require.Zero(t, n+int(size))

	out := get(t, c, 1)
	fake(t, c, "damaged", 10, time.Hour)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, tempPrefix+"1"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "README"), nil, 0o600))
	entries, err := c.Entries()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, out.Key, entries[0].Key)
	require.Equal(t, "plus", entries[0].Name)
	require.Equal(t, "cpu", entries[0].Platform)
	require.WithinDuration(t, time.Now(), entries[0].Created, time.Hour)
	require.Greater(t, entries[0].Bytes, out.Bytes)
	require.Equal(t, "damaged", entries[1].Key)
	require.Empty(t, entries[1].Name)

	n, size, err = c.Clear()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, entries[0].Bytes+10, size)
	left, err := filepath.Glob(filepath.Join(c.dir, "*"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{filepath.Join(c.dir, "README"), filepath.Join(c.dir, "plugins")}, left, "what is not ours stays")
	require.Empty(t, keysOf(t, Open("")))
}

// What a killed process left is removed once nobody can be writing it any more.
func TestTemporaryFilesAreSwept(t *testing.T) {
	c := Open(t.TempDir())
	for name, ago := range map[string]time.Duration{"old": 2 * tempAge, "new": time.Second} {
		p := filepath.Join(c.dir, tempPrefix+name)
		require.NoError(t, os.WriteFile(p, nil, 0o600))
		require.NoError(t, os.Chtimes(p, time.Time{}, time.Now().Add(-ago)))
	}
	get(t, c, 1)
	left, err := filepath.Glob(filepath.Join(c.dir, tempPrefix+"*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(c.dir, tempPrefix+"new")}, left)
}

// The plugin's sum comes from the note while the file is the same, and from the
// file when it is not, even under its old size and date.
func TestPluginSum(t *testing.T) {
	defer func(old time.Duration) { settled = old }(settled)
	settled = 0
	c := Open(t.TempDir())
	lib := filepath.Join(t.TempDir(), "lib.so")
	sumOf := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	require.NoError(t, os.WriteFile(lib, []byte("one"), 0o600))
	st, err := os.Stat(lib)
	require.NoError(t, err)
	got, err := c.pluginSum(lib)
	require.NoError(t, err)
	require.Equal(t, sumOf("one"), got)

	notes, err := filepath.Glob(filepath.Join(c.dir, "plugins", "*"))
	require.NoError(t, err)
	state, _ := fileState(st)
	if state == "" {
		require.Empty(t, notes)
		t.Skip("this system has no times of change")
	}
	require.Len(t, notes, 1)
	marked := sumOf("as noted")
	raw, err := json.Marshal(pluginNote{lib, state, marked})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(notes[0], raw, 0o600))
	got, err = c.pluginSum(lib)
	require.NoError(t, err)
	require.Equal(t, marked, got, "the file is not read again")

	require.NoError(t, os.WriteFile(lib+".new", []byte("two"), 0o600))
	require.NoError(t, os.Rename(lib+".new", lib))
	require.NoError(t, os.Chtimes(lib, st.ModTime(), st.ModTime()))
	got, err = c.pluginSum(lib)
	require.NoError(t, err)
	require.Equal(t, sumOf("two"), got)

	require.NoError(t, os.WriteFile(notes[0], []byte("{"), 0o600))
	got, err = c.pluginSum(lib)
	require.NoError(t, err)
	require.Equal(t, sumOf("two"), got, "a damaged note is replaced")

	settled = time.Hour
	require.NoError(t, os.Remove(notes[0]))
	_, err = c.pluginSum(lib)
	require.NoError(t, err)
	require.NoFileExists(t, notes[0], "a file that changed just now is hashed every time")

	_, err = c.pluginSum(lib + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}
