package train

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run may change from AdamW to Muon, whose momentum is a mean of gradients as well,
// but not unnoticed; the way back lacks second moments.
func TestOptimizerChanged(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	one := []string{"mesh.devices=1", "training.steps=2"}
	adam := recipe(t, data, one...)
	run(t, adam)
	with := func(set ...string) (log string) {
		r := recipe(t, data, append([]string{"mesh.devices=1", "training.steps=4", "optimizer.name=Muon"}, set...)...)
		copyCheckpoint(t, adam, r, 2)
		_, log = run(t, r)
		require.Contains(t, log, "resumed from ")
		if len(set) == 0 {
			back := recipe(t, data, "mesh.devices=1", "training.steps=6")
			copyCheckpoint(t, r, back, 4)
			err, _ := fails(t, back)
			require.ErrorContains(t, err, "was saved with another optimizer than the recipe's (AdamW): set it as it was, "+
				`or begin with new moments: checkpoint.exclude_from_loading = ["optimizer"]; `)
			require.ErrorContains(t, err, `"optim.v.layers.wq" is missing`)
			require.ErrorContains(t, err, "; and 4 more")
			require.Equal(t, 3, strings.Count(err.Error(), " is missing"), "the list is short")
		}
		return log
	}
	require.Contains(t, with(), "was another for 7 parameters, as it has second moments for them")
	require.NotContains(t, with(`checkpoint.exclude_from_loading=["optimizer"]`), "WARNING")
}
