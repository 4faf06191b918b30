// Package human writes figures as people read them.
package human

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"titan/internal/plural"
)

// Unknown stands for a figure that there is none of.
const Unknown = "–"

// Count writes a number without decimals, with commas: 1,234,567.
func Count(x float64) string { return Fixed(math.Round(x), 0) }

// Int writes a whole number with commas: 1,234,567.
func Int[N int | int64](n N) string { return commas(strconv.FormatInt(int64(n), 10)) }

// Counted writes a count with its noun: 2,048 tokens.
func Counted[N int | int64](n N, noun string) string {
	return Int(n) + " " + plural.Noun(n, noun)
}

// Fixed writes a number with so many decimals, and commas: 1,234.50.
func Fixed(x float64, decimals int) string {
	if !Finite(x) {
		return Unknown
	}
	return commas(strconv.FormatFloat(x, 'f', decimals, 64))
}

// Short writes a number to four digits, very large and small ones with a power of
// ten.
func Short(x float64) string {
	switch a := math.Abs(x); {
	case !Finite(x):
		return Unknown
	case a != 0 && (a >= 1e7 || a < 1e-3):
		return strconv.FormatFloat(x, 'g', 4, 64)
	case a >= 1000:
		return Count(x)
	}
	return strconv.FormatFloat(round(x, 4), 'f', -1, 64)
}

// SI writes a number to four digits with a decimal prefix: 57.91 G.
func SI(x float64) string {
	if !Finite(x) {
		return Unknown
	}
	prefixes := []string{"", " k", " M", " G", " T", " P", " E"}
	i := 0
	for math.Abs(x) >= 1000 && i+1 < len(prefixes) {
		x /= 1000
		i++
	}
	return strconv.FormatFloat(round(x, 4), 'f', -1, 64) + prefixes[i]
}

// Memory writes a device's memory: in GiB, what is less in MiB.
func Memory(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// Size writes a size of so many bytes in GiB, MiB or KiB.
func Size(n int64) string { return Bytes(float64(n)) }

// Bytes is Size of a figure that may not be known.
func Bytes(n float64) string {
	switch {
	case !Finite(n):
		return Unknown
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", n/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
	return fmt.Sprintf("%.0f B", n)
}

// Seconds writes a time in h, min, s, ms or µs.
func Seconds(x float64) string {
	switch a := math.Abs(x); {
	case !Finite(x):
		return Unknown
	case a >= 100*3600:
		return Fixed(x/3600, 0) + " h"
	case a >= 3600:
		return fmt.Sprintf("%.2f h", x/3600)
	case a >= 100:
		return fmt.Sprintf("%.1f min", x/60)
	case a >= 1:
		return fmt.Sprintf("%.2f s", x)
	case a >= 1e-3:
		return fmt.Sprintf("%.1f ms", 1e3*x)
	case a == 0:
		return "0 s"
	}
	return fmt.Sprintf("%.0f µs", 1e6*x)
}

// Percent writes a share that is already in percent.
func Percent(x float64) string {
	if !Finite(x) {
		return Unknown
	}
	return strconv.FormatFloat(x, 'f', 1, 64) + "%"
}

// Trim drops the zeros at the end of a written figure's decimals: 5.00 s is 5 s.
func Trim(s string) string {
	number, unit := s, ""
	if i := strings.IndexFunc(s, func(r rune) bool { return r == ' ' || r == '%' }); i >= 0 {
		number, unit = s[:i], s[i:]
	}
	if strings.Contains(number, ".") && !strings.ContainsAny(number, "eE") {
		number = strings.TrimSuffix(strings.TrimRight(number, "0"), ".")
	}
	return number + unit
}

// Finite reports whether x is a number.
func Finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// round rounds to so many digits.
func round(x float64, digits int) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil {
		return x
	}
	return v
}

func commas(s string) string {
	whole, rest, dotted := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dotted {
		whole += "." + rest
	}
	return whole
}
