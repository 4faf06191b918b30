package generate

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// stopper passes text on until one of some strings appears in it. No part of that
// string is passed on, so the end of the text is held back as long as it may be
// the beginning of one. What is passed on does not depend on how the text is cut
// into pieces.
type stopper struct {
	stops []string
	held  string
	found bool
}

// newStopper refuses stop strings that no text, or every text, would contain.
func newStopper(stops []string) (*stopper, error) {
	for _, s := range stops {
		switch {
		case s == "":
			return nil, errors.New("stop is empty: every text contains it")
		case !utf8.ValidString(s):
			return nil, fmt.Errorf("stop %q is not valid UTF-8: no text contains it", s)
		}
	}
	return &stopper{stops: stops}, nil
}

// add takes the next piece of the text, of whole characters, and returns what can
// be passed on. It sets found, and returns what comes before the string, when one
// is complete: of several the one that ends first, which is the first that a
// reader would have seen.
func (s *stopper) add(piece string) string {
	s.held += piece
	at, end := -1, 0
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 {
			if e := i + len(stop); at < 0 || e < end || e == end && i < at {
				at, end = i, e
			}
		}
	}
	if at >= 0 {
		out := s.held[:at]
		s.held, s.found = "", true
		return out
	}
	keep := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				keep = n
				break
			}
		}
	}
	out := s.held[:len(s.held)-keep]
	s.held = s.held[len(s.held)-keep:]
	return out
}

// rest returns what is held back, at the end of the text.
func (s *stopper) rest() string {
	out := s.held
	s.held = ""
	return out
}
