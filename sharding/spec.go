// Package sharding says how arrays are split over a mesh, and moves data
// between a global array and its shards.
//
//	s := sharding.P("dp_shard", nil, []string{"tp", "cp"})
//	if err := s.Validate(m, []int{64, 10, 256}); err != nil { … }
//	local, err := s.Shard(m, []int{64, 10, 256})
//
// Splits are even: a dimension that does not divide over its axes is refused
// with the sizes. A device holds one contiguous block of every array, and
// devices that differ only along axes a spec does not use hold the same one.
package sharding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Spec says over which mesh axes each dimension of an array is split.
// Dimensions beyond Dims are not split. The zero Spec is a replicated array of
// any rank.
type Spec struct {
	// Dims holds the axes of each dimension, major to minor; none means the
	// dimension is not split.
	Dims [][]string
	// Open marks dimensions that the compiler may split (further) as it likes.
	// It may be shorter than Dims.
	Open []bool

	err error // what P could not read, reported by Validate
}

type anyDim int

type openDim struct{ axes []string }

// Any is a dimension whose split is left to the compiler.
const Any anyDim = 0

// OpenAfter is a dimension split over the given axes, major to minor, that the
// compiler may split further.
func OpenAfter(axes ...string) any { return openDim{slices.Clone(axes)} }

// P returns a spec with one argument for each dimension: nil (not split), a
// string (one axis), a []string (several axes, major to minor), Any, or what
// OpenAfter returns. An argument of another type is remembered, and reported
// by Validate.
func P(dims ...any) Spec {
	s := Spec{Dims: make([][]string, len(dims)), Open: make([]bool, len(dims))}
	for i, d := range dims {
		switch d := d.(type) {
		case nil:
		case string:
			s.Dims[i] = []string{d}
		case []string:
			s.Dims[i] = slices.Clone(d)
		case anyDim:
			s.Open[i] = true
		case openDim:
			s.Dims[i], s.Open[i] = d.axes, true
		default:
			if s.err == nil {
				s.err = fmt.Errorf("sharding: dimension %d of a spec is a %T; it must be nil, a string, a []string or sharding.Any", i, d)
			}
		}
	}
	return s
}

// Replicated returns the spec of an array of the given rank that every device
// holds whole.
func Replicated(rank int) Spec {
	return Spec{Dims: make([][]string, max(rank, 0)), Open: make([]bool, max(rank, 0))}
}

// Rank returns the number of dimensions the spec mentions.
func (s Spec) Rank() int { return max(len(s.Dims), len(s.Open)) }

// Dim returns the axes that dimension i is split over, major to minor; none
// beyond the dimensions mentioned. The result is part of the spec: do not write
// to it.
func (s Spec) Dim(i int) []string {
	if i < 0 || i >= len(s.Dims) {
		return nil
	}
	return s.Dims[i]
}

// IsOpen reports whether the split of dimension i is left to the compiler.
func (s Spec) IsOpen(i int) bool { return i >= 0 && i < len(s.Open) && s.Open[i] }

// Without returns the spec with some axes taken away: what is left of the
// split once an array is gathered over them.
func (s Spec) Without(axes ...string) Spec {
	out := Spec{Dims: make([][]string, len(s.Dims)), Open: slices.Clone(s.Open), err: s.err}
	for i, d := range s.Dims {
		for _, a := range d {
			if !slices.Contains(axes, a) {
				out.Dims[i] = append(out.Dims[i], a)
			}
		}
	}
	return out
}

// Axes returns the axes in use, in the order of the dimensions.
func (s Spec) Axes() []string {
	var axes []string
	for _, d := range s.Dims {
		axes = append(axes, d...)
	}
	return axes
}

// Equal reports whether both specs split every dimension alike. Trailing
// dimensions that are not split make no difference.
func (s Spec) Equal(o Spec) bool {
	if s.err != nil || o.err != nil {
		return false
	}
	for i := range max(s.Rank(), o.Rank()) {
		if !slices.Equal(s.Dim(i), o.Dim(i)) || s.IsOpen(i) != o.IsOpen(i) {
			return false
		}
	}
	return true
}

// String returns the spec as P would be called, several axes in parentheses:
// P("dp_shard", nil, ("tp", "cp"), ?).
func (s Spec) String() string {
	parts := make([]string, s.Rank())
	for i := range parts {
		axes := make([]string, 0, len(s.Dim(i))+1)
		for _, a := range s.Dim(i) {
			axes = append(axes, strconv.Quote(a))
		}
		if s.IsOpen(i) {
			axes = append(axes, "?")
		}
		switch len(axes) {
		case 0:
			parts[i] = "nil"
		case 1:
			parts[i] = axes[0]
		default:
			parts[i] = "(" + strings.Join(axes, ", ") + ")"
		}
	}
	return "P(" + strings.Join(parts, ", ") + ")"
}

// Shardy returns the spec of an array of the given rank as the body of a
// Shardy attribute: <@mesh, [{"dp"}, {}, {?}]>.
func (s Spec) Shardy(meshName string, rank int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<@%s, [", meshName)
	for i := range max(rank, s.Rank()) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('{')
		for k, a := range s.Dim(i) {
			if k > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Quote(a))
		}
		if s.IsOpen(i) {
			if len(s.Dim(i)) > 0 {
				b.WriteString(", ")
			}
			b.WriteByte('?')
		}
		b.WriteByte('}')
	}
	b.WriteString("]>")
	return b.String()
}
