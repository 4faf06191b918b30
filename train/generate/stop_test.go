package generate

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// feed gives a text to a stopper in pieces, and returns what it passes on.
func feed(t *testing.T, stops []string, pieces ...string) (out string, found bool) {
	t.Helper()
	s, err := newStopper(stops)
	require.NoError(t, err)
	for _, p := range pieces {
		out += s.add(p)
		if s.found {
			require.Empty(t, s.rest())
			return out, true
		}
	}
	return out + s.rest(), false
}

func TestStopStrings(t *testing.T) {
	for _, c := range []struct {
		stops  []string
		pieces []string
		out    string
		found  bool
	}{
		{nil, []string{"ab", "c"}, "abc", false},
		{[]string{"c"}, []string{"ab", "cd"}, "ab", true},
		{[]string{"bcd"}, []string{"ab", "c", "de"}, "a", true},
		{[]string{"bcd"}, []string{"ab", "c", "e"}, "abce", false},
		{[]string{"bcd"}, []string{"ab", "c"}, "abc", false}, // held back to the end
		{[]string{"aab"}, []string{"a", "a", "a", "b"}, "a", true},
		{[]string{"\n\n"}, []string{"x\n", "\ny"}, "x", true},
		{[]string{"日本"}, []string{"x日", "本"}, "x", true},
		{[]string{"xyz", "b"}, []string{"abc"}, "a", true},
		{[]string{"abcd", "bc"}, []string{"abcd"}, "a", true}, // the one that ends first
		{[]string{"bc", "abc"}, []string{"zabc"}, "z", true},  // both at once: the longer
	} {
		out, found := feed(t, c.stops, c.pieces...)
		require.Equal(t, c.out, out, "%q of %q", c.stops, c.pieces)
		require.Equal(t, c.found, found, "%q of %q", c.stops, c.pieces)
	}
}

// However a text is cut into pieces, the same is passed on, and it is known as
// soon as it can be: all but what may begin a stop string.
func TestStopStringsWhateverThePieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("ab"[rng.IntN(2)])
		}
		return b.String()
	}
	stopped := 0
	for range 3000 {
		stops := []string{word(1 + rng.IntN(6)), word(2 + rng.IntN(6))}
		text := word(rng.IntN(30))
		var single, random []string
		for i := range text {
			single = append(single, text[i:i+1])
		}
		for rest := text; rest != ""; {
			n := 1 + rng.IntN(len(rest))
			random, rest = append(random, rest[:n]), rest[n:]
		}
		out, found := feed(t, stops, single...)
		again, foundAgain := feed(t, stops, random...)
		require.Equal(t, out, again, "%q in %q", stops, text)
		require.Equal(t, found, foundAgain)
		require.True(t, strings.HasPrefix(text, out))
		for _, s := range stops {
			require.NotContains(t, out, s)
		}
		if !found {
			require.Equal(t, text, out)
		} else {
			stopped++
			rest := text[len(out):]
			require.True(t, strings.HasPrefix(rest, stops[0]) || strings.HasPrefix(rest, stops[1]), "%q in %q: %q", stops, text, out)
		}
	}
	require.Greater(t, stopped, 500)
	require.Less(t, stopped, 2900)
}

func TestImpossibleStopStrings(t *testing.T) {
	_, err := newStopper([]string{"a", ""})
	require.EqualError(t, err, "stop is empty: every text contains it")
	_, err = newStopper([]string{"\xff"})
	require.EqualError(t, err, `stop "\xff" is not valid UTF-8: no text contains it`)
}
