package safetensors

import (
	"fmt"
	"io"
	"slices"

	"titan/sharding"
)

// Writer writes a file front to back: the header when it is made, then the bytes
// of every tensor in the order of the entries.
type Writer struct {
	w       io.Writer
	infos   []Info
	next    int   // the tensor being written
	written int64 // of its bytes
	err     error
}

// NewWriter writes the header. Entries are written in the order given; Sort
// puts them in the reference writer's. It refuses names used twice, empty
// names, invalid element types and shapes, and a header beyond 100 MB.
func NewWriter(w io.Writer, entries []Entry, metadata map[string]string) (*Writer, error) {
	raw, infos, err := encodeHeader(entries, metadata)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	out := &Writer{w: w, infos: infos}
	if err := writeFull(w, raw); err != nil {
		return nil, fmt.Errorf("safetensors: writing the header: %w", err)
	}
	out.skipEmpty()
	return out, nil
}

// FileSize returns the size of the file that NewWriter would write.
func FileSize(entries []Entry, metadata map[string]string) (int64, error) {
	raw, infos, err := encodeHeader(entries, metadata)
	if err != nil {
		return 0, fmt.Errorf("safetensors: %w", err)
	}
	if len(infos) == 0 {
		return int64(len(raw)), nil
	}
	last := infos[len(infos)-1]
	return last.Offset + last.Size, nil
}

// Tensors returns where each tensor stands in the file.
func (w *Writer) Tensors() []Info { return slices.Clone(w.infos) }

func (w *Writer) skipEmpty() {
	for w.next < len(w.infos) && w.written == w.infos[w.next].Size {
		w.next++
		w.written = 0
	}
}

// Write appends bytes of the current tensor. It may be called with parts of any
// length, but none that reaches into the next tensor.
func (w *Writer) Write(p []byte) (int, error) {
	switch {
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	case w.next == len(w.infos):
		w.err = fmt.Errorf("safetensors: %d bytes more than the tensors of the header need", len(p))
		return 0, w.err
	}
	t := w.infos[w.next]
	if int64(len(p)) > t.Size-w.written {
		w.err = fmt.Errorf("safetensors: tensor %q (%v%v) needs %d bytes, was given at least %d", t.Name, t.DType, t.Shape, t.Size, w.written+int64(len(p)))
		return 0, w.err
	}
	if err := writeFull(w.w, p); err != nil {
		w.err = fmt.Errorf("safetensors: writing tensor %q: %w", t.Name, err)
		return 0, w.err
	}
	w.written += int64(len(p))
	w.skipEmpty()
	return len(p), nil
}

// WriteFrom writes the whole of the tensor whose turn it is, which must be the
// named one. read is asked for one region after the other, in order, each of at
// most chunk bytes (at least one element) and contiguous in the tensor.
func (w *Writer) WriteFrom(name string, chunk int, read sharding.Reader) error {
	if w.err != nil {
		return w.err
	}
	i := slices.IndexFunc(w.infos, func(t Info) bool { return t.Name == name })
	switch {
	case i < 0:
		return missing("the header being written", name, names(w.infos))
	case w.infos[i].Size == 0:
		return nil
	case i != w.next || w.written != 0:
		w.err = fmt.Errorf("safetensors: tensor %q is written out of turn; %q stands at byte %d of %d", name, w.current(), w.written, w.currentSize())
		return w.err
	}
	t := w.infos[i]
	var buf []byte
	err := Slabs(t.Entry, chunk, func(r sharding.Region) error {
		n := r.Elements() * t.DType.Size()
		if len(buf) < n {
			buf = make([]byte, n)
		}
		if err := read(r, buf[:n]); err != nil {
			return fmt.Errorf("safetensors: region %v of tensor %q: %w", r, name, err)
		}
		_, err := w.Write(buf[:n])
		return err
	})
	if err != nil && w.err == nil {
		w.err = err
	}
	return err
}

func (w *Writer) current() string {
	if w.next == len(w.infos) {
		return "nothing"
	}
	return w.infos[w.next].Name
}

func (w *Writer) currentSize() int64 {
	if w.next == len(w.infos) {
		return 0
	}
	return w.infos[w.next].Size
}

// Close reports whether the file is complete. It does not close what is below.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.next < len(w.infos) {
		return fmt.Errorf("safetensors: the file is incomplete: tensor %q has %d of %d bytes, and %d tensors follow", w.current(), w.written, w.currentSize(), len(w.infos)-w.next-1)
	}
	return nil
}

func names(infos []Info) []string {
	out := make([]string, len(infos))
	for i, t := range infos {
		out[i] = t.Name
	}
	return out
}

// writeFull is Write where writing less than everything is an error, even for a
// writer that claims otherwise.
func writeFull(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	if err == nil && n != len(p) {
		return io.ErrShortWrite
	}
	return err
}

// Slabs calls f with regions that cover a tensor in order, each contiguous in
// row-major order and of at most chunk bytes, but at least one element. A
// tensor without elements has none.
func Slabs(e Entry, chunk int, f func(sharding.Region) error) error {
	if e.Bytes() == 0 {
		return nil
	}
	// d is the first dimension of which one index fits a chunk whole.
	row := e.DType.Size()
	d := len(e.Shape)
	for d > 0 && row*e.Shape[d-1] <= chunk {
		d--
		row *= e.Shape[d]
	}
	if d == 0 {
		return f(sharding.Whole(e.Shape))
	}
	d-- // dimension d is cut
	step := max(1, chunk/row)
	at := sharding.Whole(e.Shape)
	for i := range d + 1 {
		at.Size[i] = 1
	}
	for {
		r := sharding.Region{Offset: slices.Clone(at.Offset), Size: slices.Clone(at.Size)}
		r.Size[d] = min(step, e.Shape[d]-r.Offset[d])
		if err := f(r); err != nil {
			return err
		}
		at.Offset[d] += step
		i := d
		for ; at.Offset[i] >= e.Shape[i]; i-- {
			if i == 0 {
				return nil
			}
			at.Offset[i] = 0
			at.Offset[i-1]++
		}
	}
}
