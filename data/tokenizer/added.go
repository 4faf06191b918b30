package tokenizer

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token matched in the text itself, before any splitting.
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only between non-word characters
	LStrip     bool   `json:"lstrip"`      // takes the white space before it
	RStrip     bool   `json:"rstrip"`      // takes the white space behind it
	Normalized bool   `json:"normalized"`  // matched after normalisation
	Special    bool   `json:"special"`     // left out when decoding without special tokens
}

// addedSet finds added tokens in text, leftmost and then longest first.
type addedSet struct {
	// byFirst has the tokens that start with a byte, longest first.
	byFirst [256][]addedEntry
	first   string // the bytes that tokens start with
}

type addedEntry struct {
	text string
	tok  *AddedToken
}

func newAddedSet(entries []addedEntry) *addedSet {
	if len(entries) == 0 {
		return nil
	}
	set := &addedSet{}
	for _, e := range entries {
		if len(set.byFirst[e.text[0]]) == 0 {
			set.first += e.text[:1]
		}
		set.byFirst[e.text[0]] = append(set.byFirst[e.text[0]], e)
	}
	for b := range set.byFirst {
		list := set.byFirst[b]
		sort.SliceStable(list, func(i, j int) bool { return len(list[i].text) > len(list[j].text) })
	}
	return set
}

// find returns the first match at or after s[i], with its start; nil if none.
func (set *addedSet) find(s string, i int) (e *addedEntry, start int) {
	for i < len(s) {
		if len(set.first) == 1 {
			k := strings.IndexByte(s[i:], set.first[0])
			if k < 0 {
				break
			}
			i += k
		}
		list := set.byFirst[s[i]]
		for k := range list {
			if strings.HasPrefix(s[i:], list[k].text) {
				return &list[k], i
			}
		}
		i++
	}
	return nil, len(s)
}

// split calls text for each stretch of plain text and token for each added
// token, in order. Special tokens are not looked for if plain is set.
func (set *addedSet) split(s string, plain bool, text func(string), token func(int32)) {
	if set == nil {
		if s != "" {
			text(s)
		}
		return
	}
	done, from := 0, 0
	for {
		e, start := set.find(s, from)
		if e == nil {
			break
		}
		end := start + len(e.text)
		from = end
		if plain && e.tok.Special {
			continue
		}
		if e.tok.SingleWord && (wordBefore(s[:start]) || wordAfter(s[end:])) {
			continue
		}
		if e.tok.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], isSpace)), done)
		}
		if e.tok.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
		}
		if done < start {
			text(s[done:start])
		}
		token(e.tok.ID)
		done = end
	}
	if done < len(s) {
		text(s[done:])
	}
}

func isSpace(r rune) bool { return unicode.Is(unicode.White_Space, r) }

// A word character is \w of the regex crate of Rust, which the tokenizers
// library uses here: Alphabetic, M, Nd, Pc and Join_Control.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.Is(newLetters, r) ||
		unicode.In(r, unicode.M, newMarks, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}
