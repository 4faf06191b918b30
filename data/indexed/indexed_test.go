package indexed

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t testing.TB, prefix string, dtype DType, docs [][]int32) Summary {
	w, err := Create(prefix, dtype, false)
	require.NoError(t, err)
	defer w.Abort()
	for _, d := range docs {
		require.NoError(t, w.Append(d))
	}
	s, err := w.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	return s
}

func names(t testing.TB, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, dtype := range []DType{Uint8, Int8, Int16, Uint16, Int32, Int64} {
		rng := rand.New(rand.NewPCG(1, uint64(dtype)))
		prefix := filepath.Join(t.TempDir(), "sub", "data")
		var docs [][]int32
		var stream []int32
		for range 200 {
			d := make([]int32, 1+rng.IntN(50))
			for i := range d {
				d[i] = rng.Int32N(min(dtype.max(), 1<<20) + 1)
			}
			docs, stream = append(docs, d), append(stream, d...)
		}
		s := write(t, prefix, dtype, docs)
		require.EqualValues(t, len(stream), s.Tokens)
		require.Equal(t, []string{"data.bin", "data.idx"}, names(t, filepath.Dir(prefix)))

		d, err := Open(prefix + ".idx")
		require.NoError(t, err)
		defer d.Close()
		require.Equal(t, dtype, d.DType())
		require.EqualValues(t, len(stream), d.Tokens())
		require.EqualValues(t, len(docs), d.Documents())
		at := int64(0)
		for i, doc := range docs {
			start, end, err := d.Document(int64(i))
			require.NoError(t, err)
			require.Equal(t, at, start)
			require.Equal(t, at+int64(len(doc)), end)
			got := make([]int32, len(doc))
			require.NoError(t, d.Read(got, start))
			require.Equal(t, doc, got)
			for _, p := range []int64{start, end - 1} {
				n, err := d.DocumentAt(p)
				require.NoError(t, err)
				require.EqualValues(t, i, n)
			}
			starts, err := d.Starts(nil, start, end)
			require.NoError(t, err)
			require.Equal(t, []int64{start}, starts)
			at = end
		}
		require.Error(t, d.Read(make([]int32, 2), at-1))
		require.Error(t, d.Read(make([]int32, 1), -1))
		_, _, err = d.Document(int64(len(docs)))
		require.Error(t, err)
	}
}

// The bytes of a small index, written out by hand from the format.
func TestLayout(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "d")
	write(t, prefix, Uint16, [][]int32{{1, 2, 3}, {}, {0xABCD}})
	idx, err := os.ReadFile(prefix + ".idx")
	require.NoError(t, err)
	require.Equal(t, "4d4d494449445800000100000000000000"+"08"+"0200000000000000"+"0300000000000000"+
		"03000000"+"01000000"+"0000000000000000"+"0600000000000000"+
		"0000000000000000"+"0100000000000000"+"0200000000000000", hex.EncodeToString(idx))
	bin, err := os.ReadFile(prefix + ".bin")
	require.NoError(t, err)
	require.Equal(t, "010002000300cdab", hex.EncodeToString(bin))
}

func TestWriterRefuses(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "d")
	w, err := Create(prefix, Uint16, false)
	require.NoError(t, err)
	require.ErrorContains(t, w.Append([]int32{1, 70000}), "token 1: id 70000 does not fit into uint16")
	require.ErrorContains(t, w.Append([]int32{-1}), "id -1")
	_, err = Create(prefix, Uint16, false)
	require.ErrorContains(t, err, "another process is writing")
	_, err = w.Finish()
	require.ErrorContains(t, err, "no document")
	w.Abort()
	require.Empty(t, names(t, dir))

	_, err = Create(prefix, DType(7), false)
	require.ErrorContains(t, err, "float32")
	_, err = Create(filepath.Join(dir, "d", "e"), Uint16, false)
	require.NoError(t, err) // makes the directory
}

