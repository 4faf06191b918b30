package tokenizer

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites the text before it is split.
type normalizer func(string) string

// nfc brings s into Unicode normalisation form C.
func nfc(s string) string {
	if isASCII(s) || norm.NFC.IsNormalString(s) {
		return s
	}
	out := norm.NFC.String(s)
	// The norm package puts U+034F into runs of more than 30 combining marks
	// (Unicode's stream-safe format), which form C proper does not.
	const joiner = "\u034f"
	if strings.Count(out, joiner) == strings.Count(s, joiner) {
		return out
	}
	return nfcUnbounded(s)
}

// nfcUnbounded is form C by its definition (Unicode Standard, section 3.11):
// decompose, order marks by combining class, compose.
func nfcUnbounded(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	var runes []rune
	var ccc []uint8
	// Stray bytes are kept as they are, so compose between them.
	flush := func() {
		for _, r := range compose(runes, ccc) {
			out.WriteRune(r)
		}
		runes, ccc = runes[:0], ccc[:0]
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			flush()
			out.WriteByte(s[i])
			i++
			continue
		}
		for _, d := range norm.NFD.String(s[i : i+n]) {
			c := norm.NFD.PropertiesString(string(d)).CCC()
			// Insertion keeps marks of equal class in their order.
			at := len(runes)
			for c > 0 && at > 0 && ccc[at-1] > c {
				at--
			}
			runes, ccc = append(runes, 0), append(ccc, 0)
			copy(runes[at+1:], runes[at:])
			copy(ccc[at+1:], ccc[at:])
			runes[at], ccc[at] = d, c
		}
		i += n
	}
	flush()
	return out.String()
}

// compose joins each starter with the marks behind it that are not blocked.
func compose(runes []rune, ccc []uint8) []rune {
	out := runes[:0:0]
	starter, last := -1, uint8(0)
	for i, r := range runes {
		adjacent := starter == len(out)-1
		if starter >= 0 && (adjacent || last < ccc[i]) {
			pair := norm.NFC.String(string(out[starter]) + string(r))
			if c, n := utf8.DecodeRuneInString(pair); n == len(pair) {
				out[starter] = c
				continue
			}
		}
		out = append(out, r)
		last = ccc[i]
		if ccc[i] == 0 {
			starter = len(out) - 1
		}
	}
	return out
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
