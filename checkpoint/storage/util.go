package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// Write writes p whole; writing less than everything is an error even where a
// writer claims success.
func Write(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	if err == nil && n != len(p) {
		return io.ErrShortWrite
	}
	return err
}

// WriteFile makes a file with this content, and syncs it. Nothing is left of it
// if that fails, unless removing fails too.
func WriteFile(f FS, name string, content []byte) error {
	w, err := f.Create(name)
	if err != nil {
		return err
	}
	if err = Write(w, content); err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		f.Remove(name)
		return fmt.Errorf("writing %s: %w", f.Path(name), err)
	}
	return nil
}

// Replace writes a file whole or not at all, and syncs it. A reader sees the content before or the new one. One process at a time may
// replace a name.
func Replace(f FS, name string, content []byte) error {
	tmp := name + ".tmp"
	if err := RemoveAll(f, tmp); err != nil { // of a process that was killed
		return err
	}
	if err := WriteFile(f, tmp, content); err != nil {
		return err
	}
	if err := f.Rename(tmp, name); err != nil {
		return errors.Join(err, f.Remove(tmp))
	}
	return nil
}

// ReadFile returns the content of a file of at most limit bytes.
func ReadFile(f FS, name string, limit int64) ([]byte, error) {
	o, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if o.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d expected at most", f.Path(name), o.Size(), limit)
	}
	out := make([]byte, o.Size())
	if err := ReadFull(o, out, 0); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Path(name), err)
	}
	return out, nil
}

// ReadFull is ReadAt where reading less than everything is an error.
func ReadFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("the file ends at byte %d: %w", off+int64(n), io.ErrUnexpectedEOF)
	}
	return err
}

// RemoveAll removes a file or a directory with all it holds, but nothing behind
// a symbolic link. It is no error if there is none. It stops at the first
// failure.
func RemoveAll(f FS, name string) error {
	err := f.Remove(name) // all there is to do for a file, a link or an empty directory
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	list, listErr := f.ReadDir(name)
	if listErr != nil {
		return err
	}
	for _, e := range list {
		if err := RemoveAll(f, path.Join(name, e.Name)); err != nil {
			return err
		}
	}
	if err := f.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
