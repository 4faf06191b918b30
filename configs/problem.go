package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Place is where a value is from. The zero value is the default.
type Place struct {
	File string // as it was given, or "builtin:NAME.toml"
	Line int    // from 1; 0 for the file as a whole
	Set  string // the text of a --set; then File and Line are unset

	order int // of files from the recipe to what it extends; --set is last
}

// String returns "FILE:LINE", "--set KEY=VALUE" or "default".
func (p Place) String() string {
	switch {
	case p.Set != "":
		return "--set " + shorten(p.Set)
	case p.File == "":
		return "default"
	case p.Line == 0:
		return oneLine(p.File)
	}
	return fmt.Sprintf("%s:%d", oneLine(p.File), p.Line)
}

// setOrder sorts places on the command line behind those in files.
const setOrder = 1 << 30

// Problem is one mistake in a recipe.
type Problem struct {
	Place Place
	Key   string // dotted; empty if the mistake is not that of a key
	Msg   string
}

// String returns "PLACE: KEY: MESSAGE".
func (p Problem) String() string {
	if p.Key == "" {
		return p.Place.String() + ": " + p.Msg
	}
	return p.Place.String() + ": " + p.Key + ": " + p.Msg
}

// Error is what is wrong with a recipe: all of it.
type Error struct{ Problems []Problem }

// Error returns the problems in the order of the files and lines, one a line.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the recipe has %d mistakes:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// fail returns an *Error of the problems in order, nil if there are none.
func fail(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Place.order, b.Place.order), cmp.Compare(a.Place.Line, b.Place.Line))
	})
	return &Error{slices.Compact(problems)}
}

// shorten keeps what is quoted in a message to one line of readable length.
func shorten(s string) string {
	const most = 60
	s = oneLine(s)
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// oneLine replaces control characters by spaces.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
