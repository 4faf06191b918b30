package graph_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// splitAnyhow splits each dimension over a random set of the mesh axes that are
// left and divide it.
func splitAnyhow(r *rand.Rand, m *mesh.Mesh, shape []int) sharding.Spec {
	left := m.Axes()
	r.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	dims := make([]any, len(shape))
	for _, d := range r.Perm(len(shape)) {
		var names []string
		size := shape[d]
		for len(left) > 0 && r.IntN(2) == 0 && size%left[0].Size == 0 {
			names = append(names, left[0].Name)
			size /= left[0].Size
			left = left[1:]
		}
		dims[d] = names
	}
	return sharding.P(dims...)
}

// Sharding never changes the answer: a step with embedding, scanned and
// checkpointed layers, gradient and AdamW gives the same loss and the same new
// state on 1, 2, 4 and 8 devices, however its arrays are split.
func TestShardingNeverChangesTheAnswer(t *testing.T) {
	full := SaveNothing()
	c := llama{vocab: 64, dim: 32, ffn: 64, layers: 2, heads: 4, kv: 2, headDim: 8, seq: 16, batch: 8, dtype: F32, scan: true, remat: &full, adamw: true}
	single := trace(t, nil, func(b *Builder) { require.NoError(t, c.step(b)) })
	var inputs []array
	shapes := map[string][]int{}
	for i, in := range single.Inputs() {
		shapes[in.Name] = in.Type.Shape
		switch {
		case in.Type.DType == S32:
			inputs = append(inputs, uniform(uint64(i), 0, 64, in.Type.Shape...).as(S32))
		case in.Name == "count":
			inputs = append(inputs, arr(T(F32), 3))
		default: // second moments must not be negative
			inputs = append(inputs, uniform(uint64(i), 0.01, 0.2, in.Type.Shape...).as(F32))
		}
	}
	want := run(t, single, inputs...)
	draws := 1
	meshes := [][]mesh.Axis{
		{axis("a", 2)}, {axis("a", 2), axis("b", 2)}, {axis("a", 8)}, {axis("a", 2), axis("b", 4)}, {axis("a", 2), axis("b", 2), axis("c", 2)},
	}
	if long {
		draws, meshes = 20, append(meshes, []mesh.Axis{axis("a", 1)}, []mesh.Axis{axis("a", 4)})
	}
	worst := 0.0
	for _, axes := range meshes {
		m := newMesh(t, axes...)
		for draw := range draws {
			t.Run(fmt.Sprintf("%v/%d", m, draw), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(draw), uint64(m.Size())))
				specs := map[string]sharding.Spec{}
				c := c
				c.shard = func(name string) PortOption {
					s, ok := specs[name] // moments lie as their parameter does
					if !ok {
						shape := shapes[name]
						s = splitAnyhow(r, m, shape)
						specs[name] = s
					}
					return Sharded(s)
				}
				got := run(t, trace(t, m, func(b *Builder) { require.NoError(t, c.step(b)) }), inputs...)
				require.Len(t, got, len(want))
				for i, o := range single.Outputs() {
					for k, x := range want[i].data {
						d := relative(x, got[i].data[k])
						worst = max(worst, d)
						require.Less(t, d, 1e-5, "%s[%d]: %v on one device, %v with %v", o.Name, k, x, got[i].data[k], specs)
					}
				}
			})
		}
	}
	t.Logf("worst relative difference %.1e", worst)
}

// relative is |x-y| against the larger, or against 1e-2 near zero.
func relative(x, y float64) float64 {
	return max(x-y, y-x) / max(x, -x, y, -y, 1e-2)
}
