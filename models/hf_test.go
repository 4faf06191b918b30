package models

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/models/hfconfig"
)

// Every size is the same after it was written and read again.
func TestConfigJSONRoundTrip(t *testing.T) {
	for _, family := range Names() {
		m, err := HF(family)
		require.NoError(t, err)
		for _, flavor := range Flavors(family) {
			c, err := Lookup(family, flavor)
			require.NoError(t, err)
			data, err := hfconfig.Marshal(m, c, hfconfig.Meta{DType: dtype.BF16, Tokens: hfconfig.Tokens{EOS: []int{3, 4}}})
			require.NoError(t, err)
			f, err := hfconfig.Parse("config.json", data)
			require.NoError(t, err)
			name, back, err := FromHF(f)
			require.NoError(t, err)
			require.Equal(t, family, name)
			require.Equal(t, c, back, flavor)
			require.Empty(t, f.Unknown())
			require.Equal(t, dtype.BF16, f.DType())
			require.Equal(t, hfconfig.Tokens{EOS: []int{3, 4}}, f.Tokens())
		}
	}
	_, err := HF("qwen4")
	require.ErrorContains(t, err, `did you mean "qwen3"?`)
}

// What is written is, key for key, what published repositories have.
func TestConfigJSONAsPublished(t *testing.T) {
	for family, name := range map[string]string{"llama3": "llama_rope3", "qwen3": "qwen3_tied", "qwen3_moe": "qwen3_moe"} {
		published, err := os.ReadFile(filepath.Join("decoder/testdata/golden", name, "config_hub.json"))
		require.NoError(t, err)
		f, err := hfconfig.Parse(name, published)
		require.NoError(t, err)
		got, c, err := FromHF(f)
		require.NoError(t, err)
		require.Equal(t, family, got)
		m, err := HF(family)
		require.NoError(t, err)
		ours, err := hfconfig.Marshal(m, c, hfconfig.Meta{DType: dtype.F32, Tokens: f.Tokens()})
		require.NoError(t, err)
		var want, have map[string]any
		require.NoError(t, json.Unmarshal(published, &want))
		require.NoError(t, json.Unmarshal(ours, &have))
		delete(want, "layer_types") // what the class makes of the rest
		want["use_cache"] = true    // off for training
		if family != "llama3" {
			want["max_window_layers"] = 2.0 // of no effect without a window
		}
		require.Equal(t, want, have, family)
	}
}
