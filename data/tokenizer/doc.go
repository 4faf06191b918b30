// Package tokenizer encodes text with byte-level byte-pair encodings, as read
// from the tokenizer.json files of the Hugging Face tokenizers library (the
// Llama 3, Qwen and GPT-2 families), and decodes token ids back to text.
//
//	tok, err := tokenizer.Load("assets/tokenizer.json")
//	ids, err := tok.Encode("func main() {", true) // true: with <|begin_of_text|> and the like
//	text := tok.Decode(ids, true)                 // true: without special tokens
//
// The result equals that of the tokenizers library: same normalisation, same
// pre-tokens, same merges, same special tokens. A file that asks for something
// this package does not do is refused by name; nothing is approximated.
//
// Text that is not valid UTF-8, which the Python library cannot even be given,
// is encoded byte by byte, each stray byte counting as a symbol, so that
// decoding returns the very bytes.
//
// A Tokenizer is immutable and may be shared. An Encoder has a cache of its own
// and belongs to one goroutine.
package tokenizer
