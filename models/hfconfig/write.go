package hfconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"titan/dtype"
	"titan/models/decoder"
)

// Object is the content of a JSON object, written with sorted keys.
type Object map[string]any

// Float is a number that is written as Python writes it: 8.0, not 8, which some
// readers take for another type.
type Float float64

// MarshalJSON writes the shortest decimals that are this number.
func (x Float) MarshalJSON() ([]byte, error) {
	v := float64(x)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("JSON has no %v", v)
	}
	if v == math.Trunc(v) && math.Abs(v) < 1e16 {
		return strconv.AppendFloat(nil, v, 'f', 1, 64), nil
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
}

// Meta is what a config.json says besides the model.
type Meta struct {
	DType  dtype.DType // of the weights: F32, BF16 or F16
	Tokens Tokens
}

// DTypeName returns the name Transformers has for an element type of weights.
func DTypeName(d dtype.DType) (string, error) {
	switch d {
	case dtype.F32:
		return "float32", nil
	case dtype.BF16:
		return "bfloat16", nil
	case dtype.F16:
		return "float16", nil
	}
	return "", fmt.Errorf("weights of type %v cannot be used by Transformers: choose float32, bfloat16 or float16", d)
}

// Marshal returns the config.json of a model. It fails if the family's class in
// Transformers cannot express it.
func Marshal(m Family, c decoder.Config, meta Meta) ([]byte, error) {
	if err := m.Fits(c); err != nil {
		return nil, err
	}
	name, err := DTypeName(meta.DType)
	if err != nil {
		return nil, err
	}
	o := Object{
		"architectures":           []string{m.Architecture},
		"attention_bias":          false,
		"attention_dropout":       Float(0),
		"head_dim":                c.HeadDim,
		"hidden_act":              "silu",
		"hidden_size":             c.Dim,
		"initializer_range":       Float(0.02),
		"intermediate_size":       c.HiddenDim,
		"max_position_embeddings": c.MaxSeqLen,
		"model_type":              m.ModelType,
		"num_attention_heads":     c.Heads,
		"num_hidden_layers":       c.Layers,
		"num_key_value_heads":     c.KVHeads,
		"rms_norm_eps":            Float(c.NormEps),
		"rope_scaling":            nil,
		"rope_theta":              Float(c.RopeTheta),
		"tie_word_embeddings":     c.TieEmbeddings,
		"torch_dtype":             name,
		"use_cache":               true,
		"vocab_size":              c.VocabSize,
	}
	if s := c.RopeScaling; s != nil {
		o["rope_scaling"] = Object{
			"rope_type": "llama3", "factor": Float(s.Factor),
			"low_freq_factor": Float(s.LowFreqFactor), "high_freq_factor": Float(s.HighFreqFactor),
			"original_max_position_embeddings": s.OriginalMaxSeqLen,
		}
	}
	meta.Tokens.write(o)
	if m.Write != nil {
		if err := m.Write(c, o); err != nil {
			return nil, err
		}
	}
	return o.Marshal()
}

// MarshalGeneration returns the generation_config.json of a model.
func MarshalGeneration(t Tokens) ([]byte, error) {
	o := Object{"_from_model_config": true}
	t.write(o)
	return o.Marshal()
}

// write adds the special tokens. Those that are not known are null: absent ones
// would be taken for the defaults of the class.
func (t Tokens) write(o Object) {
	for key, ids := range map[string][]int{"bos_token_id": t.BOS, "eos_token_id": t.EOS, "pad_token_id": t.Pad} {
		switch len(ids) {
		case 0:
			o[key] = nil
		case 1:
			o[key] = ids[0]
		default:
			o[key] = ids
		}
	}
}

// Marshal returns the object as a file's content.
func (o Object) Marshal() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string]any(o)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Layers returns layer numbers as a table of checkpoint/hf wants them.
func Layers(numbers []int) string {
	s := make([]string, len(numbers))
	for i, n := range numbers {
		s[i] = strconv.Itoa(n)
	}
	return strings.Join(s, ",")
}
