package hfconfig

import "titan/models/decoder"

const everyLayer = `
embed            = model.embed_tokens.weight                              : v d -> v d
layers.attn_norm = model.layers.{layer}.input_layernorm.weight            : layer d -> d
layers.wq        = model.layers.{layer}.self_attn.q_proj.weight           : layer d h k -> (h k) d
layers.wk        = model.layers.{layer}.self_attn.k_proj.weight           : layer d h k -> (h k) d
layers.wv        = model.layers.{layer}.self_attn.v_proj.weight           : layer d h k -> (h k) d
layers.wo        = model.layers.{layer}.self_attn.o_proj.weight           : layer h k d -> d (h k)
layers.ffn_norm  = model.layers.{layer}.post_attention_layernorm.weight   : layer d -> d
norm             = model.norm.weight                                      : d -> d
# Old repositories store what can be computed.
ignore model.layers.{layer}.self_attn.rotary_emb.inv_freq
`

// Decoder returns the part of a table that all families here have in common: the
// embedding, attention, norms and the output layer. A tied model may have the
// latter on their side; whether it is the embedding is for the caller to see.
func Decoder(c decoder.Config) string {
	if c.TieEmbeddings {
		return everyLayer + "ignore lm_head.weight\n"
	}
	return everyLayer + "output = lm_head.weight : d v -> v d\n"
}

// QKNorm returns the part for norms on queries and keys.
func QKNorm() string {
	return `
layers.q_norm = model.layers.{layer}.self_attn.q_norm.weight : layer k -> k
layers.k_norm = model.layers.{layer}.self_attn.k_norm.weight : layer k -> k
`
}

// DenseMLP returns the part for the feed-forward layers without experts, which
// have the given numbers; "" if there are none.
func DenseMLP(layers []int) string {
	if len(layers) == 0 {
		return ""
	}
	at := " | layer=" + Layers(layers) + "\n"
	return "layers.w_gate = model.layers.{layer}.mlp.gate_proj.weight : layer d f -> f d" + at +
		"layers.w_up = model.layers.{layer}.mlp.up_proj.weight : layer d f -> f d" + at +
		"layers.w_down = model.layers.{layer}.mlp.down_proj.weight : layer f d -> d f" + at
}