// What a killed writer leaves is taken over, and an old dataset stays whole
// until the new one is committed.
func TestRestartAndOverwrite(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "d")
	require.NoError(t, os.WriteFile(prefix+".bin.partial", []byte("left by a killed process"), 0o666))
	_, err := Open(prefix)
	require.ErrorContains(t, err, "prepare it again")
	write(t, prefix, Int32, [][]int32{{1, 2}})
	_, err = Create(prefix, Int32, false)
	require.ErrorContains(t, err, "exists already")

	w, err := Create(prefix, Int32, true)
	require.NoError(t, err)
	require.NoError(t, w.Append([]int32{7, 8, 9}))
	_, err = w.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Attach(".json", []byte("{}")))
	old, err := Open(prefix)
	require.NoError(t, err)
	require.EqualValues(t, 2, old.Tokens())
	require.NoError(t, w.Commit())
	got := make([]int32, 2)
	require.NoError(t, old.Read(got, 0)) // the mapping outlives the name
	require.Equal(t, []int32{1, 2}, got)
	require.NoError(t, old.Close())
	require.ErrorContains(t, old.Read(got, 0), "after Close")
	d, err := Open(prefix)
	require.NoError(t, err)
	defer d.Close()
	require.EqualValues(t, 3, d.Tokens())
	require.Equal(t, []string{"d.bin", "d.idx", "d.json"}, names(t, dir))
	require.Error(t, w.Commit())
	require.Error(t, w.Append([]int32{1}))
	w.Abort()
	require.FileExists(t, prefix+".idx")
}

// Every truncation and every damaged byte of the index is an error or leaves the
// content as it was; none is a crash.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "d")
	docs := [][]int32{{1, 2, 3}, {4}, {5, 6, 7, 8, 9}}
	write(t, prefix, Uint16, docs)
	idx, err := os.ReadFile(prefix + ".idx")
	require.NoError(t, err)
	bin, err := os.ReadFile(prefix + ".bin")
	require.NoError(t, err)
	put := func(i, b []byte) {
		require.NoError(t, os.WriteFile(prefix+".idx", i, 0o666))
		require.NoError(t, os.WriteFile(prefix+".bin", b, 0o666))
	}
	for n := range idx {
		put(idx[:n], bin)
		_, err := Open(prefix)
		require.Error(t, err, "index cut to %d bytes", n)
		require.ErrorContains(t, err, "d.idx")
	}
	for n := range bin {
		put(idx, bin[:n])
		_, err := Open(prefix)
		require.ErrorContains(t, err, "d.bin", "tokens cut to %d bytes", n)
	}
	put(idx, append(bin, 0))
	_, err = Open(prefix)
	require.ErrorContains(t, err, "truncated or belongs to another index")
	for i := range idx {
		for bit := range 8 {
			bad := append([]byte(nil), idx...)
			bad[i] ^= 1 << bit
			put(bad, bin)
			d, err := Open(prefix)
			if err != nil {
				continue
			}
			// Only the type (int16 for uint16) or a document's start can pass.
			require.Contains(t, []DType{Uint16, Int16}, d.DType(), "byte %d bit %d", i, bit)
			require.EqualValues(t, 9, d.Tokens())
			d.Close()
		}
	}
	put([]byte("PAR1 something else entirely, longer than a header is"), bin)
	_, err = Open(prefix)
	require.ErrorContains(t, err, "does not start with MMIDIDX")
	_, err = Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A mapped file that shrinks under the reader is an error, not a crash.
func TestTruncatedWhileOpen(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "d")
	write(t, prefix, Int32, [][]int32{make([]int32, 1<<20)})
	d, err := Open(prefix)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, os.Truncate(prefix+".bin", 4096))
	err = d.Read(make([]int32, 10), 1<<20-10)
	require.ErrorContains(t, err, "truncated while in use")
}

func TestConcurrentReadersAndClose(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "d")
	write(t, prefix, Int32, [][]int32{{1, 2, 3, 4}})
	d, err := Open(prefix)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dst := make([]int32, 4)
			for d.Read(dst, 0) == nil {
				if dst[3] != 4 {
					panic(fmt.Sprint(dst))
				}
			}
		})
	}
	require.NoError(t, d.Close())
	wg.Wait()
}

func FuzzOpen(f *testing.F) {
	prefix := filepath.Join(f.TempDir(), "d")
	write(f, prefix, Uint16, [][]int32{{1, 2, 3}, {4}})
	idx, err := os.ReadFile(prefix + ".idx")
	require.NoError(f, err)
	f.Add(idx)
	f.Add(idx[:40])
	f.Fuzz(func(t *testing.T, idx []byte) {
		require.NoError(t, os.WriteFile(prefix+".idx", idx, 0o666))
		d, err := Open(prefix)
		if err != nil {
			return
		}
		defer d.Close()
		require.NoError(t, d.Read(make([]int32, d.Tokens()), 0))
		for i := range d.Documents() {
			_, _, err := d.Document(i)
			require.NoError(t, err)
		}
	})
}
