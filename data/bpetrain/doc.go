// Package bpetrain learns a byte-level byte-pair encoding from documents: the
// work of `titan data train-tokenizer`.
//
//	res, err := bpetrain.Run(ctx, bpetrain.Options{
//		Inputs: []string{"corpus/"}, VocabSize: 32000,
//		Special: []string{"<|begin_of_text|>", "<|end_of_text|>"},
//		Output:  "assets/mine", // tokenizer.json and tokenizer_config.json
//	})
//
// The algorithm is the usual one (Sennrich, Haddow and Birch, 2016, on bytes):
// count pre-tokens, then again and again join the adjacent pair that occurs most
// often. Of pairs that occur equally often the one with the smaller ids comes
// first, as in the tokenizers library. The result is a function of the documents
// and the options.
package bpetrain
