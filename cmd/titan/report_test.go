package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/compare"
	"titan/internal/resulttest"
)

func TestCompareAndReport(t *testing.T) {
	dir := t.TempDir()
	a := resulttest.Run(t, filepath.Join(dir, "a"), resulttest.RunOptions{})
	b := resulttest.Run(t, filepath.Join(dir, "b"), resulttest.RunOptions{Factor: 2})
	long := resulttest.Run(t, filepath.Join(dir, "long"), resulttest.RunOptions{SeqLen: 8192})

	code, out, errs := titan(t, "compare", a, b, "--target-loss", "4", "--strict")
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^cost to the target loss +[\d.]+ USD +[\d.]+ USD \(-\d+\.\d%\) \*$`, out)
	require.Empty(t, errs)

	table := filepath.Join(dir, "table.json")
	code, out, errs = titan(t, "compare", a, b, long, "--json", "--out", table, "--price", "B=10", "--currency", "EUR")
	require.Zero(t, code, errs)
	require.Empty(t, out)
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	var c compare.Comparison
	require.NoError(t, json.Unmarshal(text, &c))
	require.Equal(t, []float64{2.7, 10, 2.7}, []float64{c.Results[0].Price, c.Results[1].Price, c.Results[2].Price})
	require.Equal(t, "EUR", c.Results[1].Currency)
	require.Equal(t, compare.Aspect("currency"), c.Marks[1][0].Aspect)

	code, out, errs = titan(t, "compare", a, long, "--strict", "--markdown")
	require.Equal(t, 1, code)
	require.Contains(t, out, "another sequence length: 8,192, the base's is 4,096")
	require.Contains(t, errs, "--strict")
	for _, form := range []string{"--csv", "--json", "--markdown"} {
		code, out, _ = titan(t, "compare", a, form)
		require.Zero(t, code)
		require.NotEmpty(t, out)
	}

	page := filepath.Join(dir, "page.html")
	code, out, errs = titan(t, "report", a, b, "-o", page, "--svg", filepath.Join(dir, "svg"), "--png", filepath.Join(dir, "png"))
	require.Zero(t, code, errs)
	require.Contains(t, out, "wrote "+page)
	require.FileExists(t, page)
	require.FileExists(t, filepath.Join(dir, "svg", "curves-loss-by-tokens.svg"))
	require.FileExists(t, filepath.Join(dir, "png", "curves-loss-by-tokens.png"))

	// What is left is compared, and what is not is told.
	require.NoError(t, os.WriteFile(filepath.Join(a, "run.json"), []byte("{"), 0o600))
	code, out, errs = titan(t, "compare", a, b, filepath.Join(dir, "gone"))
	require.Zero(t, code, errs)
	require.Contains(t, out, "tokens/s a device")
	require.Contains(t, errs, "run.json: is damaged")
	require.Contains(t, errs, "left out: compare: there is no ")
}

func TestCompareMistakes(t *testing.T) {
	run := resulttest.Run(t, filepath.Join(t.TempDir(), "a"), resulttest.RunOptions{Steps: 4})
	require.NoError(t, os.WriteFile(filepath.Join(run, "..", "my.toml"), []byte("extends = \"llama3_debug\"\n"), 0o600))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"compare"}, 2, "needs what to compare"},
		{[]string{"report"}, 2, "needs what to report"},
		{[]string{"compare", run, "--csv", "--json"}, 2, "exclude each other"},
		{[]string{"compare", run, "--target-loss", "-1"}, 2, "must be positive"},
		{[]string{"compare", run, "--price", "cheap"}, 2, `"cheap" is no price`},
		{[]string{"compare", run, "--price", "C=2"}, 2, `there is no result "C"; they are A to A`},
		{[]string{"compare", "nothing_there"}, 1, "there is no nothing_there"},
		{[]string{"report", run, "--serve", "127.0.0.1:0", "-o", "x"}, 2, "--serve writes no files"},
		{[]string{"report", run, "--serve", "nonsense"}, 1, "give an address that is free"},
		{[]string{"report", run, "-o", filepath.Join(run, "no", "folder.html")}, 1, "--out: nothing is written: "},
		{[]string{"report", run, "-o", run}, 1, "is a folder; name a file"},
		{[]string{"compare", run, "--out", run}, 1, "is a folder; name a file"},
		{[]string{"report", run, "--svg", filepath.Join(run, "run.json")}, 1, "--svg: "},
		{[]string{"compare", filepath.Join(run, "..", "my.toml")}, 1, "my.toml is a recipe, which has no figures yet: give the folder of its run, or plan it"},
	} {
		code, _, errs := titan(t, c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Contains(t, errs, c.says)
	}
}
