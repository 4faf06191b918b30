package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

var alphabet = []string{"a", "b", "the", " ", "  ", "\n", "\r\n", "\t", "1", "234", "'s", "'LL", ".", "->", "é", "e\u0301", "日本", "👩\u200d👧",
	"<|begin_of_text|>", "<|", "_", "\xff", "\xe2\x82", "\u3000", "\u0300", "ſ"}

func randomText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(alphabet[rng.IntN(len(alphabet))])
	}
	return b.String()
}

// What is read back is what was written: the bytes themselves, or their
// normalised form.
func checkRoundTrip(t *testing.T, tok *Tokenizer, text string, normalise func(string) string) {
	ids := encode(t, tok, text, false)
	for _, id := range ids {
		_, ok := tok.Token(id)
		require.True(t, ok)
	}
	require.Equal(t, normalise(text), string(tok.AppendBytes(nil, ids, false)), "%q", text)
	s := tok.NewStream(false)
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(s.Next(id))
	}
	out.WriteString(s.Rest())
	require.Equal(t, tok.Decode(ids, false), out.String(), "%q", text)
	require.True(t, utf8.ValidString(out.String()))
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	llama, qwen := load(t, "llama3"), load(t, "qwen")
	for range 3000 {
		text := randomText(rng, rng.IntN(30))
		checkRoundTrip(t, llama, text, func(s string) string { return s })
		checkRoundTrip(t, qwen, text, nfc)
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range samples(f, "llama3") {
		f.Add(s.Text)
	}
	f.Add("\xf0\x9f\x98 \xed\xa0\x80")
	llama, qwen := load(f, "llama3"), load(f, "qwen")
	f.Fuzz(func(t *testing.T, text string) {
		checkRoundTrip(t, llama, text, func(s string) string { return s })
		// Added tokens cut the text before it is normalised.
		if !strings.Contains(text, "<|") {
			checkRoundTrip(t, qwen, text, nfc)
		}
	})
}

// Every scanner agrees with the pattern run by a regex engine.
func TestScannersAgainstRegex(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for pattern, scan := range scanners {
		m, err := newMatcher(pattern + `|(?!)`) // not a known pattern any more
		require.NoError(t, err)
		for range 1500 {
			text := strings.ReplaceAll(randomText(rng, rng.IntN(25)), "ſ", "s") // regexp2 folds ASCII only
			want, err := m.matches(nil, text)
			require.NoError(t, err)
			got, err := scan.matches(nil, text)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s on %q", pattern, text)
		}
	}
}

// Merging with the heap and by scanning agree, and both with the definition.
func TestMergesAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	m := &load(t, "qwen").model
	for range 2000 {
		piece := randomText(rng, 1+rng.IntN(40))
		if rng.IntN(4) == 0 {
			piece = strings.Repeat(piece[:1], 1+rng.IntN(100))
		}
		fill := func() *workspace {
			w := &workspace{}
			for i := range len(piece) {
				w.ids = append(w.ids, m.byteID[piece[i]])
			}
			return w
		}
		want := fill().ids
		for {
			best, at := uint32(noMerge), 0
			for i := 0; i+1 < len(want); i++ {
				if r := m.pairs.rank(want[i], want[i+1]); r < best {
					best, at = r, i
				}
			}
			if best == noMerge {
				break
			}
			want[at] = m.merged[best]
			want = append(want[:at+1], want[at+2:]...)
		}
		require.Equal(t, want, m.mergeShort(nil, fill()), "%q", piece)
		require.Equal(t, want, m.mergeLong(nil, fill()), "%q", piece)
	}
}

