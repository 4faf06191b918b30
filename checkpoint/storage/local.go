package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// local is a directory tree of the operating system.
type local struct{ root string }

// Local returns the storage under a directory, which is made with its parents
// if it does not exist.
func Local(dir string) (FS, error) {
	if err := makeDurable(filepath.Clean(dir)); err != nil {
		return nil, err
	}
	return local{dir}, nil
}

// ExistingLocal returns the storage under a directory that must exist.
func ExistingLocal(dir string) (FS, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	return local{dir}, nil
}

// makeDurable is os.MkdirAll that syncs the parents of what it makes.
func makeDurable(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is not a directory", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDurable(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func (l local) Path(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }

func (l local) Mkdir(name string) error { return os.Mkdir(l.Path(name), 0o755) }

func (l local) Create(name string) (File, error) {
	f, err := os.OpenFile(l.Path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return f, nil
}

type object struct {
	*os.File
	size int64
}

func (o object) Size() int64 { return o.size }

func (l local) Open(name string) (Object, error) {
	f, err := os.Open(l.Path(name))
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: l.Path(name), Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return object{f, st.Size()}, nil
}

func (l local) ReadDir(name string) ([]Entry, error) {
	list, err := os.ReadDir(l.Path(name))
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(list))
	for _, e := range list {
		if e.IsDir() { // known without another look, by when it may be gone
			out = append(out, Entry{Name: e.Name(), Dir: true})
			continue
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			if target, err := os.Stat(filepath.Join(l.Path(name), e.Name())); err == nil {
				st = target
			}
		}
		out = append(out, Entry{e.Name(), st.IsDir(), st.Size()})
	}
	return out, nil
}

func (l local) Rename(from, to string) error { return os.Rename(l.Path(from), l.Path(to)) }

func (l local) Remove(name string) error { return os.Remove(l.Path(name)) }

func (l local) SyncDir(name string) error { return syncDir(l.Path(name)) }

func (l local) Lock(name string) (io.Closer, error) { return lockFile(l.Path(name)) }
