package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
	"titan/mesh"
)

// The compiler has the devices that we count on, in every generation, and knows
// which links there are.
func TestTopologies(t *testing.T) {
	plugin := xlatest.TPU(t)
	for name, wrap := range map[string][]int64{
		"v4:2x2x1": {0, 0, 0}, "v4:4x4x4": {1, 1, 1}, "v5e:16x16": {1, 1, 0}, "v5e:4x4*2": {0, 0, 0}, "v5p:4x4x8": {1, 1, 1}, "v6e:8x16": {0, 1, 0}, "tpu7x:4x4x4*2": {1, 1, 1},
	} {
		want, err := mesh.ParseTopology(name)
		require.NoError(t, err)
		top, err := openTopology(plugin.Path(), want)
		require.NoError(t, err, name)
		attributes, err := top.Attributes()
		require.NoError(t, err)
		require.Equal(t, wrap, attributes["wrap"], name)
		chip, err := want.Chip()
		require.NoError(t, err)
		require.InEpsilon(t, chip.HBMPerDevice(), top.memory, 0.05, name)
		top.close()
	}
}
