package checkpoint

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"titan/checkpoint/safetensors"
	"titan/checkpoint/storage"
)

// Verify reads all of the checkpoint of a step, or Latest, and compares it with
// its checksums, and the headers of its files with the manifest. It returns what
// it found at the step, and the first fault as a RefusedError.
func (f *Folder) Verify(ctx context.Context, step int) (int, error) {
	list, err := f.candidates(step)
	if err != nil {
		return step, err
	}
	c, err := f.open(list[0])
	if err != nil {
		return list[0].Step, err
	}
	defer c.Close()
	return c.Step(), c.Verify(ctx)
}

// Verify reads everything and compares it with its checksums, and the headers of
// the files with the manifest.
func (c *Checkpoint) Verify(ctx context.Context) error {
	var tasks []chunkTask
	for i, f := range c.m.Files {
		for k := range f.chunks(c.m.ChunkSize) {
			tasks = append(tasks, chunkTask{file: i, chunk: k})
		}
	}
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	err := parallel(ctx, len(tasks), runtime.GOMAXPROCS(0)+2, func(_ context.Context, i int) error {
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		return c.readChunk(tasks[i], buf)
	})
	if err != nil {
		return err
	}
	for i := range c.m.Files {
		if err := c.verifyHeader(i); err != nil {
			return err
		}
	}
	return nil
}

// verifyHeader compares the header of a file with what the manifest says of it,
// so that other programs read from it what we do.
func (c *Checkpoint) verifyHeader(i int) error {
	f, err := c.file(i)
	if err != nil {
		return err
	}
	name := c.m.Files[i].Name
	refuse := func(reason string, err error) error {
		return &RefusedError{Path: c.path, Status: Damaged, File: name, Reason: reason, Err: err}
	}
	st, err := safetensors.New(name, storageReader{f}, f.Size())
	if err != nil {
		return refuse("its header", err)
	}
	defer st.Close()
	want := map[string]safetensors.Info{}
	for _, t := range c.m.Tensors {
		for _, p := range t.Pieces {
			if p.File != i {
				continue
			}
			e := safetensors.Entry{Name: entryName(Tensor{Name: t.Name, Shape: t.Shape}, p.region()), DType: t.dtype, Shape: p.Size}
			want[e.Name] = safetensors.Info{Entry: e, Offset: p.Offset, Size: e.Bytes()}
		}
	}
	has := st.Tensors()
	if len(has) != len(want) {
		return refuse(fmt.Sprintf("it has %d tensors, the manifest lists %d", len(has), len(want)), nil)
	}
	for _, h := range has {
		w, ok := want[h.Name]
		if !ok || w.DType != h.DType || w.Offset != h.Offset && w.Size > 0 || fmt.Sprint(w.Shape) != fmt.Sprint(h.Shape) {
			return refuse(fmt.Sprintf("its header places %q elsewhere than the manifest does", h.Name), nil)
		}
	}
	return nil
}

// storageReader turns a short read into an error, as io.ReaderAt wants.
type storageReader struct{ o storage.Object }

func (r storageReader) ReadAt(p []byte, off int64) (int, error) {
	if err := storage.ReadFull(r.o, p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}
