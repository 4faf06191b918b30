// Package figures writes numbers for people.
package figures

import (
	"fmt"
	"strconv"
	"time"
)

// Thousands writes a number with commas, rounded to a whole one: "12,345".
func Thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Seconds writes a time in a unit that suits it: "29.30 s", "160 ms".
func Seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s < 100:
		return fmt.Sprintf("%.2f s", s)
	}
	return Thousands(s) + " s"
}

// GiB writes bytes in GiB: "12.34 GiB".
func GiB(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

// Duration writes how long something took, without what nobody reads.
func Duration(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// Count writes how many there are of something: "1 device", "2,048 devices".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Thousands(float64(n)) + " " + noun
}
