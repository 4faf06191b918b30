package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Load reads a tokenizer.json, or the one in the given directory, and the names
// of the document tokens from a tokenizer_config.json beside it if there is one.
func Load(path string) (*Tokenizer, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(filepath.Dir(path), "tokenizer_config.json")
	data, err = os.ReadFile(config)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if err := t.parseConfig(data); err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", config, err)
	}
	return t, nil
}

// parseConfig takes the document tokens from a tokenizer_config.json.
func (t *Tokenizer) parseConfig(data []byte) error {
	var c struct {
		BOS json.RawMessage `json:"bos_token"`
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	for _, x := range []struct {
		key  string
		raw  json.RawMessage
		name *string
	}{{"bos_token", c.BOS, &t.bos}, {"eos_token", c.EOS, &t.eos}} {
		if isNull(x.raw) {
			continue
		}
		var token struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(x.raw, &token.Content) != nil {
			if err := json.Unmarshal(x.raw, &token); err != nil {
				return fmt.Errorf("%s: want a string or an object with content: %w", x.key, err)
			}
		}
		if _, ok := t.ids[token.Content]; !ok {
			return fmt.Errorf("%s is %q, which is not in the vocabulary of tokenizer.json", x.key, token.Content)
		}
		*x.name = token.Content
	}
	return nil
}

// Parse reads the content of a tokenizer.json; name is for messages.
func Parse(name string, data []byte) (*Tokenizer, error) {
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", name, err)
	}
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	var f jsonFile
	if err := strict(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json of the Hugging Face tokenizers library: %w", err)
	}
	if !isNull(f.Truncation) || !isNull(f.Padding) {
		return nil, errors.New("the file truncates or pads every text; set truncation and padding to null in it")
	}
	sum := sha256.Sum256(data)
	t := &Tokenizer{hash: hex.EncodeToString(sum[:])}
	if err := t.setVocab(&f); err != nil {
		return nil, err
	}
	if err := t.setModel(&f.Model); err != nil {
		return nil, err
	}
	var err error
	if t.normalizers, err = parseNormalizer("normalizer", f.Normalizer); err != nil {
		return nil, err
	}
	if err := t.setAdded(f.AddedTokens); err != nil {
		return nil, err
	}
	if err := t.setPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := t.setPostProcessor("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	if err := checkDecoder("decoder", f.Decoder); err != nil {
		return nil, err
	}
	t.bos = t.firstOf("<|begin_of_text|>", "<|startoftext|>", "<s>", "<|bos|>", "<bos>")
	t.eos = t.firstOf("<|end_of_text|>", "<|endoftext|>", "</s>", "<|eos|>", "<eos>")
	return t, nil
}

func (t *Tokenizer) firstOf(names ...string) string {
	for _, n := range names {
		if _, ok := t.ids[n]; ok {
			return n
		}
	}
	return ""
}

// setVocab fills the tables between ids and tokens.
func (t *Tokenizer) setVocab(f *jsonFile) error {
	if len(f.Model.Vocab) == 0 {
		return errors.New("model.vocab is empty")
	}
	t.ids = make(map[string]int32, len(f.Model.Vocab)+len(f.AddedTokens))
	t.special = map[int32]bool{}
	const limit = 1 << 26 // far above any vocabulary; guards the allocation below
	put := func(token string, id int32, where string) error {
		switch {
		case id < 0 || id >= limit:
			return fmt.Errorf("%s: token %q has id %d, want 0 to %d", where, token, id, limit-1)
		case token == "":
			return fmt.Errorf("%s: id %d has an empty token", where, id)
		}
		for int(id) >= len(t.tokens) {
			t.tokens = append(t.tokens, "")
		}
		if other := t.tokens[id]; other != "" && other != token {
			return fmt.Errorf("%s: id %d belongs to both %q and %q", where, id, other, token)
		}
		t.tokens[id], t.ids[token] = token, id
		return nil
	}
	for token, id := range f.Model.Vocab {
		if err := put(token, id, "model.vocab"); err != nil {
			return err
		}
	}
	next := int32(len(f.Model.Vocab))
	for i := range f.AddedTokens {
		a := &f.AddedTokens[i]
		where := fmt.Sprintf("added_tokens[%d]", i)
		id, known := t.ids[a.Content]
		if known && id != a.ID {
			return fmt.Errorf("%s: token %q has id %d here and %d elsewhere in the file", where, a.Content, a.ID, id)
		}
		if err := put(a.Content, a.ID, where); err != nil {
			return err
		}
		if !known {
			// The tokenizers library numbers new tokens itself, whatever the file says.
			if a.ID != next {
				return fmt.Errorf("%s: token %q has id %d where the next free one is %d; other software would renumber it", where, a.Content, a.ID, next)
			}
			next++
		}
		if a.Special {
			t.special[a.ID] = true
		}
	}
	return nil
}

// setModel builds the merge tables.
func (t *Tokenizer) setModel(m *jsonModel) error {
	set := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model.type is %q; only byte-level BPE is supported", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model.dropout is %g, which makes encoding random; set it to null", *m.Dropout)
	case set(m.Prefix) || set(m.Suffix):
		return errors.New("model.continuing_subword_prefix and model.end_of_word_suffix are not part of a byte-level BPE")
	}
	merges, err := parseMerges(m.Merges)
	if err != nil {
		return err
	}
	b := &t.model
	b.whole = m.IgnoreMerges
	for i := range 256 {
		token := string(byteChar[i])
		id, ok := m.Vocab[token]
		if !ok {
			return fmt.Errorf("model.vocab has no token %q for the byte %#02x; a byte-level BPE has all 256, or it would lose text", token, i)
		}
		b.byteID[i] = id
	}
	if b.whole {
		b.vocab = make(map[string]int32, len(m.Vocab))
		for token, id := range m.Vocab {
			if s, ok := fromByteLevel(token); ok {
				b.vocab[s] = id
			}
		}
	}
	b.pairs = newPairTable(len(merges))
	b.merged = make([]int32, len(merges))
	for i, p := range merges {
		left, okL := m.Vocab[p[0]]
		right, okR := m.Vocab[p[1]]
		joined, okJ := m.Vocab[p[0]+p[1]]
		if !okL || !okR || !okJ {
			return fmt.Errorf("model.merges[%d] joins %q and %q; both and %q must be in model.vocab", i, p[0], p[1], p[0]+p[1])
		}
		b.merged[i] = joined
		b.pairs.set(pairKey(left, right), uint32(i))
	}
	return nil
}

// setAdded builds the matchers of the added tokens.
func (t *Tokenizer) setAdded(added []AddedToken) error {
	var raw, normalized []addedEntry
	for i := range added {
		a := &added[i]
		if !a.Normalized {
			raw = append(raw, addedEntry{a.Content, a})
			continue
		}
		text := a.Content
		for _, f := range t.normalizers {
			text = f(text)
		}
		// The tokenizers library renames such a token and forgets that it is
		// special (seen in 0.23).
		if text != a.Content {
			return fmt.Errorf("added_tokens[%d]: %q is matched after normalisation, which turns it into %q; write it so", i, a.Content, text)
		}
		normalized = append(normalized, addedEntry{text, a})
	}
	t.raw, t.normalized = newAddedSet(raw), newAddedSet(normalized)
	return nil
}
