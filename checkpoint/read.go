package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"titan/checkpoint/safetensors"
	"titan/checkpoint/storage"
	"titan/internal/nearest"
	"titan/sharding"
)

// Checkpoint is a complete checkpoint being read. It may be used from several
// goroutines. Whatever is read has its checksums verified; a mismatch is a
// RefusedError.
type Checkpoint struct {
	fs     storage.FS
	dir    string
	path   string
	m      *Manifest
	byName map[string]int

	mu     sync.Mutex
	files  []storage.Object // nil until needed
	closed bool
}

func newCheckpoint(fsys storage.FS, l Listed) *Checkpoint {
	c := &Checkpoint{fs: fsys, dir: l.dir, path: l.Path, m: l.Manifest, byName: map[string]int{}, files: make([]storage.Object, len(l.Manifest.Files))}
	for i, t := range c.m.Tensors {
		c.byName[t.Name] = i
	}
	return c
}

// Step returns the step that was saved.
func (c *Checkpoint) Step() int { return c.m.Step }

// Path returns where the checkpoint is, for users.
func (c *Checkpoint) Path() string { return c.path }

// Manifest returns the manifest, which is not to be changed.
func (c *Checkpoint) Manifest() *Manifest { return c.m }

// Entries returns the tensors with their whole shapes.
func (c *Checkpoint) Entries() []safetensors.Entry {
	out := make([]safetensors.Entry, len(c.m.Tensors))
	for i, t := range c.m.Tensors {
		out[i] = safetensors.Entry{Name: t.Name, DType: t.dtype, Shape: slices.Clone(t.Shape)}
	}
	return out
}

// State decodes a value of the saved state into v.
func (c *Checkpoint) State(name string, v any) error {
	raw, ok := c.m.State[name]
	if !ok {
		return fmt.Errorf("checkpoint: %s has no state %q%s", c.path, name, nearest.Hint(name, slices.Sorted(maps.Keys(c.m.State))))
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("checkpoint: %s: state %q: %w", c.path, name, err)
	}
	return nil
}

// Close closes the files.
func (c *Checkpoint) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for i, f := range c.files {
		if f != nil {
			errs = append(errs, f.Close())
			c.files[i] = nil
		}
	}
	return errors.Join(errs...)
}

// Want asks for a region of a tensor.
type Want struct {
	Tensor string
	Region sharding.Region
	Dst    []byte // dense, row-major, of the size of the region
}

// ReadRegion fills dst with a region of a tensor.
func (c *Checkpoint) ReadRegion(name string, r sharding.Region, dst []byte) error {
	return c.Read(context.Background(), []Want{{name, r, dst}})
}

// Read fills the buffers of all wants. Every chunk of a file that holds something
// wanted is read once, verified, and its bytes given to all that want them; chunks
// are read in parallel. If Read fails the buffers hold nothing of use.
func (c *Checkpoint) Read(ctx context.Context, wants []Want) error {
	byFile := make([][]*scatter, len(c.m.Files))
	for _, w := range wants {
		t, err := c.tensor(w.Tensor)
		if err != nil {
			return err
		}
		if err := w.check(t); err != nil {
			return fmt.Errorf("checkpoint: %s: %w", c.path, err)
		}
		t.overlapping(w.Region, func(p Piece) {
			if s, ok := newScatter(w.Dst, w.Region, p.region(), p.Offset, t.dtype.Size()); ok {
				byFile[p.File] = append(byFile[p.File], s)
			}
		})
	}
	var tasks []chunkTask
	for i, jobs := range byFile {
		tasks = append(tasks, c.chunkTasks(i, jobs)...)
	}
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	return parallel(ctx, len(tasks), runtime.GOMAXPROCS(0)+2, func(ctx context.Context, i int) error {
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		return c.readChunk(tasks[i], buf)
	})
}

func (w Want) check(t *TensorInfo) error {
	if len(w.Region.Offset) != len(t.Shape) || len(w.Region.Size) != len(t.Shape) {
		return fmt.Errorf("tensor %q of shape %v has no region %v: the ranks differ", t.Name, t.Shape, w.Region)
	}
	for d, s := range t.Shape {
		if o, n := w.Region.Offset[d], w.Region.Size[d]; o < 0 || n < 0 || n > s || o > s-n {
			return fmt.Errorf("region %v reaches outside tensor %q of shape %v", w.Region, t.Name, t.Shape)
		}
	}
	if want := w.Region.Elements() * t.dtype.Size(); len(w.Dst) != want {
		return fmt.Errorf("region %v of tensor %q is %d bytes, the buffer has %d", w.Region, t.Name, want, len(w.Dst))
	}
	return nil
}

