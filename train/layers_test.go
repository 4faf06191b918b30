package train

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models/decoder"
)

var numbers = regexp.MustCompile(`\d+`)

// programSize returns the length of a step's program and its number of ops. Numbers
// count as one digit: layers are counted in shapes.
func programSize(t *testing.T, c parityCase, layers int, policy decoder.ActivationCheckpoint) (text, ops int) {
	t.Helper()
	c.change = func(o *StepOptions) {
		o.Model.Layers, o.Options.Remat = layers, policy
		o.Optimizer = goldenOptimizer(t, o.Model)
	}
	s, err := BuildStep(c.options(t))
	require.NoError(t, err)
	program := s.Module.StableHLO()
	return len(numbers.ReplaceAllString(program, "0")), strings.Count(program, " = ")
}

// The program has the same size for 4 and for 16 layers, in every mode; in a
// pipeline for 4 and for 16 layers of every stage.
func TestProgramSizeIsThatOfOneLayer(t *testing.T) {
	op := policyOf("op")
	op.Save = []string{decoder.NameAttnOut, decoder.NameWeights}
	offload := policyOf("full")
	offload.Offload = []string{decoder.NameLayerIn}
	policies := []decoder.ActivationCheckpoint{policyOf("none"), policyOf("full"), policyOf("1"), policyOf("2"), op, policyOf("minimal"), offload}
	all := []parityCase{{mesh: "dp_shard=4", passes: 4}}
	for _, moe := range []bool{false, true} {
		for _, mesh := range []degrees{"dp_shard=8", "dp_replicate=2 dp_shard=4", "dp_shard=4 tp=2", "dp_shard=4 cp=2", "pp=2 dp_shard=4", "dp_shard=2 ep=4"} {
			c := parityCase{mesh: mesh, moe: moe}
			if strings.Contains(string(mesh), "pp") {
				c.passes = 4
			}
			if moe || !strings.Contains(string(mesh), "ep=") {
				all = append(all, c)
			}
		}
	}
	for _, c := range all {
		stages := 1
		if strings.HasPrefix(string(c.mesh), "pp=2") {
			stages = 2
		}
		for _, policy := range policies {
			text, ops := programSize(t, c, 4*stages, policy)
			more, moreOps := programSize(t, c, 16*stages, policy)
			require.Equal(t, ops, moreOps, "%v, %v: ops", c, policy)
			require.Equal(t, text, more, "%v, %v: bytes", c, policy)
		}
	}
	text, _ := programSize(t, parityCase{mesh: "dp_shard=8"}, 4, policyOf("none"))
	written := parityCase{mesh: "dp_shard=8"}.options(t)
	written.Options.Unroll = true
	s, err := BuildStep(written)
	require.NoError(t, err)
	require.Greater(t, len(numbers.ReplaceAllString(s.Module.StableHLO(), "0")), text*3/2, "layers that are written out")
}
