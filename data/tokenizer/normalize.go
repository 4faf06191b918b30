package tokenizer

import (
	"strings"
	"unicode"
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
	if strings.IndexFunc(s, isYoung) >= 0 {
		return nfcUnbounded(s)
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

// youngMarks are the combining marks, and the one composition, that Unicode 10
// to 15 added. The tokenizers library normalises by Unicode 9 and so neither
// reorders nor composes them; nor must this package, to equal it.
var youngMarks = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x7fd, Hi: 0x7fd, Stride: 1}, {Lo: 0x898, Hi: 0x89f, Stride: 1}, {Lo: 0x8ca, Hi: 0x8d3, Stride: 1},
		{Lo: 0x9fe, Hi: 0x9fe, Stride: 1}, {Lo: 0xc3c, Hi: 0xc3c, Stride: 1}, {Lo: 0xd3b, Hi: 0xd3c, Stride: 1},
		{Lo: 0xeba, Hi: 0xeba, Stride: 1}, {Lo: 0x1715, Hi: 0x1715, Stride: 1}, {Lo: 0x1abf, Hi: 0x1ace, Stride: 1},
		{Lo: 0x1df6, Hi: 0x1dfa, Stride: 1}, {Lo: 0xa82c, Hi: 0xa82c, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x10d24, Hi: 0x10d27, Stride: 1}, {Lo: 0x10eab, Hi: 0x10eac, Stride: 1}, {Lo: 0x10efd, Hi: 0x10eff, Stride: 1},
		{Lo: 0x10f46, Hi: 0x10f50, Stride: 1}, {Lo: 0x10f82, Hi: 0x10f85, Stride: 1}, {Lo: 0x11070, Hi: 0x11070, Stride: 1},
		{Lo: 0x1133b, Hi: 0x1133b, Stride: 1}, {Lo: 0x1145e, Hi: 0x1145e, Stride: 1}, {Lo: 0x11839, Hi: 0x1183a, Stride: 1},
		{Lo: 0x11930, Hi: 0x11930, Stride: 1}, {Lo: 0x11938, Hi: 0x11938, Stride: 1}, {Lo: 0x1193d, Hi: 0x1193e, Stride: 1},
		{Lo: 0x11943, Hi: 0x11943, Stride: 1}, {Lo: 0x119e0, Hi: 0x119e0, Stride: 1}, {Lo: 0x11a34, Hi: 0x11a34, Stride: 1},
		{Lo: 0x11a47, Hi: 0x11a47, Stride: 1}, {Lo: 0x11a99, Hi: 0x11a99, Stride: 1}, {Lo: 0x11d42, Hi: 0x11d42, Stride: 1},
		{Lo: 0x11d44, Hi: 0x11d45, Stride: 1}, {Lo: 0x11d97, Hi: 0x11d97, Stride: 1}, {Lo: 0x11f41, Hi: 0x11f42, Stride: 1},
		{Lo: 0x16ff0, Hi: 0x16ff1, Stride: 1}, {Lo: 0x1e08f, Hi: 0x1e08f, Stride: 1}, {Lo: 0x1e130, Hi: 0x1e136, Stride: 1},
		{Lo: 0x1e2ae, Hi: 0x1e2ae, Stride: 1}, {Lo: 0x1e2ec, Hi: 0x1e2ef, Stride: 1}, {Lo: 0x1e4ec, Hi: 0x1e4ef, Stride: 1},
	},
}

func isYoung(r rune) bool { return r >= 0x7fd && unicode.Is(youngMarks, r) }

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
		decomposed := s[i : i+n]
		if !isYoung(r) {
			decomposed = norm.NFD.String(decomposed)
		}
		for _, d := range decomposed {
			var c uint8
			if !isYoung(d) {
				c = norm.NFD.PropertiesString(string(d)).CCC()
			}
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
		if starter >= 0 && !isYoung(r) && (adjacent || last < ccc[i]) {
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
