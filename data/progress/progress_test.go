package progress

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlainLines(t *testing.T) {
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	b := newPlain(&out, "preparing", Bytes, func() time.Time { return now })
	b.Set(0, 90e6, "0 documents")
	now = now.Add(9 * time.Second)
	b.Set(20e6, 90e6, "5 documents")
	require.Empty(t, out.String(), "short work says nothing")
	now = now.Add(time.Second)
	b.Set(30e6, 90e6, "7 documents")
	b.Set(31e6, 90e6, "8 documents")
	require.Equal(t, "preparing: 30.0 MB of 90.0 MB (33%), 7 documents, 10s, about 20s left\n", out.String())
	out.Reset()
	now = now.Add(10 * time.Second)
	b.Set(1234, 0, "")
	require.Equal(t, "preparing: 1.2 kB, 20s\n", out.String())
	b.Done()
	out.Reset()
	c := newPlain(&out, "merging", Count, func() time.Time { return now })
	now = now.Add(time.Minute)
	c.Set(10, 10, "")
	require.Equal(t, "merging: 10 of 10 (100%), 1m0s\n", out.String())
}

// A file is no terminal: no bar, no control characters.
func TestFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer f.Close()
	b := New(f, "x", Count)
	for i := range int64(1000) {
		b.Set(i, 1000, "")
	}
	b.Done()
	st, err := f.Stat()
	require.NoError(t, err)
	require.Zero(t, st.Size())
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 90363980: "90.4 MB", 5e12: "5.0 TB", 5e15: "5000.0 TB"} {
		require.Equal(t, want, FormatBytes(n))
	}
}
