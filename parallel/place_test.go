package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/mesh"
)

// FSDP splits experts by their number where that divides, behind ep, and by the
// model's width where it does not.
func TestPlacesOfExperts(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: AxisReplicate, Size: 1}, {Name: AxisShard, Size: 2}, {Name: AxisExpert, Size: 2}}, nil)
	require.NoError(t, err)
	axes := []string{"layer", "expert", "embed", "expert_mlp"}
	p, err := New(m, []Param{{"eight", []int{4, 8, 32, 16}, axes}, {"six", []int{4, 6, 32, 16}, axes}}, Options{Compute: dtype.BF16, Reduce: dtype.F32})
	require.NoError(t, err)
	require.Equal(t, [][]string{nil, {AxisExpert, AxisShard}, nil, nil}, p.Spec("eight").Dims)
	require.Equal(t, [][]string{nil, {AxisExpert}, {AxisShard}, nil}, p.Spec("six").Dims)
}
