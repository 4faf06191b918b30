package hfconfig_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/models"
	"titan/models/decoder"
	"titan/models/hfconfig"
)

// read reads the golden config.json of a case with some keys changed; a nil
// value removes a key.
func read(t *testing.T, name string, keys map[string]any) (*hfconfig.File, decoder.Config, error) {
	t.Helper()
	data, err := os.ReadFile("../decoder/testdata/golden/" + name + "/config_hub.json")
	require.NoError(t, err)
	var o map[string]any
	require.NoError(t, json.Unmarshal(data, &o))
	for k, v := range keys {
		if v == nil {
			delete(o, k)
		} else {
			o[k] = v
		}
	}
	data, err = json.Marshal(o)
	require.NoError(t, err)
	f, err := hfconfig.Parse("some/config.json", data)
	require.NoError(t, err)
	_, c, err := models.FromHF(f)
	return f, c, err
}

type keys = map[string]any

func TestRefused(t *testing.T) {
	scaling := func(with keys) keys {
		o := keys{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 32}
		maps.Copy(o, with)
		return keys{"rope_scaling": o}
	}
	for name, c := range map[string]struct {
		model string
		keys  keys
		says  string
	}{
		"bias":            {"llama", keys{"attention_bias": true}, "attention_bias: is true: titan's attention has no biases"},
		"mlp bias":        {"llama", keys{"mlp_bias": true}, "mlp_bias: is true"},
		"window":          {"qwen3_tied", keys{"use_sliding_window": true}, "use_sliding_window: is true: titan has no sliding window"},
		"layer types":     {"qwen3_tied", keys{"layer_types": []string{"full_attention", "sliding_attention"}}, "titan has full_attention only"},
		"activation":      {"llama", keys{"hidden_act": "gelu"}, `hidden_act: is "gelu": titan's feed-forward layers have silu`},
		"dropout":         {"llama", keys{"attention_dropout": 0.1}, "attention_dropout: is 0.1: titan has no dropout"},
		"quantised":       {"llama", keys{"quantization_config": keys{"bits": 4}}, "the weights are quantised"},
		"head":            {"llama", keys{"architectures": []string{"LlamaForSequenceClassification"}}, `must have "LlamaForCausalLM"`},
		"yarn":            {"llama", keys{"rope_scaling": keys{"type": "yarn", "factor": 4}}, `rope_type: is "yarn"; titan has "default" and "llama3"`},
		"half llama3":     {"llama", scaling(keys{"factor": nil}), "factor: is missing"},
		"stray in llama3": {"llama", scaling(keys{"beta_fast": 32}), "beta_fast: is 32, which titan's rotary embedding does not have"},
		"stray in rope":   {"llama", keys{"rope_parameters": keys{"rope_type": "default", "factor": 2}}, "factor: is 2"},
		"partial":         {"llama", keys{"partial_rotary_factor": 0.5}, "partial_rotary_factor: is 0.5"},
		"partial inside":  {"llama", keys{"rope_parameters": keys{"partial_rotary_factor": 0.5}}, "partial_rotary_factor: is 0.5"},
		"two bases":       {"llama", keys{"rope_parameters": keys{"rope_theta": 1000}}, "rope_theta: has rope_theta 500000, and elsewhere it is 1000"},
		"two kinds":       {"llama_rope3", keys{"rope_parameters": keys{"type": "default"}}, `rope_scaling: has rope_type "llama3", and elsewhere it is "default"`},
		"two lengths":     {"llama_rope3", keys{"original_max_position_embeddings": 64}, "has original_max_position_embeddings 64, and elsewhere it is 32"},
		"scaling is text": {"llama", keys{"rope_scaling": "llama3"}, `rope_scaling: is "llama3" and must be an object`},
		"factor below 1":  {"llama", scaling(keys{"factor": 0.5}), "factor must be at least 1"},
		"missing":         {"llama", keys{"hidden_size": nil}, "hidden_size: is missing"},
		"kv heads":        {"qwen3_tied", keys{"num_key_value_heads": nil}, "num_key_value_heads: is missing"},
		"text":            {"llama", keys{"hidden_size": "64"}, `hidden_size: is "64" and must be a whole number`},
		"fraction":        {"llama", keys{"hidden_size": 64.5}, "hidden_size: is 64.5 and must be a whole number"},
		"eps":             {"llama", keys{"rms_norm_eps": true}, "rms_norm_eps: is true and must be a number"},
		"tie":             {"llama", keys{"tie_word_embeddings": 1}, "tie_word_embeddings: is 1 and must be true or false"},
		"odd":             {"llama", keys{"head_dim": 15}, "head_dim 15 is odd"},
		"kv":              {"llama", keys{"num_key_value_heads": 3}, "no multiple of n_kv_heads 3"},
		"too many layers": {"llama", keys{"num_hidden_layers": 1e12}, "num_hidden_layers: is 1000000000000 and cannot be more"},
		"too large":       {"llama", keys{"vocab_size": 1e15}, "vocab_size: is 1000000000000000"},
		"experts":         {"qwen3_moe", keys{"num_experts": nil}, "num_experts: is missing"},
		"all experts":     {"qwen3_moe", keys{"num_experts": 1e9}, "1000000000 experts in 2 layers are too many"},
		"two counts":      {"qwen3_moe", keys{"num_local_experts": 4}, "num_experts: is 8, but num_local_experts is 4"},
		"top k":           {"qwen3_moe", keys{"num_experts_per_tok": 9}, "top_k is 9"},
		"step":            {"qwen3_moe", keys{"decoder_sparse_step": 0}, "decoder_sparse_step: is 0 and must be positive"},
		"only":            {"qwen3_moe", keys{"mlp_only_layers": []any{0, "1"}}, "mlp_only_layers"},
		"type":            {"llama", keys{"model_type": "mistral"}, `model_type: is "mistral", which titan does not have`},
		"no type":         {"llama", keys{"model_type": nil}, `model_type: is missing; titan has ["llama" "qwen3" "qwen3_moe"]`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(t, c.model, c.keys)
			require.ErrorContains(t, err, "some/config.json: ")
			require.ErrorContains(t, err, c.says)
		})
	}
	_, _, err := read(t, "qwen3_moe", keys{"attention_bias": true, "hidden_act": "relu", "num_experts": nil, "vocab_size": "x"})
	for _, key := range []string{"attention_bias", "hidden_act", "num_experts", "vocab_size"} {
		require.ErrorContains(t, err, key+": ", "all at once")
	}
}

