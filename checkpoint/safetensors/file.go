package safetensors

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"

	"titan/internal/nearest"
	"titan/sharding"
)

// File is an open safetensors file. It may be used from several goroutines.
type File struct {
	name   string
	h      *header
	byName map[string]int

	mu     sync.RWMutex // held for reading while bytes are touched
	src    io.ReaderAt
	data   []byte // the mapped file; nil if it is not mapped
	close  func() error
	closed bool
}

// Open opens a file and checks its header. The data is mapped into memory where
// the system can do so and read on demand; until Close the file must not be
// shortened.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	out, err := open(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return out, nil
}

func open(path string, f *os.File) (*File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("safetensors: %s is not a regular file", path)
	}
	out, err := New(path, f, st.Size())
	if err != nil {
		return nil, err
	}
	data, unmap, err := mapFile(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("safetensors: mapping %s: %w", path, err)
	}
	out.data = data
	out.close = func() error { return errors.Join(unmap(), f.Close()) }
	return out, nil
}

// New reads a file of size bytes through r, which must allow several calls at
// once. name stands in errors. Close does not close r.
func New(name string, r io.ReaderAt, size int64) (*File, error) {
	h, err := readHeader(name, r, size)
	if err != nil {
		return nil, err
	}
	f := &File{name: name, h: h, src: r, byName: make(map[string]int, len(h.tensors)), close: func() error { return nil }}
	for i, t := range h.tensors {
		f.byName[t.Name] = i
	}
	return f, nil
}

// Name returns the path or name the file was opened by.
func (f *File) Name() string { return f.name }

// Metadata returns the strings of the header's __metadata__; nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.h.metadata) }

// Tensors returns the tensors in the order of their bytes.
func (f *File) Tensors() []Info { return slices.Clone(f.h.tensors) }

// Entries returns the tensors in the order of their bytes.
func (f *File) Entries() []Entry {
	out := make([]Entry, len(f.h.tensors))
	for i, t := range f.h.tensors {
		out[i] = t.Entry
	}
	return out
}

// Tensor returns a tensor by name. The error names the nearest if there is none.
func (f *File) Tensor(name string) (Info, error) {
	i, ok := f.byName[name]
	if !ok {
		names := make([]string, len(f.h.tensors))
		for i, t := range f.h.tensors {
			names[i] = t.Name
		}
		return Info{}, missing(f.name, name, names)
	}
	return f.h.tensors[i], nil
}

func missing(where, name string, names []string) error {
	hint := ""
	if n := nearest.Name(name, names); n != "" {
		hint = fmt.Sprintf("; did you mean %q?", n)
	}
	return fmt.Errorf("safetensors: %s has no tensor %q%s", where, name, hint)
}

// Close gives the file back. It waits for reads under way; slices from Bytes
// are no longer valid.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed, f.data, f.src = true, nil, nil
	return f.close()
}

var errClosed = errors.New("the file is closed")

// Bytes returns the data of a tensor without copying, valid until Close and not
// to be written to. Where the file is not mapped it is a copy.
//
// Touching the bytes of a file that was shortened meanwhile, or sits on a failing
// disk, ends the process with SIGBUS; ReadRegion returns an error instead.
func (f *File) Bytes(name string) ([]byte, error) {
	t, err := f.Tensor(name)
	if err != nil {
		return nil, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return nil, fmt.Errorf("safetensors: %s: reading %q: %w", f.name, name, errClosed)
	case f.data != nil:
		return f.data[t.Offset : t.Offset+t.Size : t.Offset+t.Size], nil
	}
	out := make([]byte, t.Size)
	if err := f.readAt(out, t.Offset); err != nil {
		return nil, fmt.Errorf("safetensors: %s: reading %q: %w", f.name, name, err)
	}
	return out, nil
}

