package hf

import (
	"fmt"
	"slices"
	"strings"
)

// side is one side of a rule, with axes as numbers.
type side struct {
	name     *pattern
	nameAxes []int   // of its placeholders
	dims     [][]int // of its dimensions, the slowest first
}

// rule is a checked rule. Its sizes are known once it is bound.
type rule struct {
	Rule
	axes   []string
	ours   side
	theirs side
	same   bool // no axes were given: dimensions are the same, and numbered when bound

	size   []int
	values [][]string // of axes that stand in names
}

// compile checks a rule by itself.
func (r Rule) compile() (*rule, error) {
	c := &rule{Rule: r, same: r.Axes == ""}
	var err error
	if c.ours.name, err = parsePattern(r.Ours); err != nil {
		return nil, err
	}
	if c.theirs.name, err = parsePattern(r.Theirs); err != nil {
		return nil, err
	}
	var left, right [][]string
	if !c.same {
		l, rest, ok := strings.Cut(r.Axes, "->")
		if !ok {
			return nil, fmt.Errorf("%q has no ->", r.Axes)
		}
		if left, err = parseDims(l); err != nil {
			return nil, err
		}
		if right, err = parseDims(rest); err != nil {
			return nil, err
		}
		for _, d := range left {
			if len(d) != 1 {
				return nil, fmt.Errorf("%q: (%s) cannot be split on our side; only their dimensions may be merged", r.Axes, strings.Join(d, " "))
			}
		}
	}
	c.number(&c.ours, left)
	c.number(&c.theirs, right)
	for i, a := range c.axes {
		for _, s := range []side{c.ours, c.theirs} {
			n := 0
			for _, d := range append(slices.Clone(s.dims), s.nameAxes) {
				for _, k := range d {
					if k == i {
						n++
					}
				}
			}
			where := "our"
			if s.name == c.theirs.name {
				where = "their"
			}
			switch {
			case n == 0:
				return nil, fmt.Errorf("axis %q is missing on %s side of %q = %q", a, where, r.Ours, r.Theirs)
			case n > 1:
				return nil, fmt.Errorf("axis %q stands %d times on %s side of %q = %q", a, n, where, r.Ours, r.Theirs)
			}
		}
	}
	for a := range r.Values {
		i := slices.Index(c.axes, a)
		if i < 0 || !slices.Contains(c.ours.nameAxes, i) && !slices.Contains(c.theirs.nameAxes, i) {
			return nil, fmt.Errorf("there are values for %q, which stands in neither name", a)
		}
	}
	return c, nil
}

// number gives the axes of a side their numbers.
func (c *rule) number(s *side, dims [][]string) {
	index := func(a string) int {
		i := slices.Index(c.axes, a)
		if i < 0 {
			i = len(c.axes)
			c.axes = append(c.axes, a)
		}
		return i
	}
	for _, a := range s.name.axes {
		s.nameAxes = append(s.nameAxes, index(a))
	}
	for _, d := range dims {
		var numbers []int
		for _, a := range d {
			numbers = append(numbers, index(a))
		}
		s.dims = append(s.dims, numbers)
	}
}

// extend numbers the dimensions of a rule without axes, whose rank is known now.
func (c *rule) extend(rank int) {
	for d := range rank {
		i := len(c.axes)
		c.axes = append(c.axes, fmt.Sprintf("dimension %d", d))
		c.ours.dims = append(c.ours.dims, []int{i})
		c.theirs.dims = append(c.theirs.dims, []int{i})
	}
}

// shape returns the shape of the tensors of a side.
func (c *rule) shape(s side) []int {
	out := make([]int, len(s.dims))
	for d, axes := range s.dims {
		out[d] = 1
		for _, a := range axes {
			out[d] *= c.size[a]
		}
	}
	return out
}

// name returns the name of a side's tensor at an index of its name's axes.
func (c *rule) name(s side, at []int) string {
	return s.name.name(func(axis string) string { return c.values[slices.Index(c.axes, axis)][at[slices.Index(c.axes, axis)]] })
}
