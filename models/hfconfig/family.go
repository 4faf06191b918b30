package hfconfig

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"titan/dtype"
	"titan/models/decoder"
)

// Family says how the models of a family look in Transformers.
type Family struct {
	ModelType    string // model_type
	Architecture string // the class with the output layer, in architectures
	QKNorm       bool   // queries and keys are normalised
	Experts      bool   // layers have experts

	// HeadDim is what head_dim is when it is absent.
	HeadDim func(dim, heads int) int
	// KVHeads is what num_key_value_heads is when it is absent; nil if it must be there.
	KVHeads func(heads int) int
	// Read, if not nil, reads the keys that only this family has.
	Read func(f *File, c *decoder.Config)
	// Write, if not nil, adds the keys that only this family has.
	Write func(c decoder.Config, o Object) error
	// Mapping is the table of tensors, in the notation of checkpoint/hf.
	Mapping func(c decoder.Config) string
}

// Fits reports what of a model the family's class in Transformers cannot express.
func (m *Family) Fits(c decoder.Config) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(m.Architecture+" in Transformers "+format, args...))
	}
	switch {
	case c.QKNorm && !m.QKNorm:
		bad("has no norms on queries and keys (qk_norm); the qwen3 families have")
	case !c.QKNorm && m.QKNorm:
		bad("always has norms on queries and keys, and this model has none (qk_norm = false)")
	}
	if (c.MoE != nil) != m.Experts {
		bad("has experts: %v, and this model has: %v", m.Experts, c.MoE != nil)
	}
	if len(c.Buffers()) > 0 {
		bad("has no bias on the router's choice (moe.load_balance = \"bias\")")
	}
	return errors.Join(append(errs, c.Validate())...)
}

// Tokens are the ids of special tokens.
type Tokens struct {
	BOS, EOS, Pad []int // several only where a model ends at any of them
}

// ModelType returns model_type, which decides the family.
func (f *File) ModelType() string { return f.String("model_type", "") }

// DType returns the element type that the file gives for the weights; Invalid if
// it gives none, or one titan does not know.
func (f *File) DType() dtype.DType {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if s := f.String(key, ""); s != "" {
			if d, err := dtype.Parse(strings.TrimPrefix(s, "torch.")); err == nil {
				return d
			}
		}
	}
	return dtype.Invalid
}

// Tokens returns the special tokens. (Where a file gives none Transformers' Llama
// has 1 and 2; here they are none.)
func (f *File) Tokens() Tokens {
	return Tokens{f.Ints("bos_token_id", nil), f.Ints("eos_token_id", nil), f.Ints("pad_token_id", nil)}
}

// Decoder returns the model that the file describes, as a family's class in
// Transformers reads it. It fails, listing all faults, if keys are missing or
// wrong, or ask for what titan does not have.
func (f *File) Decoder(m Family) (decoder.Config, error) {
	if t := f.ModelType(); t != m.ModelType {
		f.Fault("model_type", "is %q and must be %q", t, m.ModelType)
	}
	f.architecture(m.Architecture)
	f.refuse()
	c := decoder.Config{
		VocabSize: f.Int("vocab_size"), Dim: f.Int("hidden_size"), Layers: f.Int("num_hidden_layers"),
		Heads: f.Int("num_attention_heads"), HiddenDim: f.Int("intermediate_size"),
		MaxSeqLen: f.Int("max_position_embeddings"),
		NormEps:   f.Float("rms_norm_eps", 1e-6), QKNorm: m.QKNorm,
		TieEmbeddings: f.Bool("tie_word_embeddings", false),
	}
	if m.KVHeads == nil {
		c.KVHeads = f.Int("num_key_value_heads")
	} else {
		c.KVHeads = f.Int("num_key_value_heads", m.KVHeads(c.Heads))
	}
	c.HeadDim = f.Int("head_dim", m.HeadDim(c.Dim, max(c.Heads, 1)))
	c.RopeTheta, c.RopeScaling = f.rope(c.MaxSeqLen)
	if m.Read != nil {
		m.Read(f, &c)
	}
	f.DType()
	f.Tokens()
	f.limit(c)
	if len(f.errs) == 0 { // else they would be told twice
		if err := c.Validate(); err != nil {
			f.errs = append(f.errs, err)
		}
	}
	return c, f.Err()
}

// limit refuses numbers that no model has, before anything is made that large.
func (f *File) limit(c decoder.Config) {
	const layers, experts = 100_000, 10_000_000 // the latter of all layers
	if c.Layers > layers {
		f.Fault("num_hidden_layers", "is %d and cannot be more than %d", c.Layers, layers)
	} else if m := c.MoE; m != nil && m.Experts > experts/max(1, c.Layers) {
		f.Fault("num_experts", "%d experts in %d layers are too many", m.Experts, c.Layers)
	}
	for key, n := range map[string]int{"vocab_size": c.VocabSize, "hidden_size": c.Dim, "intermediate_size": c.HiddenDim, "head_dim": c.HeadDim, "num_attention_heads": c.Heads} {
		if n > math.MaxInt32 {
			f.Fault(key, "is %d and cannot be more than %d", n, math.MaxInt32)
		}
	}
}

// architecture refuses models with another head than the one for language modelling.
func (f *File) architecture(want string) {
	v, ok := f.lookup("architectures")
	list, isList := v.([]any)
	if !ok || isList && len(list) == 0 || slices.Contains(list, any(want)) {
		return
	}
	f.Fault("architectures", "is %s and must have %q: titan trains language models with their output layer", show(v), want)
}

// refuse finds values that would change what the model computes, and marks those
// that do not matter.
func (f *File) refuse() {
	f.Only("hidden_act", "titan's feed-forward layers have silu", "silu", "swish")
	f.Only("attention_bias", "titan's attention has no biases", false)
	f.Only("mlp_bias", "titan's feed-forward layers have no biases", false)
	f.Only("use_sliding_window", "titan has no sliding window", false)
	f.Only("rope_interleaved", "titan's rotary embedding pairs the first half with the second", false)
	f.Only("partial_rotary_factor", "titan's rotary embedding turns the whole head", 1.0)
	f.Only("attention_dropout", "titan has no dropout; write 0", 0.0)
	f.Only("quantization_config", "the weights are quantised; use the model they were made from")
	f.Only("per_layer_config", "titan's layers are all alike")
	if v, ok := f.lookup("layer_types"); ok {
		list, isList := v.([]any)
		if !isList || slices.ContainsFunc(list, func(t any) bool { return t != "full_attention" }) {
			f.Fault("layer_types", "is %s: titan has full_attention only", show(v))
		}
	}
	f.Ignore("sliding_window", "max_window_layers", // of no effect without use_sliding_window
		"initializer_range", "use_cache", "pretraining_tp", "transformers_version", "is_encoder_decoder",
		"id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "finetuning_task",
		"return_dict", "output_attentions", "output_hidden_states", "torchscript", "name_or_path",
		"chunk_size_feed_forward", "do_sample", "temperature", "top_p", "top_k")
}
