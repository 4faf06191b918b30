package compare

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/resulttest"
)

// Whatever a folder's bytes are, a comparison is made or the folder is refused.
func TestDamagedFoldersAreCompared(t *testing.T) {
	dir := resulttest.Run(t, filepath.Join(t.TempDir(), "run"), resulttest.RunOptions{Resumed: true, Steps: 30})
	good := runOf(t, "good", resulttest.RunOptions{})
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"run.json", "metrics.jsonl", "recipe.toml"} {
		file := filepath.Join(dir, name)
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		try := func(what string, bytes []byte) {
			require.NoError(t, os.WriteFile(file, bytes, 0o600))
			in, warnings, err := Load(dir)
			require.NoError(t, err, "%s: %s", name, what)
			for _, w := range warnings {
				require.Contains(t, w, dir, "a warning names the file")
			}
			c, err := New([]*Result{good, in.Results[0]}, Options{TargetLoss: 3})
			require.NoError(t, err)
			text, err := c.JSON()
			require.NoError(t, err, "%s: %s", name, what)
			require.NotEmpty(t, text)
			require.NotEmpty(t, c.Text(100))
			checkRanks(t, c)
		}
		for range 60 {
			n := random.IntN(len(whole))
			try(fmt.Sprint("cut at ", n), whole[:n])
			bad := slices.Clone(whole)
			for range 1 + random.IntN(4) {
				bad[random.IntN(len(bad))] = byte(random.IntN(256))
			}
			try("bytes changed", bad)
		}
		require.NoError(t, os.WriteFile(file, whole, 0o600))
	}
}

// checkRanks: a best has rivals that it can be compared with.
func checkRanks(t *testing.T, c *Comparison) {
	t.Helper()
	base := c.Results[0]
	for _, r := range c.Rows {
		for i, cell := range r.Cells {
			if !cell.Best {
				continue
			}
			require.False(t, cell.Marked)
			require.False(t, r.Cells[0].Marked)
			for _, a := range []Aspect{Model, SeqLen, Precision} {
				require.Equal(t, base.Basis[a], c.Results[i].Basis[a], "%s of %s", a, r.Key)
			}
		}
	}
}

// Results whose bases differ at random: none is ranked, or has its change shown, in
// a figure that the difference bears on.
func TestDifferentBasesAreNeverRanked(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	choices := map[Aspect][]string{
		Model: {"llama3 8B", "qwen3 8B", ""}, SeqLen: {"4096", "8192", ""}, Precision: {"bfloat16", "float8", ""}, Platform: {"tpu", "cpu", ""},
		Packing: {"whole rows", "attention keeps to documents", ""}, Padding: {"0.0", "0.5", "12.0", ""}, Effort: {"default", "quick", ""},
		Evidence: {"measured", "predicted", "published", "extrapolated"}, StepTokens: {"1", "2", ""}, PerChip: {"1", "2", ""}, Data: {"a", "b", ""},
		Routing: {"by the router", "forced balance"}, Peak: {"that of the device", "5 TFLOP/s"}, Flops: {"100", "200", ""}, Currency: {"USD", "EUR", ""},
	}
	keys := make([]Aspect, 0, len(choices))
	for _, r := range rules {
		if _, ok := choices[r.aspect]; ok {
			keys = append(keys, r.aspect)
		}
	}
	ranked, refused := 0, 0
	for range 3000 {
		var results []*Result
		first := Basis{}
		for i := range 2 + random.IntN(3) {
			r := &Result{Name: fmt.Sprint(i), Path: fmt.Sprint(i), Kind: Plan, Basis: Basis{}, Figures: map[string]float64{}}
			for _, a := range keys {
				v := choices[a][random.IntN(len(choices[a]))]
				if i > 0 && random.IntN(20) > 0 {
					v = first[a] // mostly alike, or nothing could ever be ranked
				}
				if i == 0 && random.IntN(10) > 0 {
					v = choices[a][0]
				}
				if v != "" {
					r.Basis[a] = v
				}
			}
			if i == 0 {
				first = r.Basis
			}
			for _, row := range Rows {
				if !row.Derived {
					r.Figures[row.Key] = 1 + random.Float64()
				}
			}
			switch random.IntN(4) {
			case 0:
				delete(r.Figures, MFUCausal)
			case 1:
				delete(r.Figures, MFUTorchTitan)
			}
			r.conventions()
			results = append(results, r)
		}
		c, err := New(results, Options{})
		require.NoError(t, err)
		for _, row := range c.Rows {
			for i, cell := range row.Cells {
				if i == 0 || cell.Value == nil {
					continue
				}
				for _, rule := range rules {
					a, b := results[i].Basis[rule.aspect], first[rule.aspect]
					differ := a != b && (rule.same == nil || !rule.same(a, b)) && (!rule.optional || a != "" && b != "")
					if rule.when != nil || rule.aspect == Convention || !differ || !row.kind.in(rule.spoils) {
						continue
					}
					if row.Cells[0].Value == nil {
						continue // nothing to compare it with
					}
					require.True(t, cell.Marked, "%s: %q and %q", rule.aspect, a, b)
					require.Contains(t, cell.Why, rule.aspect)
				}
				if cell.Marked {
					refused++
					require.False(t, cell.Best)
				}
				if cell.Best {
					ranked++
				}
			}
		}
	}
	require.Greater(t, ranked, 1000)
	require.Greater(t, refused, 1000)
}
