package sharding

import (
	"fmt"
	"slices"
	"strings"
)

// Region is a box of elements of an array: in dimension d the indices
// Offset[d] ≤ i < Offset[d]+Size[d].
type Region struct {
	Offset, Size []int
}

// Whole returns the region of an entire array of this shape.
func Whole(shape []int) Region {
	return Region{Offset: make([]int, len(shape)), Size: slices.Clone(shape)}
}

// Elements returns the number of elements of the region; 1 for a scalar.
func (r Region) Elements() int {
	n := 1
	for _, s := range r.Size {
		n *= s
	}
	return n
}

// Equal reports whether both regions are the same box.
func (r Region) Equal(o Region) bool {
	return slices.Equal(r.Offset, o.Offset) && slices.Equal(r.Size, o.Size)
}

// Intersect returns the elements common to two regions of the same rank, and
// false if there are none.
func (r Region) Intersect(o Region) (Region, bool) {
	if len(r.Size) != len(o.Size) {
		return Region{}, false
	}
	out := Region{Offset: make([]int, len(r.Size)), Size: make([]int, len(r.Size))}
	for d := range r.Size {
		low := max(r.Offset[d], o.Offset[d])
		high := min(r.Offset[d]+r.Size[d], o.Offset[d]+o.Size[d])
		if high <= low {
			return Region{}, false
		}
		out.Offset[d], out.Size[d] = low, high-low
	}
	return out, true
}

// String returns the region as index ranges, "[0:4, 8:16]".
func (r Region) String() string {
	s := make([]string, len(r.Size))
	for d := range s {
		s[d] = fmt.Sprintf("%d:%d", r.Offset[d], r.Offset[d]+r.Size[d])
	}
	return "[" + strings.Join(s, ", ") + "]"
}

// check reports a malformed region or a buffer that does not fit it.
func (r Region) check(what string, buf []byte, elemSize int) error {
	if len(r.Offset) != len(r.Size) {
		return fmt.Errorf("sharding: the %s region has %d offsets and %d sizes", what, len(r.Offset), len(r.Size))
	}
	for d, s := range r.Size {
		if s < 0 {
			return fmt.Errorf("sharding: the %s region %v has size %d in dimension %d", what, r, s, d)
		}
	}
	n, err := elements(r.Size)
	if err != nil {
		return err
	}
	if len(buf) != n*elemSize {
		return fmt.Errorf("sharding: the %s buffer has %d bytes, its region %v of %d-byte elements needs %d", what, len(buf), r, elemSize, n*elemSize)
	}
	return nil
}

// CopyRegion copies the elements common to two regions of one array from src to
// dst. Each buffer holds its own region densely, row-major, elemSize bytes an
// element; the rest of dst is left alone. Nothing in common is no error.
func CopyRegion(dst []byte, dstRegion Region, src []byte, srcRegion Region, elemSize int) error {
	if err := checkElemSize(elemSize); err != nil {
		return err
	}
	if err := dstRegion.check("destination", dst, elemSize); err != nil {
		return err
	}
	if err := srcRegion.check("source", src, elemSize); err != nil {
		return err
	}
	if len(dstRegion.Size) != len(srcRegion.Size) {
		return fmt.Errorf("sharding: the destination region %v and the source region %v are of different rank", dstRegion, srcRegion)
	}
	if common, ok := dstRegion.Intersect(srcRegion); ok {
		copyCommon(dst, dstRegion, src, srcRegion, common, elemSize)
	}
	return nil
}
