package sharding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"titan/mesh"
)

// Validate reports the first reason why an array of this shape cannot be split
// over m as s says: an axis that m does not have, an axis used twice, more
// dimensions than the array has, or a dimension that does not divide evenly.
func (s Spec) Validate(m *mesh.Mesh, shape []int) error {
	if s.err != nil {
		return s.err
	}
	if m == nil {
		return errors.New("sharding: there is no mesh to split over")
	}
	if s.Rank() > len(shape) {
		return fmt.Errorf("sharding: %v names %d dimensions, the array of shape %v has %d", s, s.Rank(), shape, len(shape))
	}
	used := make(map[string]int)
	for i, size := range shape {
		if size < 0 {
			return fmt.Errorf("sharding: dimension %d of shape %v has a negative size", i, shape)
		}
		n := 1
		for _, a := range s.Dim(i) {
			if err := m.CheckAxis(a); err != nil {
				return fmt.Errorf("sharding: dimension %d of %v: %w", i, s, err)
			}
			if j, ok := used[a]; ok {
				return fmt.Errorf("sharding: axis %q splits dimension %d and again dimension %d in %v; an axis can be used once", a, j, i, s)
			}
			used[a] = i
			n *= m.AxisSize(a)
		}
		if size%n != 0 {
			return unevenError(i, size, n, s.Dim(i), m)
		}
	}
	return nil
}

// unevenError says that a dimension does not divide over n shards.
func unevenError(dim, size, n int, axes []string, m *mesh.Mesh) error {
	over := make([]string, len(axes))
	for i, a := range axes {
		over[i] = fmt.Sprintf("%s=%d", a, m.AxisSize(a))
	}
	sizes := fmt.Sprintf("the nearest size that does is %d", n)
	if size > n {
		sizes = fmt.Sprintf("the nearest sizes that do are %d and %d", size/n*n, size/n*n+n)
	}
	return fmt.Errorf("sharding: dimension %d of size %d does not divide over %s (%d shards); %s",
		dim, size, strings.Join(over, " × "), n, sizes)
}

// Shard returns the shape of one device's part of an array of this shape.
// Besides the errors of Validate it refuses an open dimension: only the
// compiler knows its split.
func (s Spec) Shard(m *mesh.Mesh, shape []int) ([]int, error) {
	if err := s.Validate(m, shape); err != nil {
		return nil, err
	}
	local := slices.Clone(shape)
	for i := range local {
		if s.IsOpen(i) {
			return nil, fmt.Errorf("sharding: dimension %d of %v is open; its split is known only to the compiler", i, s)
		}
		for _, a := range s.Dim(i) {
			local[i] /= m.AxisSize(a)
		}
	}
	return local, nil
}
