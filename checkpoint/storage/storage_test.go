package storage_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/checkpoint/storage/faultfs"
)

// Both implementations behave alike where a program can see it.
func TestSemantics(t *testing.T) {
	local, err := storage.Local(filepath.Join(t.TempDir(), "a", "b"))
	require.NoError(t, err)
	for name, f := range map[string]storage.FS{"local": local, "faultfs": faultfs.New()} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, f.Mkdir("d"))
			require.ErrorIs(t, f.Mkdir("d"), fs.ErrExist)
			require.ErrorIs(t, f.Mkdir("x/y"), fs.ErrNotExist)
			require.NoError(t, storage.WriteFile(f, "d/one", []byte("first")))
			_, err := f.Create("d/one")
			require.ErrorIs(t, err, fs.ErrExist)
			got, err := storage.ReadFile(f, "d/one", 100)
			require.NoError(t, err)
			require.Equal(t, "first", string(got))
			_, err = storage.ReadFile(f, "d/one", 4)
			require.ErrorContains(t, err, "5 bytes, more than the 4")
			_, err = f.Open("d")
			require.Error(t, err, "a directory is not an object")
			_, err = f.Open("d/none")
			require.ErrorIs(t, err, fs.ErrNotExist)

			require.NoError(t, storage.WriteFile(f, "d/two", []byte("second one")))
			require.NoError(t, f.Rename("d/one", "d/two"), "a file is replaced")
			require.ErrorIs(t, f.Rename("d/one", "d/three"), fs.ErrNotExist)
			list, err := f.ReadDir("d")
			require.NoError(t, err)
			require.Equal(t, []storage.Entry{{Name: "two", Size: 5}}, list)
			require.NoError(t, f.SyncDir("d"))
			require.Error(t, f.SyncDir("none"))
			require.Error(t, f.Remove("d"), "not empty")

			o, err := f.Open("d/two")
			require.NoError(t, err)
			require.EqualValues(t, 5, o.Size())
			require.ErrorIs(t, storage.ReadFull(o, make([]byte, 4), 3), io.ErrUnexpectedEOF)
			require.NoError(t, storage.ReadFull(o, make([]byte, 2), 3))
			require.NoError(t, o.Close())

			lock, err := f.Lock("lock")
			require.NoError(t, err)
			_, err = f.Lock("lock")
			require.ErrorIs(t, err, storage.ErrLocked)
			require.NoError(t, lock.Close())
			lock, err = f.Lock("lock")
			require.NoError(t, err)
			require.NoError(t, lock.Close())

			require.NoError(t, f.Mkdir("d/sub"))
			require.NoError(t, storage.WriteFile(f, "d/sub/x", nil))
			require.NoError(t, storage.RemoveAll(f, "d"))
			require.NoError(t, storage.RemoveAll(f, "d"))
			_, err = f.ReadDir("d")
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

func TestRemoveAllStopsAtLinks(t *testing.T) {
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "keep"), nil, 0o644))
	root := t.TempDir()
	f, err := storage.Local(root)
	require.NoError(t, err)
	require.NoError(t, f.Mkdir("d"))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "d", "link")))
	list, err := f.ReadDir("d")
	require.NoError(t, err)
	require.True(t, list[0].Dir, "links are followed for reading")
	require.NoError(t, storage.RemoveAll(f, "d"))
	_, err = os.Stat(filepath.Join(outside, "keep"))
	require.NoError(t, err)
}