// ReadRegion fills dst with a region of a tensor, dense and row-major. It fails
// if the region is not inside the tensor, dst does not fit, or the file cannot
// be read any more.
func (f *File) ReadRegion(name string, r sharding.Region, dst []byte) error {
	t, err := f.Tensor(name)
	if err != nil {
		return err
	}
	if err := t.checkRegion(f.name, r, dst); err != nil {
		return err
	}
	if len(dst) == 0 {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		err = errClosed
	case f.data != nil:
		err = copyMapped(dst, r, f.data[t.Offset:t.Offset+t.Size], t.Entry)
	default:
		err = readRegion(f.readAt, t, r, dst)
	}
	if err != nil {
		return fmt.Errorf("safetensors: %s: reading %v of %q: %w", f.name, r, name, err)
	}
	return nil
}

// copyMapped copies out of mapped memory. A page that cannot be brought in is a
// memory fault; here it becomes an error.
func copyMapped(dst []byte, r sharding.Region, src []byte, e Entry) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			if _, ok := fault.(interface{ Addr() uintptr }); !ok {
				panic(fault)
			}
			err = errors.New("the file was shortened while it was open, or its disk failed")
		}
	}()
	return sharding.CopyRegion(dst, r, src, sharding.Whole(e.Shape), e.DType.Size())
}

// readAt is io.ReaderAt with every short read an error.
func (f *File) readAt(p []byte, off int64) error {
	n, err := f.src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("the file ends at byte %d; it was shortened while it was open", off+int64(n))
	}
	return err
}

// slabSize bounds what is read at once to pick a scattered region from, in
// bytes.
const slabSize = 4 << 20

// readRegion reads a region row by row, but neighbouring rows at once while
// they and the gaps between them are small.
func readRegion(read func([]byte, int64) error, t Info, r sharding.Region, dst []byte) error {
	elem := int64(t.DType.Size())
	return readSlab(read, t, sharding.Region{Offset: slices.Clone(r.Offset), Size: slices.Clone(r.Size)}, dst, elem, 0)
}

// readSlab reads r, whose dimensions before d have size 1.
func readSlab(read func([]byte, int64) error, t Info, r sharding.Region, dst []byte, elem int64, d int) error {
	if d == len(r.Size) {
		return read(dst, t.Offset+offsetOf(t.Shape, r.Offset)*elem)
	}
	// The slab: all of the dimensions after d.
	row := elem
	whole := true
	for i := d + 1; i < len(t.Shape); i++ {
		row *= int64(t.Shape[i])
		whole = whole && r.Size[i] == t.Shape[i]
	}
	first := slices.Clone(r.Offset)
	for i := d + 1; i < len(first); i++ {
		first[i] = 0
	}
	start := t.Offset + offsetOf(t.Shape, first)*elem
	if whole {
		return read(dst, start)
	}
	n := r.Size[d]
	step := int(min(int64(n), slabSize/row))
	part := len(dst) / n
	if step == 0 { // one row is large already: look inside
		for i := range n {
			sub := sharding.Region{Offset: slices.Clone(r.Offset), Size: slices.Clone(r.Size)}
			sub.Offset[d] += i
			sub.Size[d] = 1
			if err := readSlab(read, t, sub, dst[i*part:(i+1)*part], elem, d+1); err != nil {
				return err
			}
		}
		return nil
	}
	buf := make([]byte, int64(step)*row)
	for i := 0; i < n; i += step {
		k := min(step, n-i)
		slab := sharding.Region{Offset: slices.Clone(first), Size: slices.Clone(t.Shape)}
		want := sharding.Region{Offset: slices.Clone(r.Offset), Size: slices.Clone(r.Size)}
		for j := range d {
			slab.Offset[j], slab.Size[j] = r.Offset[j], 1
		}
		slab.Offset[d], slab.Size[d] = r.Offset[d]+i, k
		want.Offset[d], want.Size[d] = r.Offset[d]+i, k
		if err := read(buf[:int64(k)*row], start+int64(i)*row); err != nil {
			return err
		}
		if err := sharding.CopyRegion(dst[i*part:(i+k)*part], want, buf[:int64(k)*row], slab, int(elem)); err != nil {
			return err
		}
	}
	return nil
}

// offsetOf returns the number of elements before an index.
func offsetOf(shape, index []int) int64 {
	var n int64
	for d, i := range index {
		n = n*int64(shape[d]) + int64(i)
	}
	return n
}
