package sharding

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

// The cases of testdata/jax.json come from JAX; see testdata/generate.py.
func TestAgainstJAX(t *testing.T) {
	data, err := os.ReadFile("testdata/jax.json")
	require.NoError(t, err)
	var cases []struct {
		Axes   [][]any
		IDs    []int
		Shape  []int
		Spec   [][]string
		Open   []int
		Shardy string
		Local  []int
		Index  [][][2]int
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 250)
	for i, c := range cases {
		var axes []mesh.Axis
		for _, a := range c.Axes {
			axes = append(axes, mesh.Axis{Name: a[0].(string), Size: int(a[1].(float64))})
		}
		m, err := mesh.New(axes, c.IDs)
		require.NoError(t, err)
		spec := Spec{Dims: c.Spec}

		opened := Spec{Dims: c.Spec, Open: make([]bool, len(c.Spec))}
		for _, d := range c.Open {
			opened.Open[d] = true
		}
		require.Equal(t, "<@mesh, "+c.Shardy+">", opened.Shardy("mesh", len(c.Shape)), "case %d", i)

		local, err := spec.Shard(m, c.Shape)
		require.NoError(t, err)
		require.Equal(t, c.Local, local, "case %d", i)

		regions, err := Slices(m, c.Shape, spec)
		require.NoError(t, err)
		require.Len(t, regions, len(c.Index))
		for p, want := range c.Index {
			require.Len(t, regions[p].Size, len(want))
			for d, w := range want {
				require.Equal(t, w, [2]int{regions[p].Offset[d], regions[p].Offset[d] + regions[p].Size[d]},
					"case %d: %v of %v on %v, position %d", i, spec, c.Shape, m, p)
			}
		}
	}
}
