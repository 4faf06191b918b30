package safetensors

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"titan/sharding"
)

// DefaultChunk is a good number of bytes to ask a producer for at once.
const DefaultChunk = 8 << 20

// WriteFile writes a file that appears under its name whole or not at all: it is
// written beside it, synced, and renamed. read fills regions of the named
// tensor as for Writer.WriteFrom, of at most DefaultChunk bytes.
func WriteFile(path string, entries []Entry, metadata map[string]string, read func(name string, r sharding.Region, dst []byte) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	tmp := f.Name()
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(tmp)
		}
	}()
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if err := writeAll(f, entries, metadata, read); err != nil {
		return fmt.Errorf("%w (while writing %s)", err, path)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("safetensors: writing %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func writeAll(f *os.File, entries []Entry, metadata map[string]string, read func(string, sharding.Region, []byte) error) error {
	buf := bufio.NewWriterSize(f, 1<<20)
	w, err := NewWriter(buf, entries, metadata)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := w.WriteFrom(e.Name, DefaultChunk, func(r sharding.Region, dst []byte) error { return read(e.Name, r, dst) })
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return buf.Flush()
}