// An encoder whose cache has seen much gives what a fresh one gives, and stays
// within its bounds.
func TestCache(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	tok := load(t, "llama3")
	e := tok.NewEncoder()
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + rng.IntN(26))
		}
		return string(b)
	}
	for range 3 * longEntries {
		_, err := e.Append(nil, letters(1+rng.IntN(40)))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(e.long), longEntries)
	require.Len(t, e.slots, 1<<cacheBits)
	fresh := tok.NewEncoder()
	for range 2000 {
		text := letters(1+rng.IntN(40)) + " " + letters(1+rng.IntN(8))
		for range 2 {
			a, err := e.Append(nil, text)
			require.NoError(t, err)
			clear(fresh.slots)
			clear(fresh.long)
			if rng.IntN(20) > 0 { // clearing is slow; mostly compare the text's own tokens
				continue
			}
			b, err := fresh.Append(nil, text)
			require.NoError(t, err)
			require.Equal(t, b, a, text)
		}
	}
}

// A megabyte without a place to split takes no quadratic time: with n squared
// steps this test would run for hours.
func TestLongPiece(t *testing.T) {
	tok := load(t, "llama3")
	rng := rand.New(rand.NewPCG(9, 10))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte('a' + rng.IntN(26))
	}
	checkRoundTrip(t, tok, string(b), func(s string) string { return s })
	checkRoundTrip(t, tok, strings.Repeat(" ", 1<<20), func(s string) string { return s })
	checkRoundTrip(t, tok, strings.Repeat("\n ", 1<<19), func(s string) string { return s })
}

func TestPlainSpecials(t *testing.T) {
	tok := load(t, "llama3")
	bos, ok := tok.ID("<|begin_of_text|>")
	require.True(t, ok)
	require.True(t, tok.Special(bos))
	e := tok.NewEncoder()
	ids, err := e.Append(nil, "a<|begin_of_text|>b")
	require.NoError(t, err)
	require.Contains(t, ids, bos)
	require.Equal(t, "ab", tok.Decode(ids, true))
	e.Plain(true)
	ids, err = e.Append(nil, "a<|begin_of_text|>b")
	require.NoError(t, err)
	require.NotContains(t, ids, bos)
	require.Equal(t, "a<|begin_of_text|>b", tok.Decode(ids, true))
	_, ok = tok.Token(99999)
	require.False(t, ok)
	require.Equal(t, "", tok.Decode([]int32{-1, 99999}, false))
}

// Where marks are few and old, form C is that of the norm package.
func TestNFCUnbounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	runes := []rune("aeoAE\u0301\u0300\u0323\u0334\u0345ᄀ\u1161\u11a8가각Åﬁé\u1e9b\u0f71\u0f72日\u09c7\u09be")
	for range 20000 {
		s := make([]rune, rng.IntN(12))
		for i := range s {
			s[i] = runes[rng.IntN(len(runes))]
		}
		require.Equal(t, norm.NFC.String(string(s)), nfcUnbounded(string(s)), "%+q", string(s))
	}
}

// The tables in class.go and normalize.go are differences to these versions of
// Unicode. After an upgrade compare anew with the tokenizers library, as
// docs/data.md tells, and mend the tables.
func TestUnicodeVersions(t *testing.T) {
	require.Equal(t, "15.0.0", norm.Version)
}

func TestBuildIsRefusedOrReadable(t *testing.T) {
	tokens := ByteTokens()
	data, err := Build(Spec{Style: Qwen, Tokens: append(tokens, Spell("ab")), Merges: [][2]string{{"a", "b"}}, Special: []string{"<s>", "</s>"}, BOS: "<s>"})
	require.NoError(t, err)
	tok, err := Parse("built", data)
	require.NoError(t, err)
	require.Equal(t, 259, tok.VocabSize())
	require.Equal(t, []int32{257, 256, 258}, encode(t, tok, "ab</s>", true))
	require.Equal(t, "</s>", tok.EOS())
	_, err = Build(Spec{Style: "other", Tokens: tokens})
	require.ErrorContains(t, err, `style "other"`)
	_, err = Build(Spec{Style: Qwen, Tokens: tokens, BOS: "<s>"})
	require.ErrorContains(t, err, "not among the special tokens")
	_, err = Build(Spec{Style: Qwen, Tokens: tokens[1:]})
	require.ErrorContains(t, err, "has all 256")
}
