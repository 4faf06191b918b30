package decoder

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/pjrt"
)

// A model with biases on its routers' choice reads a prompt, and then a token, as it
// computes whole sequences; experts drop nothing, whatever their capacity.
func TestExtendWithRouterBias(t *testing.T) {
	const T, length = 12, 16
	c := Config{
		VocabSize: 32, Dim: 16, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 8, HiddenDim: 16, MaxSeqLen: 64, NormEps: 1e-6, RopeTheta: 1e4,
		MoE: &MoE{Experts: 6, TopK: 2, HiddenDim: 8, BiasRate: 1e-3},
	}
	r := rand.New(rand.NewPCG(21, 22))
	var types []graph.Type
	var data [][]byte
	arrays := c.Arrays()
	require.Equal(t, RouterBias, arrays[len(arrays)-1].Name)
	for _, p := range arrays {
		types, data = append(types, p.Type(dtype.F32)), append(data, normals(r, int(p.Elements())))
	}
	tokens := make([]int32, T)
	for i := range tokens {
		tokens[i] = int32(r.IntN(c.VocabSize))
	}
	types, data = append(types, graph.T(dtype.S32, 1, T)), append(data, pjrt.AsBytes(tokens))
	got := program(t, types, data, func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		stacks, rows := map[string]*graph.Value{}, map[string]*graph.Value{}
		for i, p := range arrays {
			stacks[p.Name] = in[i]
		}
		for _, row := range c.Rows() {
			x := stacks[row.Stack]
			if row.Index >= 0 {
				x = graph.Squeeze(graph.SliceDim(x, 0, row.Index, row.Index+1), 0)
			}
			rows[row.Name] = x
		}
		tokens := in[len(arrays)]
		whole := &Model{Config: c, Placement: Single{}}
		logits := whole.Logits(b, stacks, Batch{Tokens: tokens})

		few := c
		moe := *c.MoE
		moe.CapacityFactor = 0.1
		few.MoE = &moe
		m := &Model{Config: few, Placement: Single{}}
		zero := b.Zeros(c.CacheType(1, length, dtype.F32))
		caches := []Cache{{zero, zero}, {zero, zero}}
		_, caches = m.Extend(b, rows, caches, Next{Tokens: graph.SliceDim(tokens, 1, 0, T-1), Start: b.Int(dtype.S32, 0), Last: b.Int(dtype.S32, T-2)})
		next, _ := m.Extend(b, rows, caches, Next{Tokens: graph.SliceDim(tokens, 1, T-1, T), Start: b.Int(dtype.S32, T-1), Last: b.Int(dtype.S32, 0)})
		none := &Model{Config: c, Placement: Single{}}
		stacks[RouterBias] = graph.ZerosLike(stacks[RouterBias])
		unbiased := none.Logits(b, stacks, Batch{Tokens: tokens})
		last := func(x *graph.Value) *graph.Value { return graph.SliceDim(x, 1, T-1, T) }
		return []*graph.Value{last(logits), next, last(unbiased)}
	})
	requireClose(t, got[0], got[1], 1e-5, "logits")
	require.NotEqual(t, got[0], got[2], "biases must matter here")
}
