// Package hf reads and writes model weights in the layout of Hugging Face
// repositories. It knows no model: how the names and dimensions of one side
// become those of the other is a table, which each model family declares.
//
//	m, err := hf.Parse(`
//	embed          = model.embed_tokens.weight                        : v d -> v d
//	layers.wq      = model.layers.{layer}.self_attn.q_proj.weight     : layer d h k -> (h k) d
//	layers.w_up    = model.layers.{layer}.mlp.experts.{e}.up_proj.weight : layer e d f -> f d
//	ignore model.layers.{layer}.self_attn.rotary_emb.inv_freq
//	`)
//	b, err := m.Bind(parameters)              // names, shapes and types on our side
//	src, err := b.Import(path, set)           // Hugging Face weights, seen as ours
//	err = hf.Export(ctx, dir, b.Export(ours, dtype.BF16), hf.ExportOptions{})
//
// Nothing is loaded whole: a view reads, rearranges and converts just the region
// asked for.
package hf

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Mapping is the table of a model family.
type Mapping struct {
	Rules []Rule
	// Ignore names tensors of the Hugging Face side that the model does not
	// have; {x} stands for anything without a dot.
	Ignore []string
}

// Rule relates tensors of our side to tensors of the Hugging Face side.
//
// Names may have placeholders {axis}. Axes gives the dimensions of our tensors,
// "->", and those of theirs, in the notation of einops: "layer d h k -> (h k) d"
// is a stack of layers here, and there one transposed matrix a layer, with h
// and k merged, k the faster. Every axis stands once on either side, in the
// dimensions or in the name; so an axis of a dimension here and of the name
// there splits a tensor, the reverse merges several, and one in both names only
// renames. Without Axes the dimensions are the same on both sides.
type Rule struct {
	Ours, Theirs string
	Axes         string
	// Values are what stands for index 0, 1, … of an axis in names; the numbers
	// themselves where an axis has none.
	Values map[string][]string
}

// Parse reads a table, one rule a line:
//
//	ours = theirs
//	ours = theirs : axes -> axes
//	ours = theirs : axes -> axes | axis=value,value,…  axis=…
//	ignore theirs
//
// Empty lines and what follows # do not count. Errors name the line.
func Parse(text string) (Mapping, error) {
	var m Mapping
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if name, ok := strings.CutPrefix(line, "ignore "); ok {
			name = strings.TrimSpace(name)
			if _, err := parsePattern(name); err != nil {
				return m, fmt.Errorf("hf: line %d: %w", n, err)
			}
			m.Ignore = append(m.Ignore, name)
			continue
		}
		r, err := parseRule(line)
		if err == nil {
			_, err = r.compile()
		}
		if err != nil {
			return m, fmt.Errorf("hf: line %d: %w", n, err)
		}
		m.Rules = append(m.Rules, r)
	}
	return m, nil
}

func parseRule(line string) (Rule, error) {
	var r Rule
	line, values, hasValues := strings.Cut(line, "|")
	line, axes, hasAxes := strings.Cut(line, ":")
	ours, theirs, ok := strings.Cut(line, "=")
	if !ok {
		return r, fmt.Errorf("%q has no %q between the two names", strings.TrimSpace(line), "=")
	}
	r.Ours, r.Theirs, r.Axes = strings.TrimSpace(ours), strings.TrimSpace(theirs), strings.TrimSpace(axes)
	if hasAxes && r.Axes == "" {
		return r, fmt.Errorf("nothing follows the colon")
	}
	if !hasValues {
		return r, nil
	}
	r.Values = map[string][]string{}
	for _, f := range strings.Fields(values) {
		axis, list, ok := strings.Cut(f, "=")
		if !ok || axis == "" || list == "" {
			return r, fmt.Errorf("%q is not of the form axis=value,value,…", f)
		}
		if _, twice := r.Values[axis]; twice {
			return r, fmt.Errorf("axis %q has its values twice", axis)
		}
		r.Values[axis] = strings.Split(list, ",")
	}
	return r, nil
}

// pattern is a name with placeholders.
type pattern struct {
	text     string
	literals []string // around the placeholders: one more than there are
	axes     []string
	match    *regexp.Regexp
}

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

var axisName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func parsePattern(s string) (*pattern, error) {
	p := &pattern{text: s}
	expr, at := "^", 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(s, -1) {
		axis := s[m[2]:m[3]]
		if !axisName.MatchString(axis) {
			return nil, fmt.Errorf("%q: {%s} is not the name of an axis", s, axis)
		}
		if slices.Contains(p.axes, axis) {
			return nil, fmt.Errorf("%q has {%s} twice", s, axis)
		}
		p.literals = append(p.literals, s[at:m[0]])
		p.axes = append(p.axes, axis)
		expr += regexp.QuoteMeta(s[at:m[0]]) + `([^.]+)`
		at = m[1]
	}
	p.literals = append(p.literals, s[at:])
	if s == "" || strings.ContainsAny(strings.Join(p.literals, ""), "{} \t") {
		return nil, fmt.Errorf("%q is not the name of a tensor with placeholders such as {layer}", s)
	}
	p.match = regexp.MustCompile(expr + regexp.QuoteMeta(s[at:]) + "$")
	return p, nil
}

// name returns the name with values for the axes.
func (p *pattern) name(value func(axis string) string) string {
	var b strings.Builder
	for i, lit := range p.literals {
		b.WriteString(lit)
		if i < len(p.axes) {
			b.WriteString(value(p.axes[i]))
		}
	}
	return b.String()
}

// parseDims reads one side of the axes: the axes of each dimension.
func parseDims(s string) ([][]string, error) {
	dims := [][]string{}
	open := false
	for _, word := range strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(s)) {
		switch {
		case word == "(" && !open:
			open = true
			dims = append(dims, nil)
		case word == ")" && open && len(dims[len(dims)-1]) > 0:
			open = false
		case !axisName.MatchString(word):
			return nil, fmt.Errorf("%q: %q does not belong there", s, word)
		case open:
			dims[len(dims)-1] = append(dims[len(dims)-1], word)
		default:
			dims = append(dims, []string{word})
		}
	}
	if open {
		return nil, fmt.Errorf("%q: a parenthesis is not closed", s)
	}
	return dims, nil
}
