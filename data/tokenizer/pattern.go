package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A span is a half-open range of bytes.
type span struct{ lo, hi int }

// matcher finds all matches of a pattern, leftmost first, none overlapping. The
// known patterns match every byte; others may leave gaps.
type matcher interface {
	// matches appends the matches in s to dst.
	matches(dst []span, s string) ([]span, error)
}

func (f scanner) matches(dst []span, s string) ([]span, error) {
	for i := 0; i < len(s); {
		end := f(s, i)
		dst = append(dst, span{i, end})
		i = end
	}
	return dst, nil
}

// newMatcher compiles a pattern: hand-coded where it is known, else through
// regexp2, which has look-around.
func newMatcher(pattern string) (matcher, error) {
	if f, ok := scanners[pattern]; ok {
		return f, nil
	}
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("split pattern %q: %w", pattern, err)
	}
	return &regexMatcher{re}, nil
}

type regexMatcher struct{ re *regexp2.Regexp }

func (m *regexMatcher) matches(dst []span, s string) ([]span, error) {
	// regexp2 works on runes; a stray byte becomes one U+FFFD there, and one
	// byte here.
	runes := make([]rune, 0, len(s))
	offset := make([]int, 0, len(s)+1)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		runes, offset = append(runes, r), append(offset, i)
		i += n
	}
	offset = append(offset, len(s))
	found, err := m.re.FindRunesMatch(runes)
	for ; found != nil && err == nil; found, err = m.re.FindNextMatch(found) {
		dst = append(dst, span{offset[found.Index], offset[found.Index+found.Length]})
	}
	if err != nil {
		return nil, fmt.Errorf("split pattern %q: %w", m.re, err)
	}
	return dst, nil
}

// literalMatcher matches a fixed, non-empty string.
type literalMatcher string

func (m literalMatcher) matches(dst []span, s string) ([]span, error) {
	for i := 0; i+len(m) <= len(s); {
		if s[i:i+len(m)] == string(m) {
			dst = append(dst, span{i, i + len(m)})
			i += len(m)
			continue
		}
		i++
	}
	return dst, nil
}

// classMatcher matches characters of a class, one by one or as runs.
type classMatcher struct {
	class uint8
	each  bool
}

func (m classMatcher) matches(dst []span, s string) ([]span, error) {
	for i := 0; i < len(s); {
		c, n := classAt(s, i)
		if c&m.class == 0 {
			i += n
			continue
		}
		end := i + n
		if !m.each {
			end = run(s, end, m.class)
		}
		dst = append(dst, span{i, end})
		i = end
	}
	return dst, nil
}
