// Package nearest finds the known name that a mistyped one most likely meant,
// for error messages.
package nearest

import "strings"

// Name returns the member of known that takes the fewest edits (insert,
// delete or replace a character, swap two neighbours; case does not count) to
// reach from name. It returns "" if more than half of the longer name would
// have to change. Of several the first wins.
func Name(name string, known []string) string {
	best, bestDistance := "", 0
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d > max(len(name), len(k))/2 {
			continue
		}
		if best == "" || d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// Hint returns `; did you mean "x"?` for the nearest known name, or, if none is
// near, the list of them: `; known are "a", "b"`. It is "" if none is known.
func Hint(name string, known []string) string {
	if n := Name(name, known); n != "" {
		return `; did you mean "` + n + `"?`
	}
	if len(known) == 0 {
		return ""
	}
	return `; known are "` + strings.Join(known, `", "`) + `"`
}

// distance is the restricted Damerau-Levenshtein distance (optimal string
// alignment), over bytes.
func distance(a, b string) int {
	before := make([]int, len(b)+1) // row i-2
	prev := make([]int, len(b)+1)   // row i-1
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
