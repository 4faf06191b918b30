package configs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

// Bytes by hand: llama3 8B, all of whose matrices divide, over 64 devices.
func TestMemory(t *testing.T) {
	write(t, map[string]string{"run.toml": "model = { name = 'llama3', flavor = '8B' }\nmesh = { platform = 'tpu', topology = 'v5p:4x4x4' }\n"})
	const vectors = (2*32 + 1) * 4096
	const each = (8_030_261_248-vectors)/64 + vectors
	// In bf16, all but the embedding, the output layer and vectors.
	const layers = 8_030_261_248 - vectors - 2*128256*4096
	for _, c := range []struct {
		set         []string
		state, kept int64
	}{
		{nil, 8*each + 8, 0}, // and two counters
		{[]string{"optimizer.state_dtype=bfloat16"}, 4*each + 8, 0},
		{[]string{"parallelism.fsdp_reshard_after_forward=never"}, 8*each + 8, 2 * layers},
	} {
		r, _, err := Load("run.toml", c.set)
		require.NoError(t, err)
		m, err := r.Machine()
		require.NoError(t, err)
		got, err := r.Memory(m)
		require.NoError(t, err)
		require.Equal(t, Memory{Parameters: 4 * each, Gradients: 4 * each, State: c.state, Kept: c.kept, Device: 95 << 30}, got)
	}
}

// The devices of a recipe's machine have places where those are known.
func TestMachine(t *testing.T) {
	write(t, map[string]string{"run.toml": small})
	for name, c := range map[string]struct {
		set    []string
		placed bool
		most   mesh.Network
	}{
		"cpu":    {[]string{"mesh.devices=8"}, true, mesh.IntraHost},
		"cuda":   {[]string{"mesh.platform=cuda", "mesh.devices=8"}, false, 0},
		"slice":  {[]string{"mesh.platform=tpu", "mesh.topology=v5e:4x4"}, true, mesh.ICI},
		"slices": {[]string{"mesh.platform=tpu", "mesh.topology=v5e:4x4*2", keyReplicate + "=2"}, true, mesh.DCN},
	} {
		r, _, err := Load("run.toml", c.set)
		require.NoError(t, err, name)
		m, err := r.Machine()
		require.NoError(t, err, name)
		_, placed := m.Device(0)
		require.Equal(t, c.placed, placed, name)
		most := mesh.NoNetwork
		for _, a := range m.Axes() {
			if n, err := m.Crossing(a.Name); err == nil {
				most = max(most, n)
			}
		}
		require.Equal(t, c.most, most, name)
	}
}
