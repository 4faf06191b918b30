// Package safetensors reads and writes the safetensors format: a JSON header
// that names tensors, and their bytes back to back.
//
//	set, err := safetensors.OpenModel("Qwen3-0.6B") // one file, or many with an index
//	defer set.Close()
//	err = set.ReadRegion("model.norm.weight", region, dst)
//
// Reading maps files into memory and touches only what is asked for. Writing
// streams: the header is known in advance, and the bytes of each tensor come
// from a function that fills one region after the other, so that no tensor is
// ever held whole.
//
// Nothing in a file is believed: offsets that overlap, leave holes or point
// outside, unknown element types, duplicate names, truncated files and
// oversized headers are refused with the file and the tensor.
//
// Format: https://github.com/huggingface/safetensors#format. Values are
// little-endian and row-major.
package safetensors

import (
	"fmt"
	"slices"
	"strings"

	"titan/dtype"
	"titan/sharding"
)

// Entry is what a header says of a tensor besides its place.
type Entry struct {
	Name  string
	DType dtype.DType
	Shape []int // empty for a scalar
}

// Info is an entry with the place of its bytes.
type Info struct {
	Entry
	Offset int64 // from the start of the file
	Size   int64 // in bytes
}

// Source gives out the bytes of named tensors by region. Files, sets of files,
// and views that rename or rearrange tensors are sources.
type Source interface {
	// Entries returns every tensor.
	Entries() []Entry
	// ReadRegion fills dst with a region of a tensor, dense and row-major. It
	// may be called from several goroutines.
	ReadRegion(name string, r sharding.Region, dst []byte) error
}

// FormatError says why a file is not what its header, or an index, claims.
type FormatError struct {
	File   string
	Tensor string // empty if the fault is not that of one tensor
	Reason string
}

// Error names the file, the tensor if there is one, and the fault.
func (e *FormatError) Error() string {
	if e.Tensor == "" {
		return fmt.Sprintf("safetensors: %s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("safetensors: %s: tensor %q: %s", e.File, e.Tensor, e.Reason)
}

// byteSize returns the bytes of a tensor, and false if a dimension is negative
// or the product overflows.
func byteSize(d dtype.DType, shape []int) (int64, bool) {
	n := int64(d.Size())
	for _, s := range shape {
		if s < 0 {
			return 0, false
		}
		if s == 0 {
			n = 0
		}
	}
	if n == 0 {
		return 0, d.Valid()
	}
	for _, s := range shape {
		if int64(s) > maxBytes/n {
			return 0, false
		}
		n *= int64(s)
	}
	return n, true
}

// maxBytes bounds sizes and offsets so that sums of two cannot overflow.
const maxBytes = 1 << 62

// Bytes returns the size of the tensor's data.
func (e Entry) Bytes() int64 {
	n, _ := byteSize(e.DType, e.Shape)
	return n
}

// checkRegion reports a region that does not lie in the tensor or a buffer that
// does not fit the region.
func (e Entry) checkRegion(file string, r sharding.Region, dst []byte) error {
	if len(r.Offset) != len(e.Shape) || len(r.Size) != len(e.Shape) {
		return fmt.Errorf("safetensors: %s: tensor %q of shape %v has no region %v: the ranks differ", file, e.Name, e.Shape, r)
	}
	for d, s := range e.Shape {
		if r.Offset[d] < 0 || r.Size[d] < 0 || r.Size[d] > s || r.Offset[d] > s-r.Size[d] {
			return fmt.Errorf("safetensors: %s: region %v reaches outside tensor %q of shape %v", file, r, e.Name, e.Shape)
		}
	}
	if want := r.Elements() * e.DType.Size(); len(dst) != want {
		return fmt.Errorf("safetensors: %s: region %v of tensor %q (%v) is %d bytes, the buffer has %d", file, r, e.Name, e.DType, want, len(dst))
	}
	return nil
}

// order ranks element types as the reference writer does: it writes them from
// the last to the first, so that every tensor starts at a multiple of its
// element size.
var order = [...]dtype.DType{
	dtype.Bool, dtype.U8, dtype.S8, dtype.F8E5M2, dtype.F8E4M3, dtype.S16, dtype.U16, dtype.F16, dtype.BF16,
	dtype.S32, dtype.U32, dtype.F32, dtype.F64, dtype.S64, dtype.U64,
}

// Sort puts entries in the order the reference writer uses: by element type,
// wide ones first, then by name.
func Sort(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if c := slices.Index(order[:], b.DType) - slices.Index(order[:], a.DType); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}
