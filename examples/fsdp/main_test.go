package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

func Example() {
	if err := run(os.Stdout, 4); err != nil {
		panic(err)
	}
	// Output:
	// step 0 loss 0.062
	// step 1 loss 0.049
	// step 2 loss 0.044
	// step 3 loss 0.041
}

// What docs/graph.md shows must be what runs.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/graph.md")
	require.NoError(t, err)
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(blocks), 2)
	for _, b := range blocks {
		require.Contains(t, string(source), b[1])
	}
	m, err := mesh.New([]mesh.Axis{{Name: "dp_shard", Size: 8}}, nil)
	require.NoError(t, err)
	step, err := traceStep(m)
	require.NoError(t, err)
	text := step.StableHLO()
	shown := regexp.MustCompile("(?s)```mlir\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, shown)
	for _, b := range shown {
		for line := range strings.Lines(b[1]) {
			if line = strings.TrimSpace(line); line != "" && line != "…" {
				require.Contains(t, text, line)
			}
		}
	}
}
