package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Character classes as the split patterns use them. A character of no class is
// a symbol.
const (
	clLetter  = 1 << iota // \p{L}
	clNumber              // \p{N}
	clSpace               // \s, the property White_Space
	clNewline             // \r and \n, which are also clSpace
	clMark                // \p{M}
	clHigh                // in asciiClass only: look at the whole rune
)

// asciiClass holds the class of every byte below 0x80, and clHigh above.
var asciiClass [256]uint8

// bmpClass holds the classes of the basic multilingual plane.
var bmpClass = sync.OnceValue(func() *[1 << 16]uint8 {
	t := new([1 << 16]uint8)
	mark := func(tab *unicode.RangeTable, class uint8) {
		for _, r := range tab.R16 {
			for c := uint32(r.Lo); c <= uint32(r.Hi); c += uint32(r.Stride) {
				t[c] |= class
			}
		}
	}
	for _, x := range classTables {
		for _, tab := range x.tables {
			mark(tab, x.class)
		}
	}
	return t
})

var classTables = []struct {
	class  uint8
	tables []*unicode.RangeTable
}{
	{clLetter, []*unicode.RangeTable{unicode.L, newLetters}},
	{clNumber, []*unicode.RangeTable{unicode.N, newNumbers}},
	{clMark, []*unicode.RangeTable{unicode.M, newMarks}},
	{clSpace, []*unicode.RangeTable{unicode.White_Space}},
}

// What Unicode 15.1 and 16.0 added to the categories L, N and M. The tokenizers
// library knows Unicode 16, Go 1.26 knows 15.0 (unicode.Version).
var (
	newLetters = &unicode.RangeTable{
		R16: []unicode.Range16{{Lo: 0x1c89, Hi: 0x1c8a, Stride: 1}, {Lo: 0xa7cb, Hi: 0xa7cd, Stride: 1}, {Lo: 0xa7da, Hi: 0xa7dc, Stride: 1}},
		R32: []unicode.Range32{
			{Lo: 0x105c0, Hi: 0x105f3, Stride: 1}, {Lo: 0x10d4a, Hi: 0x10d65, Stride: 1}, {Lo: 0x10d6f, Hi: 0x10d85, Stride: 1},
			{Lo: 0x10ec2, Hi: 0x10ec4, Stride: 1}, {Lo: 0x11380, Hi: 0x11389, Stride: 1}, {Lo: 0x1138b, Hi: 0x1138b, Stride: 1},
			{Lo: 0x1138e, Hi: 0x1138e, Stride: 1}, {Lo: 0x11390, Hi: 0x113b5, Stride: 1}, {Lo: 0x113b7, Hi: 0x113b7, Stride: 1},
			{Lo: 0x113d1, Hi: 0x113d1, Stride: 1}, {Lo: 0x113d3, Hi: 0x113d3, Stride: 1}, {Lo: 0x11bc0, Hi: 0x11be0, Stride: 1},
			{Lo: 0x13460, Hi: 0x143fa, Stride: 1}, {Lo: 0x16100, Hi: 0x1611d, Stride: 1}, {Lo: 0x16d40, Hi: 0x16d6c, Stride: 1},
			{Lo: 0x18cff, Hi: 0x18cff, Stride: 1}, {Lo: 0x1e5d0, Hi: 0x1e5ed, Stride: 1}, {Lo: 0x1e5f0, Hi: 0x1e5f0, Stride: 1},
			{Lo: 0x2ebf0, Hi: 0x2ee5d, Stride: 1},
		},
	}
	newNumbers = &unicode.RangeTable{R32: []unicode.Range32{
		{Lo: 0x10d40, Hi: 0x10d49, Stride: 1}, {Lo: 0x116d0, Hi: 0x116e3, Stride: 1}, {Lo: 0x11bf0, Hi: 0x11bf9, Stride: 1},
		{Lo: 0x16130, Hi: 0x16139, Stride: 1}, {Lo: 0x16d70, Hi: 0x16d79, Stride: 1}, {Lo: 0x1ccf0, Hi: 0x1ccf9, Stride: 1},
		{Lo: 0x1e5f1, Hi: 0x1e5fa, Stride: 1},
	}}
	newMarks = &unicode.RangeTable{
		R16: []unicode.Range16{{Lo: 0x897, Hi: 0x897, Stride: 1}},
		R32: []unicode.Range32{
			{Lo: 0x10d69, Hi: 0x10d6d, Stride: 1}, {Lo: 0x10efc, Hi: 0x10efc, Stride: 1}, {Lo: 0x113b8, Hi: 0x113c0, Stride: 1},
			{Lo: 0x113c2, Hi: 0x113c2, Stride: 1}, {Lo: 0x113c5, Hi: 0x113c5, Stride: 1}, {Lo: 0x113c7, Hi: 0x113ca, Stride: 1},
			{Lo: 0x113cc, Hi: 0x113d0, Stride: 1}, {Lo: 0x113d2, Hi: 0x113d2, Stride: 1}, {Lo: 0x113e1, Hi: 0x113e2, Stride: 1},
			{Lo: 0x11f5a, Hi: 0x11f5a, Stride: 1}, {Lo: 0x1611e, Hi: 0x1612f, Stride: 1}, {Lo: 0x1e5ee, Hi: 0x1e5ef, Stride: 1},
		},
	}
)

func init() {
	for b := range 256 {
		c := rune(b)
		switch {
		case b >= utf8.RuneSelf:
			asciiClass[b] = clHigh
		case c == '\r' || c == '\n':
			asciiClass[b] = clSpace | clNewline
		case unicode.Is(unicode.White_Space, c):
			asciiClass[b] = clSpace
		case unicode.IsLetter(c):
			asciiClass[b] = clLetter
		case unicode.IsNumber(c):
			asciiClass[b] = clNumber
		}
	}
}

// classAt returns the class of the character at s[i] and its length in bytes. A
// byte that is not part of valid UTF-8 is a symbol of length 1.
func classAt(s string, i int) (class uint8, size int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	return highClass(s, i)
}

func highClass(s string, i int) (uint8, int) {
	r, n := utf8.DecodeRuneInString(s[i:])
	if r < 1<<16 {
		return bmpClass()[r], n
	}
	for _, x := range classTables {
		for _, tab := range x.tables {
			if unicode.Is(tab, r) {
				return x.class, n
			}
		}
	}
	return 0, n
}

// classBefore is classAt for the character that ends at s[i-1].
func classBefore(s string, i int) (class uint8, size int) {
	if b := s[i-1]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	_, n := utf8.DecodeLastRuneInString(s[:i])
	class, _ = highClass(s, i-n)
	return class, n
}