func (c *Checkpoint) tensor(name string) (*TensorInfo, error) {
	i, ok := c.byName[name]
	if !ok {
		return nil, fmt.Errorf("checkpoint: %s has no tensor %q%s", c.path, name, nearestHint(name, c.byName))
	}
	return &c.m.Tensors[i], nil
}

func nearestHint(name string, known map[string]int) string {
	if n := nearest.Name(name, slices.Sorted(maps.Keys(known))); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// chunkTask is one chunk of a file with all that need bytes of it.
type chunkTask struct {
	file  int
	chunk int64
	jobs  []*scatter
}

// chunkTasks lists the chunks of a file that the jobs touch.
func (c *Checkpoint) chunkTasks(file int, jobs []*scatter) []chunkTask {
	byChunk := map[int64][]*scatter{}
	for _, s := range jobs {
		for k := s.from / c.m.ChunkSize; k*c.m.ChunkSize < s.to; k++ {
			if s.touches(k*c.m.ChunkSize, (k+1)*c.m.ChunkSize) {
				byChunk[k] = append(byChunk[k], s)
			}
		}
	}
	var out []chunkTask
	for _, k := range slices.Sorted(maps.Keys(byChunk)) {
		out = append(out, chunkTask{file, k, byChunk[k]})
	}
	return out
}

// readChunk reads and verifies a chunk and hands its bytes out.
func (c *Checkpoint) readChunk(t chunkTask, buf *[]byte) error {
	f, err := c.file(t.file)
	if err != nil {
		return err
	}
	info := c.m.Files[t.file]
	from := t.chunk * c.m.ChunkSize
	to := min(from+c.m.ChunkSize, info.Size)
	var data []byte
	direct := false
	if len(t.jobs) == 1 {
		data, direct = t.jobs[0].direct(from, to)
	}
	if !direct {
		if int64(cap(*buf)) < to-from {
			*buf = make([]byte, c.m.ChunkSize)
		}
		data = (*buf)[:to-from]
	}
	if err := storage.ReadFull(f, data, from); err != nil {
		return c.damaged(t.file, from, to, "cannot be read", err)
	}
	if crc32.Checksum(data, castagnoli) != info.crc(t.chunk) {
		return c.damaged(t.file, from, to, "are not what was written: their checksum differs", nil)
	}
	if !direct {
		for _, s := range t.jobs {
			s.copy(data, from)
		}
	}
	return nil
}

// damaged names a range of a file and the tensors that have bytes there.
func (c *Checkpoint) damaged(file int, from, to int64, what string, err error) error {
	var names []string
	for _, t := range c.m.Tensors {
		for _, p := range t.Pieces {
			end := p.Offset + int64(p.region().Elements())*int64(t.dtype.Size())
			if p.File == file && p.Offset < to && from < end && p.Offset < end {
				names = append(names, t.Name)
				break
			}
		}
	}
	of := "its header"
	if len(names) > 4 {
		of = strings.Join(names[:4], ", ") + fmt.Sprintf(" and %d more", len(names)-4)
	} else if len(names) > 0 {
		of = strings.Join(names, ", ")
	}
	return &RefusedError{
		Path: c.path, Status: Damaged, File: c.m.Files[file].Name, Err: err,
		Reason: fmt.Sprintf("bytes %d to %d (%s) %s", from, to, of, what),
	}
}

// file opens a file of the checkpoint once.
func (c *Checkpoint) file(i int) (storage.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("checkpoint: %s: it is closed", c.path)
	}
	if c.files[i] != nil {
		return c.files[i], nil
	}
	name := c.m.Files[i].Name
	f, err := c.fs.Open(path.Join(c.dir, name))
	if err != nil {
		reason := "it cannot be opened"
		if errors.Is(err, fs.ErrNotExist) {
			reason = "the file is missing; has the checkpoint been removed meanwhile?"
		}
		return nil, &RefusedError{Path: c.path, Status: Damaged, File: name, Reason: reason, Err: err}
	}
	if f.Size() != c.m.Files[i].Size {
		f.Close()
		return nil, &RefusedError{Path: c.path, Status: Damaged, File: name, Reason: fmt.Sprintf("it has %d bytes instead of %d", f.Size(), c.m.Files[i].Size)}
	}
	c.files[i] = f
	return f, nil
}
