package train

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/kernels"
	"titan/mesh"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt/hlo"
)

// Compiled for a TPU as a run is, parameters of layers are gathered, and their
// gradients scattered, by asynchronous collectives. Gradients are all scattered
// beside products, and so is half of the gathers of a model as small as this, whose
// products are over sooner.
func TestCollectivesOverlapOnTPU(t *testing.T) {
	topology, err := mesh.ParseTopology("v6e:2x2")
	require.NoError(t, err)
	chip, err := topology.Chip()
	require.NoError(t, err)
	model := decoder.Config{
		VocabSize: 256, Dim: 512, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 128, HiddenDim: 2048, MaxSeqLen: 512,
		NormEps: 1e-6, RopeTheta: 1e4,
	}
	m, p := testMesh(t, 1, 4), Platform{Chip: &chip}
	o := StepOptions{
		Model: model, Placement: parallel.Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: true}, Mesh: m, Optimizer: goldenOptimizer(t, model),
		Options: decoder.Options{Remat: policyOf("full"), RopeProduct: true},
		Rows:    4, SeqLen: 512, Passes: 1,
	}
	useKernels(&o.Options, kernels.DefaultConfig(), p)
	s, err := BuildStep(o)
	require.NoError(t, err)
	options := CompileOptions(m, p)
	options.DeviceIDs = nil
	mod, err := xlatest.CompileTPU(t, topology.SliceName(), s.Module.StableHLO(), options).OptimizedHLO()
	require.NoError(t, err)

	all, hidden := map[string]int{}, map[string]int{}
	for _, c := range mod.Collectives() {
		if c.Times != int64(model.Layers) {
			continue
		}
		all[c.Kind()]++
		require.NotNil(t, c.Done, "%s is synchronous", c.Op.Name)
		order := c.Start.Parent.Order()
		between := order[slices.Index(order, c.Start):slices.Index(order, c.Done)]
		if slices.ContainsFunc(between, multiplies) {
			hidden[c.Kind()]++
		}
	}
	t.Logf("in the layers: %v, beside products: %v", all, hidden)
	require.Equal(t, 14, all["all-gather"], "seven matrices, twice")
	require.Equal(t, 7, all["reduce-scatter"])
	require.GreaterOrEqual(t, hidden["all-gather"], 6)
	require.GreaterOrEqual(t, hidden["reduce-scatter"], 6)
}

// multiplies reports whether an instruction keeps the matrix units busy.
func multiplies(i *hlo.Instruction) bool {
	if i.CustomCallTarget == hlo.TileKernel || i.Opcode == "convolution" || i.Opcode == "dot" {
		return true
	}
	return i.Opcode == "fusion" && slices.ContainsFunc(i.Called, func(c *hlo.Computation) bool { return slices.ContainsFunc(c.Instructions, multiplies) })
}