// What Transformers takes for a key that is absent.
func TestDefaults(t *testing.T) {
	f, c, err := read(t, "llama", keys{
		"head_dim": nil, "num_key_value_heads": nil, "rms_norm_eps": nil, "rope_theta": nil, "rope_scaling": nil, "tie_word_embeddings": nil,
		"architectures": nil, "hidden_act": nil, "attention_bias": nil, "torch_dtype": nil, "bos_token_id": nil, "eos_token_id": []int{2, 3},
	})
	require.NoError(t, err)
	require.Equal(t, decoder.Config{VocabSize: 256, Dim: 64, Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 16, HiddenDim: 128, MaxSeqLen: 128, NormEps: 1e-6, RopeTheta: 10000}, c)
	require.Equal(t, dtype.Invalid, f.DType())
	require.Equal(t, hfconfig.Tokens{EOS: []int{2, 3}}, f.Tokens())

	_, c, err = read(t, "qwen3_tied", keys{"head_dim": nil, "sliding_window": 4096, "max_window_layers": 1})
	require.NoError(t, err)
	require.Equal(t, 128, c.HeadDim)

	_, c, err = read(t, "qwen3_moe", keys{"norm_topk_prob": nil, "decoder_sparse_step": nil, "mlp_only_layers": nil, "router_aux_loss_coef": nil, "head_dim": nil})
	require.NoError(t, err)
	require.Equal(t, decoder.MoE{Experts: 8, TopK: 2, HiddenDim: 32, SparseStep: 1, AuxLossCoef: 0.001}, *c.MoE)
	require.Equal(t, 16, c.HeadDim)
}

