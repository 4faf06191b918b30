package pjrt

import (
	"regexp"
	"strconv"
	"strings"
)

// OutOfMemory says that a program or an array does not fit into a memory of the
// device. It wraps the plugin's *Error, whose message it repeats.
type OutOfMemory struct {
	Err *Error
	// Needed and Available are bytes; 0 if the message does not say.
	Needed, Available int64
	// Memory is the memory that is too small, such as "hbm" or "vmem"; "" if the
	// message does not say.
	Memory string
}

func (e *OutOfMemory) Error() string { return e.Err.Error() }

// Unwrap returns the plugin's error.
func (e *OutOfMemory) Unwrap() error { return e.Err }

const size = `([0-9]+(?:\.[0-9]+)?[KMGT]?)`

// oomForms are the plugins' ways to put it, with the sizes needed and available.
var oomForms = []*regexp.Regexp{
	regexp.MustCompile(`\(` + size + `\) exceeds available \S+ \(` + size + `\)`),                          // libtpu compiles
	regexp.MustCompile(`Used ` + size + ` of ` + size),                                                     // libtpu compiles, older
	regexp.MustCompile(`size ` + size + ` and limit ` + size),                                              // kernels' scoped memory
	regexp.MustCompile(`Attempting to (?:allocate|reserve) ` + size + `[B.]* .*?There are ` + size + `B?`), // libtpu runs
	regexp.MustCompile(`[Oo]ut of memory (?:while trying to allocate|allocating) ([0-9]+)`),                // CPU and GPU
}

var oomMemory = regexp.MustCompile(`(?i)\b(hbm|vmem|smem)\b`)

// refine gives errors with a type of their own that type.
func (e *Error) refine() error {
	if e.Code != ResourceExhausted {
		return e
	}
	for _, f := range oomForms {
		if m := f.FindStringSubmatch(e.Message); m != nil {
			o := &OutOfMemory{Err: e, Needed: parseSize(m[1]), Memory: strings.ToLower(oomMemory.FindString(e.Message))}
			if len(m) > 2 {
				o.Available = parseSize(m[2])
			}
			return o
		}
	}
	if strings.Contains(strings.ToLower(e.Message), "memory") {
		return &OutOfMemory{Err: e, Memory: strings.ToLower(oomMemory.FindString(e.Message))}
	}
	return e
}

// parseSize reads "15.75G"; the units are powers of 1024.
func parseSize(s string) int64 {
	unit := int64(1)
	if k := strings.IndexByte("KMGT", s[len(s)-1]); k >= 0 {
		unit <<= 10 * (k + 1)
		s = s[:len(s)-1]
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return int64(x * float64(unit))
}
