package mesh

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Slices are cut from a pod in fixed shapes. On a two-dimensional torus these
// are shapes2D. On a three-dimensional one they are small shapes inside one
// cube of 4×4×4 chips, or whole cubes side by side: every side a multiple of
// four, sides ascending.
var (
	shapes2D = [][]int{{1, 1}, {2, 2}, {2, 4}, {4, 4}, {4, 8}, {8, 8}, {8, 16}, {16, 16}}
	small3D  = [][]int{{2, 2, 1}, {2, 2, 2}, {2, 2, 4}, {2, 4, 4}}
)

// smallShapes returns the shapes of a generation that are not whole cubes.
func smallShapes(c Chip) [][]int {
	if c.Dims == 2 {
		return shapes2D
	}
	if slices.Contains(c.HostChips, 1) {
		return append([][]int{{1, 1, 1}}, small3D...)
	}
	return small3D
}

// validShape reports whether a pod of c offers slices of this shape.
func validShape(c Chip, shape []int) bool {
	for _, s := range smallShapes(c) {
		if slices.Equal(s, shape) {
			return true
		}
	}
	if c.Dims != 3 || len(shape) != 3 || !slices.IsSorted(shape) {
		return false
	}
	left := c.MaxChips
	for _, side := range shape {
		if side < 4 || side%4 != 0 || side > left {
			return false
		}
		left /= side
	}
	return true
}

// checkShape refuses a shape that no pod of c offers.
func checkShape(c Chip, shape []int) error {
	if validShape(c, shape) {
		return nil
	}
	name := c.Kind + ":" + joinShape(shape)
	nearby := nearestShape(c, shape)
	near := c.Kind + ":" + joinShape(nearby)
	chips := 1.0
	for _, side := range shape {
		if side < 1 {
			return fmt.Errorf("mesh: topology %s has a side of %d chips; the nearest valid shape is %s", name, side, near)
		}
		chips *= float64(side)
	}
	several := math.Ceil(chips / float64(product(nearby)))
	switch {
	case len(shape) != c.Dims:
		return fmt.Errorf("mesh: topology %s has %d dimensions, a %s slice has %d; the nearest valid shape is %s",
			name, len(shape), c.Kind, c.Dims, near)
	case chips > maxDevices: // as slices they were refused as well
		return fmt.Errorf("mesh: topology %s is %.0f chips, the largest %s slice has %d; the nearest valid shape is %s", name, chips, c.Kind, c.MaxChips, near)
	case chips > float64(c.MaxChips):
		return fmt.Errorf("mesh: topology %s is %.0f chips, the largest %s slice has %d; the nearest valid shape is %s, as many chips are %.0f slices of it (%s*%.0f)",
			name, chips, c.Kind, c.MaxChips, near, several, near, several)
	case c.Dims == 2:
		return fmt.Errorf("mesh: %s slices do not come as %s; the nearest valid shape is %s", c.Kind, name, near)
	}
	return fmt.Errorf("mesh: %s slices do not come as %s (beyond 2x4x4 every side is a multiple of 4, sides ascending); the nearest valid shape is %s",
		c.Kind, name, near)
}

// nearestShape returns the valid shape whose number of chips is nearest to that
// of shape, by ratio; among those the one with the most similar sides; among
// those the smaller.
func nearestShape(c Chip, shape []int) []int {
	want := make([]float64, 0, max(c.Dims, len(shape))) // log2 of the sides
	chips := 0.0
	for _, side := range shape {
		want = append(want, math.Log2(float64(max(side, 1))))
		chips += want[len(want)-1]
	}
	for len(want) < c.Dims {
		want = append(want, 0)
	}
	slices.Sort(want)
	want = want[len(want)-c.Dims:]
	var best []int
	var bestRatio, bestSides float64
	try := func(s []int) {
		ratio := math.Abs(math.Log2(float64(product(s))) - chips)
		sides := 0.0
		sorted := slices.Clone(s)
		slices.Sort(sorted)
		for i, side := range sorted {
			sides += math.Abs(math.Log2(float64(side)) - want[i])
		}
		order := cmp.Or(compareRounded(ratio, bestRatio), compareRounded(sides, bestSides))
		if best == nil || order < 0 || order == 0 && product(s) < product(best) {
			best, bestRatio, bestSides = s, ratio, sides
		}
	}
	for _, s := range smallShapes(c) {
		try(s)
	}
	for _, s := range cubes(c) {
		try(s)
	}
	return best
}

// cubes returns the shapes of a generation that are whole cubes of 4×4×4 chips.
func cubes(c Chip) [][]int {
	var out [][]int
	if c.Dims == 3 {
		for x := 4; x*x*x <= c.MaxChips; x += 4 {
			for y := x; x*y*y <= c.MaxChips; y += 4 {
				for z := y; x*y*z <= c.MaxChips; z += 4 {
					out = append(out, []int{x, y, z})
				}
			}
		}
	}
	return out
}

// Shapes returns the shapes in which slices of the generation come, in chips along
// each side: from the smallest, of equally large ones that with the most similar
// sides first.
func (c Chip) Shapes() [][]int {
	all := cubes(c)
	for _, s := range smallShapes(c) {
		all = append(all, slices.Clone(s))
	}
	slices.SortStableFunc(all, func(a, b []int) int {
		return cmp.Or(cmp.Compare(product(a), product(b)), cmp.Compare(a[len(a)-1]-a[0], b[len(b)-1]-b[0]))
	})
	return all
}

// compareRounded compares sums of logarithms, which equal products give with
// different rounding.
func compareRounded(a, b float64) int {
	if math.Abs(a-b) < 1e-9 {
		return 0
	}
	return cmp.Compare(a, b)
}
