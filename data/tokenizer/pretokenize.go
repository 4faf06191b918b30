package tokenizer

import "strings"

// What becomes of the matches of a split.
type behavior int

const (
	removed behavior = iota
	isolated
	mergedWithPrevious
	mergedWithNext
	contiguous
)

// behaviors are named as in tokenizer.json.
var behaviors = map[string]behavior{
	"Removed": removed, "Isolated": isolated, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous,
}

// A splitStage cuts pieces of text into smaller ones.
type splitStage struct {
	match    matcher // nil: keep the piece whole
	behavior behavior
	invert   bool // treat what lies between the matches as the matches
	// prefixSpace puts a space before pieces that do not start with one.
	prefixSpace bool
}

// whole returns the scanner that alone does the stage's work, or nil.
func (st *splitStage) whole() scanner {
	f, _ := st.match.(scanner)
	if st.behavior != isolated || st.prefixSpace {
		return nil
	}
	return f
}

// split cuts s into pieces, none empty.
func (st *splitStage) split(dst []string, s string) ([]string, error) {
	if st.prefixSpace && !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	if st.match == nil {
		return append(dst, s), nil
	}
	found, err := st.match.matches(nil, s)
	if err != nil {
		return nil, err
	}
	type piece struct {
		span
		match bool
	}
	var pieces []piece
	at := 0
	for _, m := range found {
		if at < m.lo {
			pieces = append(pieces, piece{span{at, m.lo}, st.invert})
		}
		pieces = append(pieces, piece{m, !st.invert})
		at = m.hi
	}
	if at < len(s) {
		pieces = append(pieces, piece{span{at, len(s)}, st.invert})
	}
	kept := pieces[:0]
	switch st.behavior {
	case isolated:
		kept = pieces
	case removed:
		for _, p := range pieces {
			if !p.match {
				kept = append(kept, p)
			}
		}
	case contiguous:
		for _, p := range pieces {
			if n := len(kept); n > 0 && kept[n-1].match == p.match {
				kept[n-1].hi = p.hi
				continue
			}
			kept = append(kept, p)
		}
	case mergedWithPrevious:
		before := false
		for _, p := range pieces {
			if n := len(kept); p.match && !before && n > 0 {
				kept[n-1].hi = p.hi
			} else {
				kept = append(kept, p)
			}
			before = p.match
		}
	case mergedWithNext:
		// A match joins the next piece unless that is a match too.
		for i := 0; i < len(pieces); i++ {
			p := pieces[i]
			if p.match && i+1 < len(pieces) && !pieces[i+1].match {
				p.hi = pieces[i+1].hi
				i++
			}
			kept = append(kept, p)
		}
	}
	for _, p := range kept {
		if p.lo < p.hi {
			dst = append(dst, s[p.lo:p.hi])
		}
	}
	return dst, nil
}

// pretokenize runs all stages over s.
func pretokenize(stages []splitStage, s string) ([]string, error) {
	pieces := []string{s}
	for i := range stages {
		var next []string
		for _, p := range pieces {
			var err error
			if next, err = stages[i].split(next, p); err != nil {
				return nil, err
			}
		}
		pieces = next
	}
	return pieces, nil
}
