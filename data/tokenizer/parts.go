package tokenizer

import (
	"encoding/json"
	"fmt"
)

// parseNormalizer reads the normalizer of the file.
func parseNormalizer(where string, raw json.RawMessage) ([]normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	switch k := kind(raw); k {
	case "NFC":
		return []normalizer{nfc}, nil
	case "Sequence":
		var seq jsonSequence
		if err := strict(raw, &seq); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		var out []normalizer
		for i, n := range seq.Normalizers {
			fs, err := parseNormalizer(fmt.Sprintf("%s.normalizers[%d]", where, i), n)
			if err != nil {
				return nil, err
			}
			out = append(out, fs...)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%s: type %q is not supported; supported are NFC and Sequence", where, k)
	}
}

// setPreTokenizer reads the pre-tokenizer of the file, which must come to bytes.
func (t *Tokenizer) setPreTokenizer(raw json.RawMessage) error {
	stages, byteLevel, err := parsePreTokenizer("pre_tokenizer", raw)
	if err != nil {
		return err
	}
	if !byteLevel {
		return fmt.Errorf("pre_tokenizer has no ByteLevel step; only byte-level BPE is supported")
	}
	// Stages that neither cut nor change anything drop out.
	for _, st := range stages {
		if st.match != nil || st.prefixSpace {
			t.stages = append(t.stages, st)
		}
	}
	if len(t.stages) == 1 {
		t.scan = t.stages[0].whole()
	}
	return nil
}

func parsePreTokenizer(where string, raw json.RawMessage) (stages []splitStage, byteLevel bool, err error) {
	fail := func(err error) ([]splitStage, bool, error) { return nil, false, fmt.Errorf("%s: %w", where, err) }
	if isNull(raw) {
		return nil, false, nil
	}
	switch k := kind(raw); k {
	case "Sequence":
		var seq jsonSequence
		if err := strict(raw, &seq); err != nil {
			return fail(err)
		}
		for i, p := range seq.PreTokenizers {
			sub := fmt.Sprintf("%s.pretokenizers[%d]", where, i)
			if byteLevel {
				return nil, false, fmt.Errorf("%s comes after ByteLevel; nothing may", sub)
			}
			more, bl, err := parsePreTokenizer(sub, p)
			if err != nil {
				return nil, false, err
			}
			stages, byteLevel = append(stages, more...), bl
		}
		return stages, byteLevel, nil
	case "ByteLevel":
		var b jsonByteLevel
		if err := strict(raw, &b); err != nil {
			return fail(err)
		}
		st := splitStage{prefixSpace: b.AddPrefixSpace}
		if b.UseRegex == nil || *b.UseRegex {
			st.match, st.behavior = scanners[patternGPT2], isolated
		}
		return []splitStage{st}, true, nil
	case "Split":
		var s jsonSplit
		if err := strict(raw, &s); err != nil {
			return fail(err)
		}
		st := splitStage{invert: s.Invert}
		var ok bool
		if st.behavior, ok = behaviors[s.Behavior]; !ok {
			return fail(fmt.Errorf("behavior %q is not known", s.Behavior))
		}
		switch {
		case s.Pattern.Regex != nil:
			if st.match, err = newMatcher(*s.Pattern.Regex); err != nil {
				return fail(err)
			}
		case s.Pattern.String != nil && *s.Pattern.String != "":
			st.match = literalMatcher(*s.Pattern.String)
		default:
			return fail(fmt.Errorf("pattern has neither Regex nor String"))
		}
		return []splitStage{st}, false, nil
	case "Digits":
		var d jsonDigits
		if err := strict(raw, &d); err != nil {
			return fail(err)
		}
		st := splitStage{match: classMatcher{clNumber, d.Individual}, behavior: isolated}
		return []splitStage{st}, false, nil
	default:
		return fail(fmt.Errorf("type %q is not supported; supported are Split, Digits, ByteLevel and Sequence", k))
	}
}

// setPostProcessor reads what is put around a single text.
func (t *Tokenizer) setPostProcessor(where string, raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	switch k := kind(raw); k {
	case "ByteLevel": // concerns offsets only
		return nil
	case "Sequence":
		var seq jsonSequence
		if err := strict(raw, &seq); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		for i, p := range seq.Processors {
			if err := t.setPostProcessor(fmt.Sprintf("%s.processors[%d]", where, i), p); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		var tp jsonTemplate
		if err := strict(raw, &tp); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		return t.setTemplate(where, &tp)
	default:
		return fmt.Errorf("%s: type %q is not supported; supported are ByteLevel, TemplateProcessing and Sequence", where, k)
	}
}

// setTemplate wraps the single-text template around what is there already.
func (t *Tokenizer) setTemplate(where string, tp *jsonTemplate) error {
	var before, behind []int32
	seen := false
	for i, p := range tp.Single {
		switch {
		case p.SpecialToken != nil:
			tok, ok := tp.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("%s.single[%d] names %q, which is not in special_tokens", where, i, p.SpecialToken.ID)
			}
			for _, id := range tok.IDs {
				if _, ok := t.Token(id); !ok {
					return fmt.Errorf("%s.special_tokens: %q has id %d, which is no token", where, p.SpecialToken.ID, id)
				}
			}
			if seen {
				behind = append(behind, tok.IDs...)
			} else {
				before = append(before, tok.IDs...)
			}
		case p.Sequence != nil && p.Sequence.ID == "A" && !seen:
			seen = true
		default:
			return fmt.Errorf("%s.single[%d]: want a SpecialToken or, once, the Sequence A", where, i)
		}
	}
	if !seen {
		return fmt.Errorf("%s.single leaves out the text (no Sequence A)", where)
	}
	t.prefix = append(before, t.prefix...)
	t.suffix = append(t.suffix, behind...)
	return nil
}

// checkDecoder accepts the byte-level decoder.
func checkDecoder(where string, raw json.RawMessage) error {
	switch k := kind(raw); k {
	case "ByteLevel":
		return nil
	case "Sequence":
		var seq jsonSequence
		if err := strict(raw, &seq); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if len(seq.Decoders) != 1 {
			return fmt.Errorf("%s has %d decoders, want one ByteLevel", where, len(seq.Decoders))
		}
		return checkDecoder(where+".decoders[0]", seq.Decoders[0])
	default:
		return fmt.Errorf("%s: type %q is not supported; a byte-level BPE has ByteLevel", where, k)
	}
}
