package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The layout of tokenizer.json. Parts whose kind decides their fields stay raw.
type jsonFile struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []AddedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         jsonModel       `json:"model"`
}

type jsonModel struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       json.RawMessage  `json:"merges"`
}

type jsonByteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       *bool  `json:"use_regex"` // absent in old files: true
}

type jsonSplit struct {
	Type    string `json:"type"`
	Pattern struct {
		Regex  *string `json:"Regex,omitempty"`
		String *string `json:"String,omitempty"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`
}

type jsonDigits struct {
	Type       string `json:"type"`
	Individual bool   `json:"individual_digits"`
}

type jsonSequence struct {
	Type          string            `json:"type"`
	Normalizers   []json.RawMessage `json:"normalizers,omitempty"`
	PreTokenizers []json.RawMessage `json:"pretokenizers,omitempty"`
	Processors    []json.RawMessage `json:"processors,omitempty"`
	Decoders      []json.RawMessage `json:"decoders,omitempty"`
}

type jsonTemplate struct {
	Type          string                    `json:"type"`
	Single        []jsonPiece               `json:"single"`
	Pair          []jsonPiece               `json:"pair"`
	SpecialTokens map[string]jsonTemplateID `json:"special_tokens"`
}

type jsonPiece struct {
	SpecialToken *jsonPieceID `json:"SpecialToken,omitempty"`
	Sequence     *jsonPieceID `json:"Sequence,omitempty"`
}

type jsonPieceID struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"`
}

type jsonTemplateID struct {
	ID     string   `json:"id"`
	IDs    []int32  `json:"ids"`
	Tokens []string `json:"tokens"`
}

// isNull reports whether a part of the file is absent.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// kind returns the type of a part of the file.
func kind(raw json.RawMessage) string {
	var t struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &t) != nil {
		return ""
	}
	return t.Type
}

// strict decodes a part of the file and refuses fields it does not know, since
// any of them could change the result.
func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// parseMerges reads merges in both spellings: ["a","b"] and "a b".
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err == nil {
		out := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("model.merges[%d] has %d parts, want 2", i, len(p))
			}
			out[i] = [2]string{p[0], p[1]}
		}
		return out, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, fmt.Errorf(`model.merges: want pairs ["a", "b"] or strings "a b": %w`, err)
	}
	var out [][2]string
	for i, l := range lines {
		if strings.HasPrefix(l, "#version") {
			continue
		}
		a, b, ok := strings.Cut(l, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("model.merges[%d] is %q, want two tokens with one space between them", i, l)
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
}