// The ways in which one rotary embedding is written.
func TestRope(t *testing.T) {
	inside := keys{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4, "original_max_position_embeddings": 32}
	with := func(more keys) keys {
		o := maps.Clone(inside)
		maps.Copy(o, more)
		return o
	}
	want := decoder.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxSeqLen: 32}
	for name, k := range map[string]keys{
		"old":       {"rope_theta": 5e5, "rope_scaling": inside},
		"new":       {"rope_theta": nil, "rope_scaling": nil, "rope_parameters": with(keys{"rope_theta": 500000})},
		"both":      {"rope_theta": 500000, "rope_scaling": inside, "rope_parameters": with(keys{"rope_theta": 5e5})},
		"per layer": {"rope_theta": nil, "rope_parameters": keys{"full_attention": with(keys{"rope_theta": 500000})}},
		"type":      {"rope_scaling": with(keys{"type": "llama3"})},
		"outside":   {"original_max_position_embeddings": 32, "rope_scaling": inside},
		"full":      {"partial_rotary_factor": 1.0, "rope_scaling": inside},
	} {
		t.Run(name, func(t *testing.T) {
			f, c, err := read(t, "llama", k)
			require.NoError(t, err)
			require.Equal(t, want, *c.RopeScaling)
			require.Equal(t, 500000.0, c.RopeTheta)
			require.Empty(t, f.Unknown())
		})
	}
	delete(inside, "original_max_position_embeddings")
	_, c, err := read(t, "llama", keys{"rope_scaling": inside})
	require.NoError(t, err)
	require.Equal(t, 128, c.RopeScaling.OriginalMaxSeqLen, "max_position_embeddings")
}

func TestParse(t *testing.T) {
	for text, says := range map[string]string{
		"": "not a JSON object", "[]": "not a JSON object", "null": "null", `{"a": 1`: "not a JSON object", "{} {}": "something after",
	} {
		_, err := hfconfig.Parse("c.json", []byte(text))
		require.ErrorContains(t, err, says, text)
		require.ErrorContains(t, err, "c.json")
	}
	f, _, err := read(t, "llama", keys{"unheard_of": 1, "_internal": 2, "transformers_version": "5"})
	require.NoError(t, err)
	require.Equal(t, []string{"unheard_of"}, f.Unknown())
}

func TestFits(t *testing.T) {
	flavor := func(family string, change func(*decoder.Config)) error {
		c, err := models.Lookup(family, "debugmodel")
		require.NoError(t, err)
		change(&c)
		m, err := models.HF(family)
		require.NoError(t, err)
		_, err = hfconfig.Marshal(m, c, hfconfig.Meta{DType: dtype.F32})
		return err
	}
	require.ErrorContains(t, flavor("llama3", func(c *decoder.Config) { c.QKNorm = true }), "LlamaForCausalLM in Transformers has no norms")
	require.ErrorContains(t, flavor("qwen3", func(c *decoder.Config) { c.QKNorm = false }), "Qwen3ForCausalLM in Transformers always has norms")
	require.ErrorContains(t, flavor("qwen3_moe", func(c *decoder.Config) { c.MoE = nil }), "has experts: true")
	require.ErrorContains(t, flavor("qwen3", func(c *decoder.Config) { c.MoE = &decoder.MoE{Experts: 4, TopK: 1, HiddenDim: 8} }), "has experts: false")
	require.ErrorContains(t, flavor("llama3", func(c *decoder.Config) { c.Heads, c.KVHeads = 3, 3 }), "multiple of the heads")
	require.ErrorContains(t, flavor("llama3", func(c *decoder.Config) { c.Dim = 0 }), "dim is 0")

	c, err := models.Lookup("llama3", "debugmodel")
	require.NoError(t, err)
	m, err := models.HF("llama3")
	require.NoError(t, err)
	_, err = hfconfig.Marshal(m, c, hfconfig.Meta{DType: dtype.F64})
	require.ErrorContains(t, err, "choose float32, bfloat16 or float16")
}

// Numbers with a fraction keep it: readers in Python tell 8 from 8.0.
func TestFloat(t *testing.T) {
	for x, want := range map[hfconfig.Float]string{8: "8.0", 0: "0.0", 1e-6: "1e-06", 500000: "500000.0", 0.02: "0.02", 1e7: "10000000.0", 1e300: "1e+300"} {
		got, err := json.Marshal(x)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	_, err := json.Marshal(hfconfig.Float(math.Inf(1)))
	require.Error(t, err)
}
