// Package plural writes counts of things as people do: "1 token", "2 tokens".
package plural

import "fmt"

// Of writes a count with its noun, whose plural ends in s: "1 token", "0 tokens".
func Of[N int | int64](n N, noun string) string { return fmt.Sprintf("%d %s", n, Noun(n, noun)) }

// Noun is the noun of a count that is written by itself: "token" for 1, "tokens"
// for all others.
func Noun[N int | int64](n N, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
