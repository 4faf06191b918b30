package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Style is a family's way of normalising and splitting text.
type Style string

const (
	Llama3 Style = "llama3" // digits in threes; a piece that is a token is not taken apart
	Qwen   Style = "qwen"   // NFC, digits one by one
	GPT2   Style = "gpt2"
)

// Styles lists the styles.
func Styles() []Style { return []Style{Llama3, Qwen, GPT2} }

// Splitter returns a function that calls piece with every pre-token of a text,
// in order, as bytes.
func (s Style) Splitter() (func(text string, piece func(string)), error) {
	pattern, normalise := patternLlama3, func(t string) string { return t }
	switch s {
	case Llama3:
	case Qwen:
		pattern, normalise = patternQwen2, nfc
	case GPT2:
		pattern = patternGPT2
	default:
		return nil, fmt.Errorf("style %q is not known; want one of %q", s, Styles())
	}
	scan := scanners[pattern]
	return func(text string, piece func(string)) {
		text = normalise(text)
		for i := 0; i < len(text); {
			end := scan(text, i)
			piece(text[i:end])
			i = end
		}
	}, nil
}

// Spec is a vocabulary to be written as tokenizer.json.
type Spec struct {
	Style  Style
	Tokens []string    // id → token, in the byte-level alphabet; see Spell
	Merges [][2]string // in the order of their ranks
	// Special tokens get the ids behind Tokens.
	Special []string
	// BOS, if not empty, is the special token that the post-processor puts
	// before every text.
	BOS string
}

// Build returns the content of a tokenizer.json. The order of everything in it
// is fixed: equal specs give equal bytes.
func Build(s Spec) ([]byte, error) {
	if _, err := s.Style.Splitter(); err != nil {
		return nil, err
	}
	if s.BOS != "" && !slices.Contains(s.Special, s.BOS) {
		return nil, fmt.Errorf("the opening token %q is not among the special tokens %q", s.BOS, s.Special)
	}
	byteLevel := func(prefix, trim, regex bool) map[string]any {
		return map[string]any{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}
	}
	split := func(pattern string) any {
		return map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]string{"Regex": pattern}, "behavior": "Isolated", "invert": false},
			byteLevel(false, false, false),
		}}
	}
	var normalizer, pre any
	switch s.Style {
	case Llama3:
		pre = split(patternLlama3)
	case Qwen:
		normalizer, pre = map[string]string{"type": "NFC"}, split(patternQwen2)
	case GPT2:
		pre = byteLevel(false, true, true)
	}
	added := []AddedToken{}
	post := any(byteLevel(true, false, true))
	for i, name := range s.Special {
		id := int32(len(s.Tokens) + i)
		added = append(added, AddedToken{ID: id, Content: name, Special: true})
		if name == s.BOS {
			one := []jsonPiece{{SpecialToken: &jsonPieceID{ID: name}}, {Sequence: &jsonPieceID{ID: "A"}}}
			two := []jsonPiece{{SpecialToken: &jsonPieceID{ID: name, TypeID: 1}}, {Sequence: &jsonPieceID{ID: "B", TypeID: 1}}}
			post = map[string]any{"type": "Sequence", "processors": []any{post, jsonTemplate{
				Type: "TemplateProcessing", Single: one, Pair: append(slices.Clone(one), two...),
				SpecialTokens: map[string]jsonTemplateID{name: {ID: name, IDs: []int32{id}, Tokens: []string{name}}},
			}}}
		}
	}
	var vocab strings.Builder
	for i, t := range s.Tokens {
		fmt.Fprintf(&vocab, "%s\n%s:%d", map[bool]string{true: ","}[i > 0], quote(t), i)
	}
	merges := make([]string, len(s.Merges))
	for i, m := range s.Merges {
		merges[i] = "[" + quote(m[0]) + "," + quote(m[1]) + "]"
	}
	model := fmt.Sprintf(`{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,`+
		`"fuse_unk":false,"byte_fallback":false,"ignore_merges":%t,"vocab":{%s},"merges":[%s]}`,
		s.Style == Llama3, vocab.String(), strings.Join(merges, ",\n"))

	var out bytes.Buffer
	out.WriteString("{\n")
	for i, f := range []struct {
		key   string
		value any
	}{
		{"version", "1.0"}, {"truncation", nil}, {"padding", nil}, {"added_tokens", added}, {"normalizer", normalizer},
		{"pre_tokenizer", pre}, {"post_processor", post}, {"decoder", byteLevel(true, true, true)}, {"model", json.RawMessage(model)},
	} {
		if i > 0 {
			out.WriteString(",\n")
		}
		fmt.Fprintf(&out, "%q: ", f.key)
		if raw, ok := f.value.(json.RawMessage); ok {
			out.Write(raw)
			continue
		}
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(f.value); err != nil {
			return nil, err
		}
	}
	out.WriteString("\n}\n")
	// What cannot be read back must not leave this function.
	if _, err := Parse("as built", out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}
