package llo

import (
	"bytes"
	"strings"
)

// op is an instruction, as far as others wait for it.
type op struct {
	class   class
	unit    int // the matrix unit of one that multiplies, or that takes a result
	entry   int // of the unit's results, where they have addresses; else -1
	result  int // −1 for none
	sources []int
}

// class is what kind of instruction others wait for.
type class uint8

const (
	other      class = iota
	multiplies       // on a matrix unit
	pops             // a result of a matrix unit
	loadsScalar
	adds     // vector arithmetic of more than a cycle
	decides  // predicates, scalar comparisons
	numClass // of classes
)

// instructions reads the instructions of the line of a bundle.
func (c *Code) instructions(s []byte) []op {
	_, body, ok := bytes.Cut(s, []byte{'{'})
	if !ok {
		return nil
	}
	var out []op
	for piece := range bytes.SplitSeq(body, []byte(";;")) {
		if o, ok := c.instruction(string(piece)); ok {
			out = append(out, o)
		}
	}
	return out
}

// instruction reads "%v3_v1 = vadd.f32 %v1_v0, %v2_v4 /* comment */".
func (c *Code) instruction(s string) (op, bool) {
	for { // operands have comments before them
		head, tail, found := strings.Cut(s, "/*")
		if !found {
			break
		}
		_, tail, _ = strings.Cut(tail, "*/")
		s = head + tail
	}
	name, rest, ok := strings.Cut(strings.TrimSpace(s), " = ")
	if !ok || !strings.HasPrefix(name, "%") {
		return op{}, false
	}
	word, rest, _ := strings.Cut(rest, " ")
	o := op{class: classOf(word), entry: -1, result: c.value(name[1:])}
	if o.class == multiplies || o.class == pops {
		_, unit, _ := strings.Cut(word, ".mxu")
		o.unit, _ = number([]byte(unit))
		if _, at, ok := strings.Cut(word, ".mrb["); ok {
			o.entry, _ = number([]byte(at))
		}
	}
	for {
		if _, rest, ok = strings.Cut(rest, "%"); !ok {
			return o, true
		}
		n := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') })
		if n < 0 {
			n = len(rest)
		}
		o.sources = append(o.sources, c.value(rest[:n]))
	}
}

func classOf(word string) class {
	has := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(word, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("vmatmul"):
		return multiplies
	case has("vpop") && (strings.Contains(word, ".mrf.") || strings.Contains(word, ".mrb[")):
		return pops
	case has("sld"):
		return loadsScalar
	case has("vadd.f32", "vsub.f32", "vmul.f32"):
		return adds
	case has("scmp", "pnand", "por", "pneg", "pand"):
		return decides
	}
	return other
}

// value is the number of a name; the register behind the underscore is not part of
// it.
func (c *Code) value(name string) int {
	name, _, _ = strings.Cut(name, "_")
	n, ok := c.values[name]
	if !ok {
		n = len(c.values)
		c.values[name] = n
	}
	return n
}
