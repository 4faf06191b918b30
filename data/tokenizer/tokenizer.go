package tokenizer

import "sync"

// A Tokenizer is a byte-level BPE vocabulary with everything around it. Make
// one with Load or Parse.
type Tokenizer struct {
	hash        string
	bos, eos    string
	tokens      []string // id → token; "" where no token has the id
	ids         map[string]int32
	special     map[int32]bool
	raw         *addedSet // added tokens matched before normalisation
	normalized  *addedSet // and after
	normalizers []normalizer
	stages      []splitStage
	scan        scanner // does the work of all stages, where one suffices
	model       bpe
	prefix      []int32 // what the post-processor puts before the text
	suffix      []int32 // and behind it
	encoders    sync.Pool
}

// VocabSize returns the largest id plus one: the rows that an embedding needs.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// Hash returns the SHA-256 of the file, in hexadecimal.
func (t *Tokenizer) Hash() string { return t.hash }

// ID returns the id of a token as the vocabulary spells it.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.ids[token]
	return id, ok
}

// Token returns the token of an id as the vocabulary spells it.
func (t *Tokenizer) Token(id int32) (token string, ok bool) {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id] == "" {
		return "", false
	}
	return t.tokens[id], true
}

// Special reports whether the id is a special token.
func (t *Tokenizer) Special(id int32) bool { return t.special[id] }

// BOS and EOS return the names of the tokens that open and close a document: as
// tokenizer_config.json beside the file says, else the first of the usual names
// that is in the vocabulary, else "".
func (t *Tokenizer) BOS() string { return t.bos }

// EOS: see BOS.
func (t *Tokenizer) EOS() string { return t.eos }

// Around returns the ids that the post-processor puts before and behind a text.
func (t *Tokenizer) Around() (prefix, suffix []int32) {
	return append([]int32(nil), t.prefix...), append([]int32(nil), t.suffix...)
}

// Encode returns the ids of the text, with the post-processor's special tokens
// around it if special is set. Long or many texts are better served by an
// Encoder of one's own. Errors: see Encoder.Append.
func (t *Tokenizer) Encode(text string, special bool) ([]int32, error) {
	e, _ := t.encoders.Get().(*Encoder)
	if e == nil {
		e = t.NewEncoder()
	}
	defer t.encoders.Put(e)
	var dst []int32
	if special {
		dst = append(dst, t.prefix...)
	}
	dst, err := e.Append(dst, text)
	if err != nil {
		return nil, err
	}
	if special {
		dst = append(dst, t.suffix...)
	}
	return dst, nil
}
