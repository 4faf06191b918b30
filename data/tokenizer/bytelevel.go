package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// The byte-level alphabet: every byte stands as one printable character.
// Printable Latin-1 stands for itself, and the other 68 bytes, in order, for
// the characters from U+0100 (the convention of GPT-2).
var (
	byteChar [256]rune
	charByte = map[rune]byte{}
)

func init() {
	next := rune(256)
	for b := range 256 {
		c := rune(b)
		printable := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE
		if !printable {
			c = next
			next++
		}
		byteChar[b] = c
		charByte[c] = byte(b)
	}
}

// toByteLevel spells bytes in the byte-level alphabet.
func toByteLevel(b string) string {
	out := make([]byte, 0, 2*len(b))
	for i := range len(b) {
		out = utf8.AppendRune(out, byteChar[b[i]])
	}
	return string(out)
}

// fromByteLevel is the inverse of toByteLevel; it reports whether every
// character of s belongs to the alphabet.
func fromByteLevel(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for _, c := range s {
		b, ok := charByte[c]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// ByteTokens returns the 256 tokens of the byte-level alphabet in the order of
// their characters, which is the order in which trained vocabularies start.
func ByteTokens() []string {
	out := make([]string, 0, 256)
	for c := rune(0); len(out) < 256; c++ {
		if _, ok := charByte[c]; ok {
			out = append(out, string(c))
		}
	}
	return out
}

// Spell returns the token that stands for the given bytes in a vocabulary.
func Spell(b string) string { return toByteLevel(b) }

// Bytes returns the bytes that a vocabulary's token stands for, or an error if
// the token is not written in the byte-level alphabet.
func Bytes(token string) (string, error) {
	b, ok := fromByteLevel(token)
	if !ok {
		return "", fmt.Errorf("token %q is not written in the byte-level alphabet", token)
	}
	return b, nil
}
