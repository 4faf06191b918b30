package compilecache

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	suffix     = ".exe"
	tempPrefix = ".new-"
	// tempAge is how old a temporary file is that a crash left behind.
	tempAge = time.Hour
)

func (c *Cache) file(key string) string { return filepath.Join(c.dir, key+suffix) }

// write puts a file in place, whole or not at all, and through to the disk. Where
// another process clears the folder meanwhile, temporary files and all, it
// writes once more.
func (c *Cache) write(path string, data []byte) (err error) {
	for range 10 {
		if err = c.writeOnce(path, data); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func (c *Cache) writeOnce(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Entry is a compiled program in the cache.
type Entry struct {
	Key      string
	Name     string // of the module; "" if the header is unreadable
	Platform string
	Created  time.Time
	Used     time.Time
	Bytes    int64 // of the file
}

// Entries lists the cache, what was used last first. A cache that is off or
// does not exist has none.
func (c *Cache) Entries() ([]Entry, error) {
	out, err := c.list()
	for i := range out {
		if h, err := readHeader(c.file(out[i].Key)); err == nil {
			out[i].Name, out[i].Platform, out[i].Created = h.Name, h.Platform, h.Created
		}
	}
	slices.Reverse(out)
	return out, err
}

// Clear removes all entries, and what crashes left behind, and returns how many
// there were and their size.
func (c *Cache) Clear() (n int, bytes int64, err error) {
	entries, err := c.list()
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		if err := os.Remove(c.file(e.Key)); err == nil {
			n++
			bytes += e.Bytes
		} else if !errors.Is(err, fs.ErrNotExist) {
			return n, bytes, err
		}
	}
	return n, bytes, c.sweep(0)
}

// list gives the entries without their headers, what was used longest ago first.
func (c *Cache) list() ([]Entry, error) {
	if c.dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, f := range files {
		key, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok || !f.Type().IsRegular() {
			continue
		}
		st, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) { // another process removed it
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Entry{Key: key, Used: st.ModTime(), Bytes: st.Size()})
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Key, b.Key))
	})
	return out, nil
}

func readHeader(path string) (header, error) {
	f, err := os.Open(path)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(headerAt+maxHeader)))
	if err != nil {
		return header{}, err
	}
	h, _, err := decodeHeader(data)
	return h, err
}

// evict removes what was used longest ago until the rest fits; never the entry
// of the given key.
func (c *Cache) evict(keep string) error {
	entries, err := c.list()
	if err != nil {
		return err
	}
	total := int64(0)
	for _, e := range entries {
		total += e.Bytes
	}
	for _, e := range entries {
		if total <= c.MaxBytes {
			break
		}
		if e.Key == keep {
			continue
		}
		if err := os.Remove(c.file(e.Key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= e.Bytes
	}
	return c.sweep(tempAge)
}

// sweep removes temporary files older than age: a process that was killed while
// writing left them.
func (c *Cache) sweep(age time.Duration) error {
	for _, dir := range []string{c.dir, filepath.Join(c.dir, "plugins")} {
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, f := range files {
			if !strings.HasPrefix(f.Name(), tempPrefix) {
				continue
			}
			if st, err := f.Info(); err == nil && time.Since(st.ModTime()) >= age {
				if err := os.Remove(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	return nil
}
