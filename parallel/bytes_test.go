package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/mesh"
)

// Gathered stacks are whole but for what pp, tp and, of experts, ep split.
func TestKeptBytes(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: "pp", Size: 2}, {Name: "dp_shard", Size: 2}, {Name: "ep", Size: 2}, {Name: "tp", Size: 2}}, nil)
	require.NoError(t, err)
	params := []Param{
		{"embed", []int{64, 32}, []string{"vocab", "embed"}},                                          // 2048 over tp: gathered at once, as there are stages
		{"layers.norm", []int{4, 32}, []string{"layer", "norm"}},                                      // a vector
		{"layers.wq", []int{4, 32, 8, 4}, []string{"layer", "embed", "heads", "head_dim"}},            // 4096 elements over pp and tp
		{"layers.experts.w", []int{4, 8, 32, 16}, []string{"layer", "expert", "embed", "expert_mlp"}}, // 16384 over pp, ep and tp
		{"layers.router", []int{4, 3, 5}, []string{"layer", "embed", ""}},                             // nothing divides: not gathered
	}
	for _, reshard := range []bool{true, false} {
		p, err := New(m, params, Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: reshard})
		require.NoError(t, err)
		want := int64(2 * (2048/2 + 4096/4 + 16384/8))
		if reshard {
			want = 0
		}
		require.Equal(t, want, p.KeptBytes())
	}
}
