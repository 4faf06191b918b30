package decoder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/graph"
)

func TestActivationCheckpointPolicy(t *testing.T) {
	selective := func(option string) ActivationCheckpoint {
		return ActivationCheckpoint{Mode: RematSelective, SelectiveOption: option, Save: []string{NameQ}}
	}
	nothing := graph.SaveNothing()
	for _, c := range []struct {
		a     ActivationCheckpoint
		keeps []string
		every int
		is    string
	}{
		{ActivationCheckpoint{Mode: RematFull, Save: []string{NameQ}}, nil, 1, "full"},
		{ActivationCheckpoint{Mode: RematFull, Offload: []string{NameLayerIn}}, []string{NameLayerIn}, 1, "full, offload layer_in"},
		{selective("op"), []string{NameQ}, 1, "selective, save q"},
		{selective("3"), nil, 3, "selective, every 3"},
		{selective("save_qkv_proj"), []string{NameQ, NameK, NameV}, 1, "selective, save_qkv_proj"},
	} {
		require.NoError(t, c.a.Validate())
		policy, every := c.a.Policy()
		require.NotNil(t, policy)
		require.Equal(t, c.every, every)
		for _, n := range SavedNames() {
			require.Equal(t, len(c.keeps) > 0 && contains(c.keeps, n), c.a.Keeps(n), "%v: %s", c.a, n)
		}
		if len(c.keeps) == 0 {
			require.Equal(t, nothing.And(nothing), policy.And(nothing))
		}
		require.Equal(t, c.is, c.a.String())
	}
	policy, _ := ActivationCheckpoint{Mode: RematNone}.Policy()
	require.Nil(t, policy)
	require.NoError(t, DefaultActivationCheckpoint().Validate())
}

func contains(list []string, x string) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

func TestActivationCheckpointMistakes(t *testing.T) {
	for want, a := range map[string]ActivationCheckpoint{
		`activation_checkpoint.offload: has values of checkpointed layers, and there are none with mode "none"`: {Mode: RematNone, Offload: []string{NameQ}},
		`activation_checkpoint.offload: "resid" is kept on the device as well`:                                  {Mode: RematSelective, SelectiveOption: "minimal", Offload: []string{NameAttnOut, NameResid}},
		`activation_checkpoint.save: no value is called "qu"`:                                                   {Mode: RematFull, Save: []string{"qu"}},
		`activation_checkpoint.selective_ac_option: "0" is neither`:                                             {Mode: RematSelective, SelectiveOption: "0"},
	} {
		require.ErrorContains(t, a.Validate(), want)
	}
}

func TestMemoryBudget(t *testing.T) {
	budget := func(s string) ActivationCheckpoint { return ActivationCheckpoint{Mode: RematBudget, MemoryBudget: s} }
	const device = 32 << 30
	for s, want := range map[string]int64{"": device, "14GiB": 14 << 30, " 1.5 GiB ": 3 << 29, "800MiB": 800 << 20, "512KiB": 512 << 10, "0.5 TiB": 1 << 39, "50%": 16 << 30, "100 %": device} {
		b, err := budget(s).Budget()
		require.NoError(t, err)
		require.Equal(t, want, b.Of(device), s)
		require.NoError(t, budget(s).Validate())
	}
	b, err := budget("50%").Budget()
	require.NoError(t, err)
	require.Zero(t, b.Of(0), "of a device that does not say what it has")
	for _, s := range []string{"14", "14GB", "0GiB", "-1GiB", "nanGiB", "infGiB", "101%", "0%", "%", "1e30GiB", "half"} {
		require.ErrorContains(t, budget(s).Validate(), "activation_checkpoint.memory_budget", s)
	}
}

// All candidates are settings that a recipe may have, for the values of the model.
func TestCandidates(t *testing.T) {
	dense := Config{Layers: 32}
	sparse := Config{Layers: 4, MoE: &MoE{}}
	for _, c := range []*Config{&dense, &sparse} {
		list := ActivationCheckpoint{Mode: RematBudget, Offload: []string{NameLayerIn}}.Candidates(c)
		seen := map[string]bool{}
		for _, a := range list {
			require.NoError(t, a.Validate())
			require.False(t, seen[a.String()], "%v twice", a)
			seen[a.String()] = true
		}
		require.True(t, seen["none"] && seen["full"] && seen["full, offload layer_in"] && seen["selective, minimal"])
		require.Equal(t, c.Layers >= 16, seen["selective, every 8"])
	}
}
