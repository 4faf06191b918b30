package configs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of this test")

// Every recipe of testdata/mistakes is refused with the text beside it.
func TestMistakes(t *testing.T) {
	t.Chdir("testdata/mistakes")
	files, err := filepath.Glob("*.toml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			_, _, err := Load(file, nil)
			require.Error(t, err)
			golden := strings.TrimSuffix(file, ".toml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644))
			}
			want, readErr := os.ReadFile(golden)
			require.NoError(t, readErr, "go test ./configs -run TestMistakes -update writes it")
			require.Equal(t, string(want), err.Error()+"\n")
		})
	}
}
