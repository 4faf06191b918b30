package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text of the ids, without special tokens if skipSpecial is
// set. Ids that are no token are left out, and bytes that are not valid UTF-8
// become U+FFFD, as in the tokenizers library; AppendBytes keeps them.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return lossy(t.AppendBytes(nil, ids, skipSpecial))
}

// AppendBytes appends the bytes that the ids stand for.
func (t *Tokenizer) AppendBytes(dst []byte, ids []int32, skipSpecial bool) []byte {
	for _, id := range ids {
		token, ok := t.Token(id)
		if !ok || skipSpecial && t.special[id] {
			continue
		}
		// A token with a character outside the byte alphabet, such as an added
		// token with a space, stands for itself.
		if b, ok := fromByteLevel(token); ok {
			token = b
		}
		dst = append(dst, token...)
	}
	return dst
}

// lossy replaces what is not valid UTF-8: one U+FFFD for each longest beginning
// of a character that is cut short ("maximal subpart", Unicode Standard 3.9),
// and for each byte that begins none.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = subpart(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// subpart returns the length of the maximal subpart that b, which does not
// start with a valid character, starts with; at least 1.
func subpart(b []byte) int {
	var want int
	lo, hi := byte(0x80), byte(0xBF) // of the second byte
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 2
	case c >= 0xE0 && c <= 0xEF:
		want = 3
		if c == 0xE0 {
			lo = 0xA0
		}
		if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		want = 4
		if c == 0xF0 {
			lo = 0x90
		}
		if c == 0xF4 {
			hi = 0x8F
		}
	}
	n := 1
	for n < want && n < len(b) && b[n] >= lo && b[n] <= hi {
		n, lo, hi = n+1, 0x80, 0xBF
	}
	return n
}

// A Stream decodes ids one by one and gives out whole characters only. The zero
// value is not usable; see NewStream.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	held        []byte
}

// NewStream returns a Stream for the text of one sequence.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Next takes an id and returns the text that is complete by now.
func (s *Stream) Next(id int32) string {
	s.held = s.t.AppendBytes(s.held, []int32{id}, s.skipSpecial)
	// Hold back a character that has begun but not ended.
	end := len(s.held)
	for k := 1; k <= min(utf8.UTFMax, end); k++ {
		if tail := s.held[end-k:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end -= k
			}
			break
		}
	}
	out := lossy(s.held[:end])
	s.held = append(s.held[:0], s.held[end:]...)
	return out
}

// Rest returns what is held back, at the end of the sequence.
func (s *Stream) Rest() string {
	out := lossy(s.held)
	s.held = nil
	return out
}
