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
// gradients scattered, while products are computed: all of a layer's but what comes
// first in forward and last in backward can be.
func TestCollectivesOverlapOnTPU(t *testing.T) {
	topology, err := mesh.ParseTopology("v6e:2x2")
	require.NoError(t, err)
	chip, err := topology.Chip()
	require.NoError(t, err)
	model := decoder.Config{
		VocabSize: 512, Dim: 1024, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 128, HiddenDim: 4096, MaxSeqLen: 1024,
		NormEps: 1e-6, RopeTheta: 1e4,
	}
	m, p := testMesh(t, 1, 4), Platform{Chip: &chip}
	o := StepOptions{
		Model: model, Placement: parallel.Options{Compute: dtype.BF16, Reduce: dtype.F32, Reshard: true}, Mesh: m, Optimizer: goldenOptimizer(t, model),
		Options: decoder.Options{Remat: policyOf("full"), RopeProduct: true},
		Rows:    8, SeqLen: 1024, Passes: 1,
	}
	useKernels(&o.Options, kernels.DefaultConfig(), p)
	s, err := BuildStep(o)
	require.NoError(t, err)
	topo, err := xlatest.TPU(t).NewTopology(topology.SliceName(), nil)
	require.NoError(t, err)
	defer topo.Close()
	options := CompileOptions(m, p)
	options.DeviceIDs = nil
	x, err := topo.Compile([]byte(s.Module.StableHLO()), options)
	require.NoError(t, err)
	defer x.Close()
	_, code, err := x.OptimizedProgram()
	require.NoError(t, err)
	mod, err := hlo.Parse(code)
	require.NoError(t, err)

	all, hidden := map[string]int{}, map[string]int{}
	for _, c := range mod.Collectives() {
		if c.Times != int64(model.Layers) {
			continue
		}
		all[c.Kind()]++
		if c.Done == nil {
			t.Logf("%s is synchronous", c.Op.Name)
			continue
		}
		order := c.Start.Parent.Order()
		between := order[slices.Index(order, c.Start):slices.Index(order, c.Done)]
		if slices.ContainsFunc(between, multiplies) {
			hidden[c.Kind()]++
		} else {
			t.Logf("nothing is multiplied beside %s", c.Op.Name)
		}
	}
	t.Logf("in the layers: %v, beside products: %v", all, hidden)
	require.Equal(t, 14, all["all-gather"], "seven matrices, twice")
	require.Equal(t, 7, all["reduce-scatter"])
	require.GreaterOrEqual(t, hidden["all-gather"], 12)
	require.GreaterOrEqual(t, hidden["reduce-scatter"], 6)
}

// multiplies reports whether an instruction keeps the matrix units busy.
func multiplies(i *hlo.Instruction) bool {
	if i.CustomCallTarget == hlo.TileKernel || i.Opcode == "convolution" || i.Opcode == "dot" {
		return true
	}
	return i.Opcode == "fusion" && slices.ContainsFunc(i.Called, func(c *hlo.Computation) bool { return slices.ContainsFunc(c.Instructions, multiplies) })
}
