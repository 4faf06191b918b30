// Package wholefile writes files that appear under their names when they are
// complete.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file by renaming a finished one, in the same folder, onto it: what
// was there before stays if that fails. A path that is no regular file, such as
// /dev/stdout or a pipe, is written to as it is, and one that is a link to a file keeps
// being one.
func Write(path string, data []byte) (err error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // is made
	case err != nil:
		return err
	case st.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case !st.Mode().IsRegular():
		return os.WriteFile(path, data, 0o644)
	default:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".titan-*.tmp")
	if err != nil {
		return named(path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = named(path, err)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil // the file is there; only whether its name outlives a power cut is open
	}
	_ = d.Sync() // likewise
	return d.Close()
}

// named says err of path, not of the temporary file that stands for it.
func named(path string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