func TestLocalRoot(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := storage.Local(file)
	require.ErrorContains(t, err, "is not a directory")
	_, err = storage.Local(filepath.Join(file, "sub"))
	require.Error(t, err)
	_, err = storage.ExistingLocal(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = os.Stat(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// The file system for tests loses what it may lose, and keeps what it must.
func TestFaultFSCrash(t *testing.T) {
	f := faultfs.New()
	require.NoError(t, storage.WriteFile(f, "synced", []byte("safe"))) // the content is safe, the name is not
	require.NoError(t, f.Mkdir("d"))
	require.NoError(t, f.SyncDir("."))
	require.NoError(t, storage.WriteFile(f, "unnamed", []byte("lost")))
	w, err := f.Create("d/torn")
	require.NoError(t, err)
	for range 4 {
		_, err = w.Write(make([]byte, 64))
		require.NoError(t, err)
	}
	require.NoError(t, f.SyncDir("d"))
	require.NoError(t, f.Rename("synced", "renamed"))

	seen := map[string]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		r := rng
		if i == 0 {
			r = nil
		}
		after := f.Crashed(r)
		names := map[string]bool{}
		list, err := after.ReadDir(".")
		require.NoError(t, err)
		for _, e := range list {
			names[e.Name] = true
			seen[e.Name] = true
		}
		require.True(t, names["d"])
		require.NotEqual(t, names["synced"], names["renamed"], "a rename is atomic")
		for _, n := range []string{"synced", "renamed", "unnamed"} {
			if names[n] {
				got, err := storage.ReadFile(after, n, 100)
				require.NoError(t, err)
				require.Contains(t, []string{"safe", "lost"}, string(got), "synced content is whole")
			}
		}
		o, err := after.Open("d/torn")
		require.NoError(t, err, "the name was synced")
		seen["whole"] = seen["whole"] || o.Size() == 256
		seen["empty"] = seen["empty"] || o.Size() == 0
		seen["part"] = seen["part"] || o.Size() != 0 && o.Size() != 256
	}
	for _, what := range []string{"synced", "renamed", "unnamed", "whole", "empty", "part"} {
		require.True(t, seen[what], what)
	}

	// After a kill everything is seen, and can still be lost.
	killed := f.Killed()
	_, err = killed.Open("renamed")
	require.NoError(t, err)
	_, err = killed.Crashed(nil).Open("renamed")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, killed.SyncDir("."))
	_, err = killed.Crashed(nil).Open("renamed")
	require.NoError(t, err)
}

func TestFaultFSFaults(t *testing.T) {
	f := faultfs.New()
	f.CrashAfter(2)
	w, err := f.Create("a")
	require.NoError(t, err)
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, faultfs.ErrCrashed)
	require.ErrorIs(t, w.Sync(), faultfs.ErrCrashed)
	require.ErrorIs(t, f.Mkdir("b"), faultfs.ErrCrashed)
	require.Equal(t, 2, f.Count())

	f = faultfs.New()
	f.SetFree(10)
	require.ErrorIs(t, storage.WriteFile(f, "a", make([]byte, 11)), syscall.ENOSPC)
	_, err = f.Open("a")
	require.ErrorIs(t, err, fs.ErrNotExist, "removed again")
	require.NoError(t, storage.WriteFile(f, "a", make([]byte, 10)), "its space is free again")

	f = faultfs.New()
	f.SetFault(func(op faultfs.Op) (int, error) {
		if op.Kind == "sync" {
			return 0, syscall.EIO
		}
		return op.Size, nil
	})
	w, err = f.Create("a")
	require.NoError(t, err)
	require.NoError(t, storage.Write(w, []byte("x")))
	require.ErrorIs(t, w.Sync(), syscall.EIO)
	f.SetFault(nil)
	require.NoError(t, w.Sync(), "the next sync succeeds")
	require.NoError(t, f.SyncDir("."))
	got, err := storage.ReadFile(f.Crashed(rand.New(rand.NewPCG(1, 1))), "a", 10)
	require.NoError(t, err)
	require.Empty(t, got, "what a failed sync lost stays lost")

	f.SetFault(func(op faultfs.Op) (int, error) { return op.Size / 2, nil })
	require.ErrorIs(t, storage.WriteFile(f, "b", []byte("1234")), io.ErrShortWrite)
	f.SetFault(func(op faultfs.Op) (int, error) { return 1, errors.New("odd") })
	require.ErrorContains(t, f.Mkdir("q"), "odd")
}

// A file is replaced whole, also where a killed process has left its next content.
func TestReplace(t *testing.T) {
	local, err := storage.Local(t.TempDir())
	require.NoError(t, err)
	for name, f := range map[string]storage.FS{"local": local, "faultfs": faultfs.New()} {
		t.Run(name, func(t *testing.T) {
			for _, content := range []string{"long content", "short"} {
				require.NoError(t, storage.Replace(f, "recipe.toml", []byte(content)))
				got, err := storage.ReadFile(f, "recipe.toml", 100)
				require.NoError(t, err)
				require.Equal(t, content, string(got))
				list, err := f.ReadDir(".")
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.NoError(t, storage.WriteFile(f, "recipe.toml.tmp", []byte("half")))
			}
		})
	}
}
