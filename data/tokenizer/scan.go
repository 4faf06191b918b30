package tokenizer

// A scanner returns the end of the pre-token that starts at s[i], i < len(s).
// Every pre-token has at least one byte, so scanning always ends.
type scanner func(s string, i int) int

// The split patterns of the common families, hand-coded because Go's regexp has
// no look-ahead and a backtracking engine is some fifty times slower. All of
// them are "the first alternative that matches, at its longest".
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	// Llama 3 and GPT-4 (cl100k): up to three digits at a time.
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// Qwen 2 to 3: digits one by one.
	patternQwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// Qwen 3.5: as Qwen 2, and combining marks belong to words.
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var scanners = map[string]scanner{
	patternGPT2:   scanGPT2,
	patternLlama3: func(s string, i int) int { return scanWords(s, i, clLetter, 3) },
	patternQwen2:  func(s string, i int) int { return scanWords(s, i, clLetter, 1) },
	patternQwen35: func(s string, i int) int { return scanWords(s, i, clLetter|clMark, 1) },
}

// scanGPT2 finds the next match of patternGPT2.
func scanGPT2(s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s, i, false); n > 0 {
			return i + n
		}
	}
	// " ?" takes a space only if the run behind it follows.
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		start = i + 1
	}
	switch class, n := classAt(s, start); {
	case class&clSpace != 0:
		return giveBackOne(s, i, run(s, i, clSpace))
	case class&clLetter != 0:
		return run(s, start+n, clLetter)
	case class&clNumber != 0:
		return run(s, start+n, clNumber)
	default:
		return runNot(s, start+n, clLetter|clNumber|clSpace)
	}
}

// scanWords finds the next match of the patterns of Llama 3 and Qwen. Classes
// in word make words; digits go in groups of at most maxDigits.
func scanWords(s string, i int, word uint8, maxDigits int) int {
	class, n := classAt(s, i)
	switch {
	case class&word != 0:
		return run(s, i+n, word)
	case class&clNumber != 0:
		end := i + n
		for k := 1; k < maxDigits && end < len(s); k++ {
			c, n := classAt(s, end)
			if c&clNumber == 0 {
				break
			}
			end += n
		}
		return end
	case class&clNewline != 0:
		return scanSpaces(s, i)
	}
	if s[i] == '\'' {
		if n := contraction(s, i, true); n > 0 {
			return i + n
		}
	}
	symbols := i + n // where the symbols behind " ?" go on
	if i+n < len(s) {
		next, m := classAt(s, i+n)
		if next&word != 0 {
			return run(s, i+n+m, word)
		}
		if class&clSpace != 0 {
			if s[i] != ' ' || next&(clSpace|clNumber|word) != 0 {
				return scanSpaces(s, i)
			}
			symbols = i + n + m
		}
	} else if class&clSpace != 0 {
		return len(s)
	}
	end := runNot(s, symbols, word|clNumber|clSpace)
	for end < len(s) && (s[end] == '\n' || s[end] == '\r') {
		end++
	}
	return end
}

// scanSpaces handles the white-space alternatives of Llama 3 and Qwen from
// s[i], which is white space: with a newline in the run, everything up to the
// last one; else all but the last character if something follows the run, since
// that one may belong to the next word.
func scanSpaces(s string, i int) int {
	end, newline := i, -1
	for end < len(s) {
		c, n := classAt(s, end)
		if c&clSpace == 0 {
			break
		}
		end += n
		if c&clNewline != 0 {
			newline = end
		}
	}
	if newline >= 0 {
		return newline
	}
	return giveBackOne(s, i, end)
}

// giveBackOne ends the run s[i:end] one character early if text follows it and
// something is left: the alternatives \s+(?!\S) and \s+.
func giveBackOne(s string, i, end int) int {
	if end == len(s) {
		return end
	}
	_, n := classBefore(s, end)
	if end-n > i {
		return end - n
	}
	return end
}

// run returns the end of the run of characters of the class from s[i].
func run(s string, i int, class uint8) int {
	for i < len(s) {
		c := asciiClass[s[i]]
		if c&class != 0 {
			i++
			continue
		}
		if c != clHigh {
			break
		}
		c, n := highClass(s, i)
		if c&class == 0 {
			break
		}
		i += n
	}
	return i
}

// runNot returns the end of the run of characters outside the class from s[i].
func runNot(s string, i int, class uint8) int {
	for i < len(s) {
		c, n := asciiClass[s[i]], 1
		if c == clHigh {
			c, n = highClass(s, i)
		}
		if c&class != 0 {
			break
		}
		i += n
	}
	return i
}

// contraction returns the length of an English contraction ('s, 'll, ...) at
// s[i], which is an apostrophe, or 0. With fold, case is ignored as Unicode
// says, so that U+017F, the long s, counts as an s.
func contraction(s string, i int, fold bool) int {
	rest := s[i+1:]
	if rest == "" {
		return 0
	}
	lower := func(b byte) byte {
		if fold && b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	switch a := lower(rest[0]); a {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		want := byte('e')
		if a == 'l' {
			want = 'l'
		}
		if len(rest) > 1 && lower(rest[1]) == want {
			return 3
		}
	case 0xC5: // U+017F is C5 BF
		if fold && len(rest) > 1 && rest[1] == 0xBF {
			return 3
		}
	}
	return 0
}
