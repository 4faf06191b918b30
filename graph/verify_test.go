package graph

import (
	"os"
	"slices"
	"strings"
)

// Tests of this package verify programs between passes too. Benchmarks measure
// what users run.
func init() {
	verifyPasses = !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.bench=") })
}
