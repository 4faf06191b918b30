package optim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/decoder"
	"titan/optim"
)

// Of a decoder's parameters, as it names their axes, Muon has the matrices of
// the layers.
func TestMuonOfDecoder(t *testing.T) {
	c := decoder.Config{VocabSize: 32, Dim: 16, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 6, HiddenDim: 24, QKNorm: true,
		MoE: &decoder.MoE{Experts: 4, TopK: 2, HiddenDim: 8, MLPOnlyLayers: []int{0}}}
	var params []optim.Param
	for _, p := range c.Params() {
		params = append(params, optim.Param{Name: p.Name, Shape: p.Shape, Axes: p.Axes})
	}
	cfg := optim.Defaults()
	cfg.Name = optim.Muon
	o, err := optim.New(cfg, optim.DefaultSchedule(), 10, 1, params)
	require.NoError(t, err)
	g := o.Groups()
	require.Len(t, g, 2)
	require.Equal(t, []string{"embed", "layers.attn_norm", "layers.q_norm", "layers.k_norm", "layers.ffn_norm", "norm", "output"}, g[0].Params)
	require.Equal(t, []string{"layers.wq", "layers.wk", "layers.wv", "layers.wo", "layers.w_gate", "layers.w_up", "layers.w_down",
		"layers.router", "layers.experts.w_gate", "layers.experts.w_up", "layers.experts.w_down"}, g[1].Params)
	require.Equal(t, [3]int{4, 16, 24}, optim.Matrices(o, "layers.wq"))
	require.Equal(t, [3]int{4, 16, 12}, optim.Matrices(o, "layers.wk"))
	require.Equal(t, [3]int{4, 24, 16}, optim.Matrices(o, "layers.wo"))
	require.Equal(t, [3]int{1, 24, 16}, optim.Matrices(o, "layers.w_down"))
	require.Equal(t, [3]int{3, 16, 4}, optim.Matrices(o, "layers.router"))
	require.Equal(t, [3]int{12, 8, 16}, optim.Matrices(o, "layers.experts.w_down"))
}
