package mesh

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What makes one share of a torus better than another. Direction 0 is the cores.
func TestShare(t *testing.T) {
	open, closed := []bool{false, false, false, false}, []bool{false, true, true, true}
	for _, c := range []struct {
		why    string
		extent []int
		wraps  []bool
		taken  []int
		size   int
		want   []int
	}{
		{"cores reach each other fastest", []int{2, 2, 2, 1}, open, []int{1, 1, 1, 1}, 2, []int{2, 1, 1, 1}},
		{"a square has more links than a line", []int{1, 4, 4, 1}, open, []int{1, 1, 1, 1}, 4, []int{1, 2, 2, 1}},
		{"a ring and a line have more links than a ring", []int{1, 8, 8, 16}, closed, []int{1, 1, 1, 1}, 16, []int{1, 8, 2, 1}},
		{"a square is a ring of its own", []int{1, 16, 16, 1}, []bool{false, true, true, false}, []int{1, 1, 1, 1}, 4, []int{1, 2, 2, 1}},
		{"rings are not cut where a whole one has as many links", []int{1, 16, 16, 1}, []bool{false, true, true, false}, []int{1, 1, 1, 1}, 16, []int{1, 16, 1, 1}},
		{"a chip and its neighbour are closer than four chips", []int{2, 4, 4, 4}, closed, []int{1, 1, 1, 1}, 4, []int{2, 2, 1, 1}},
		{"cores and a whole ring", []int{2, 4, 8, 8}, closed, []int{1, 1, 1, 1}, 8, []int{2, 4, 1, 1}},
		{"two whole rings are better than one", []int{1, 4, 4, 16}, closed, []int{1, 1, 1, 1}, 16, []int{1, 4, 4, 1}},
		{"one ring is cut rather than two", []int{1, 4, 4, 4}, closed, []int{1, 1, 1, 1}, 8, []int{1, 4, 2, 1}},
		{"links are not shared with those between", []int{1, 4, 4, 1}, open, []int{1, 2, 1, 1}, 2, []int{1, 1, 2, 1}},
		{"a ring spans fewer directions than an equal square", []int{1, 2, 2, 4}, []bool{false, false, false, true}, []int{1, 1, 1, 1}, 4, []int{1, 1, 1, 4}},
		{"what is left is taken", []int{2, 4, 4, 4}, closed, []int{2, 4, 2, 1}, 8, []int{1, 1, 2, 4}},
		{"one device takes nothing", []int{2, 4, 4, 4}, closed, []int{1, 1, 1, 1}, 1, []int{1, 1, 1, 1}},
	} {
		tor := &torus{extent: c.extent, wraps: c.wraps}
		require.Equal(t, c.want, tor.share(c.size, c.taken), c.why)
	}
}

func TestWraparound(t *testing.T) {
	for _, c := range []struct {
		sides []int
		want  []bool
	}{
		{[]int{2, 4, 1}, []bool{false, false, false}},
		{[]int{8, 16, 1}, []bool{false, true, false}},
		{[]int{16, 16}, []bool{true, true}},
		{[]int{2, 4, 4}, []bool{false, false, false}},
		{[]int{4, 4, 4}, []bool{true, true, true}},
		{[]int{8, 8, 16}, []bool{true, true, true}},
	} {
		require.Equal(t, c.want, wraparound(append([]int{2}, c.sides...))[1:], "%v", c.sides)
	}
}

func TestWraps(t *testing.T) {
	for name, want := range map[string][3]bool{
		"tpu7x:4x4x4": {true, true, true}, "tpu7x:8x8x16": {true, true, true}, "tpu7x:2x4x4": {}, "tpu7x:2x2x1": {},
		"v5e:8x16": {false, true, false}, "v6e:16x16": {true, true, false}, "v5e:4x4": {},
	} {
		top, err := ParseTopology(name)
		require.NoError(t, err)
		require.Equal(t, want, top.Wraps(), name)
	}
}
