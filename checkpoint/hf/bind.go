package hf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/internal/nearest"
)

// Binding is a mapping applied to the tensors of one model.
type Binding struct {
	ours, theirs sideIndex
	ignore       []*pattern
}

// sideIndex finds the tensors of one side.
type sideIndex struct {
	entries []safetensors.Entry
	at      map[string]place
}

// place is where a tensor stands in its rule.
type place struct {
	rule  *rule
	index []int // by axis; only those of the name count
	entry int
}

// Bind applies the mapping to the tensors of our side. It fails, listing all
// faults, if a tensor has no rule or two, a rule fits no tensor, ranks or sizes
// contradict each other, or two of their tensors would have the same name.
func (m Mapping) Bind(tensors []safetensors.Entry) (*Binding, error) {
	b := &Binding{ours: sideIndex{at: map[string]place{}}, theirs: sideIndex{at: map[string]place{}}}
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, s := range m.Ignore {
		p, err := parsePattern(s)
		if err != nil {
			return nil, fmt.Errorf("hf: ignore: %w", err)
		}
		b.ignore = append(b.ignore, p)
	}
	b.ours.entries = slices.Clone(tensors)
	byName := make(map[string]int, len(tensors))
	for i, t := range tensors {
		if _, ok := byName[t.Name]; ok {
			fault("two tensors are named %q", t.Name)
		}
		byName[t.Name] = i
	}
	var patterns []string
	for _, r := range m.Rules {
		patterns = append(patterns, r.Ours)
		c, err := r.compile()
		if err != nil {
			return nil, fmt.Errorf("hf: %w", err)
		}
		if err := b.bindRule(c, tensors); err != nil {
			fault("%v", err)
		}
	}
	for _, t := range tensors {
		if _, ok := b.ours.at[t.Name]; !ok && len(faults) == 0 {
			fault("no rule is for %q%s", t.Name, hint(t.Name, patterns))
		}
	}
	if err := join(faults); err != nil {
		return nil, fmt.Errorf("hf: the mapping does not fit the model: %w", err)
	}
	return b, nil
}

func hint(name string, known []string) string {
	if n := nearest.Name(name, known); n != "" {
		return fmt.Sprintf("; the nearest is %q", n)
	}
	return ""
}

// join returns the first ten faults as an error.
func join(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	if n := len(faults); n > 10 {
		faults = append(slices.Clone(faults[:10]), fmt.Sprintf("and %d more", n-10))
	}
	return fmt.Errorf("%s", strings.Join(faults, "; "))
}

// bindRule finds the tensors of a rule, its sizes, and what the other side has.
func (b *Binding) bindRule(c *rule, tensors []safetensors.Entry) error {
	var matched []int
	var found [][]string // values of the placeholders of each
	for i, t := range tensors {
		if m := c.ours.name.match.FindStringSubmatch(t.Name); m != nil {
			if !c.accepts(m[1:]) {
				continue
			}
			matched = append(matched, i)
			found = append(found, m[1:])
		}
	}
	if len(matched) == 0 {
		return fmt.Errorf("the rule for %q fits no tensor", c.Ours)
	}
	first := tensors[matched[0]]
	if c.same {
		c.extend(len(first.Shape))
	}
	if len(first.Shape) != len(c.ours.dims) {
		return fmt.Errorf("%q has shape %v, its rule has %d dimensions: %q", first.Name, first.Shape, len(c.ours.dims), c.Axes)
	}
	for _, i := range matched[1:] {
		if t := tensors[i]; t.DType != first.DType || !slices.Equal(t.Shape, first.Shape) {
			return fmt.Errorf("%q is %v%v and %q is %v%v, but one rule is for both", first.Name, first.DType, first.Shape, t.Name, t.DType, t.Shape)
		}
	}
	c.size = make([]int, len(c.axes))
	c.values = make([][]string, len(c.axes))
	for d, axes := range c.ours.dims {
		c.size[axes[0]] = first.Shape[d]
	}
	for k, a := range c.ours.nameAxes {
		var seen []string
		for _, f := range found {
			if !slices.Contains(seen, f[k]) {
				seen = append(seen, f[k])
			}
		}
		c.size[a] = len(seen)
		if v := c.Values[c.axes[a]]; v != nil {
			c.size[a] = len(v)
		}
	}
	for _, a := range append(slices.Clone(c.ours.nameAxes), c.theirs.nameAxes...) {
		c.values[a] = c.Values[c.axes[a]]
		if c.values[a] == nil {
			for i := range c.size[a] {
				c.values[a] = append(c.values[a], strconv.Itoa(i))
			}
		}
		if n := len(c.values[a]); n != c.size[a] {
			return fmt.Errorf("axis %q of %q has size %d, but %d values are given", c.axes[a], c.Ours, c.size[a], n)
		}
		for i, v := range c.values[a] {
			if slices.Index(c.values[a], v) != i {
				return fmt.Errorf("axis %q of %q has the value %q twice", c.axes[a], c.Ours, v)
			}
		}
	}
	byName := make(map[string]int, len(matched))
	for _, i := range matched {
		byName[tensors[i].Name] = i
	}
	return b.place(c, first.DType, byName)
}

// accepts reports whether values found in a name are among those of their axes.
func (c *rule) accepts(found []string) bool {
	for k, a := range c.ours.name.axes {
		if v := c.Values[a]; v != nil {
			if !slices.Contains(v, found[k]) {
				return false
			}
		} else if n, err := strconv.ParseUint(found[k], 10, 31); err != nil || strconv.FormatUint(n, 10) != found[k] {
			return false
		}
	}
	return true
}

// place enters the tensors of both sides into the index.
func (b *Binding) place(c *rule, d dtype.DType, ours map[string]int) error {
	for at := range c.indices(c.ours.nameAxes) {
		name := c.name(c.ours, at)
		i, ok := ours[name]
		if !ok {
			return fmt.Errorf("the rule for %q fits others, but %q is missing", c.Ours, name)
		}
		if p, ok := b.ours.at[name]; ok {
			return fmt.Errorf("%q has two rules: %q and %q", name, p.rule.Ours+" = "+p.rule.Theirs, c.Ours+" = "+c.Theirs)
		}
		b.ours.at[name] = place{c, at, i}
	}
	for at := range c.indices(c.theirs.nameAxes) {
		name := c.name(c.theirs, at)
		if p, ok := b.theirs.at[name]; ok {
			return fmt.Errorf("both %q and %q would become %q", p.rule.Ours, c.Ours, name)
		}
		b.theirs.at[name] = place{c, at, len(b.theirs.entries)}
		b.theirs.entries = append(b.theirs.entries, safetensors.Entry{Name: name, DType: d, Shape: c.shape(c.theirs)})
	}
	return nil
}

// indices yields every index of the given axes, the last fastest; the slices
// have an element for every axis, 0 for those not given.
func (c *rule) indices(axes []int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		n := 1
		for _, a := range axes {
			n *= c.size[a]
		}
		for i := range n {
			at := make([]int, len(c.axes))
			for _, a := range slices.Backward(axes) {
				at[a] = i % c.size[a]
				i /= c.size[a]
			}
			if !yield(at) {
				return
			}
		}
	}
}

// Theirs returns the tensors of the Hugging Face side, with our element types.
func (b *Binding) Theirs() []safetensors.Entry { return slices.Clone(b.theirs.entries) }
