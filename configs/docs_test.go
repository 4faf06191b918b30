package configs

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example of the documentation is a recipe, and its mistakes are reported
// as it says.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/recipes.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, blocks, 1)
	mistakes := regexp.MustCompile("(?s)```\ntitan: (the recipe .*?)\n```").FindSubmatch(page)
	require.NotNil(t, mistakes)

	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("my.toml", blocks[0][1], 0o644))
	r, _, err := Load("my.toml", nil)
	require.NoError(t, err)
	require.Empty(t, r.Warnings())
	passes, err := r.MicroSteps()
	require.NoError(t, err)
	require.Equal(t, 4, passes)

	require.NoError(t, os.WriteFile("my.toml", []byte(`extends = "llama3_debug"
[training]
local_batch_size = 2
seqlen = 512
warmup_steps = 5
global_batch_size = 20
`), 0o644))
	_, _, err = Load("my.toml", []string{"training.steps=ten"})
	require.EqualError(t, err, string(mistakes[1]))
}
