// Package prepare turns documents into a token dataset: the work of
// `titan data prepare`.
//
//	res, err := prepare.Run(ctx, prepare.Options{
//		Inputs:    []string{"corpus/"},
//		Source:    source.Options{Include: []string{"*.go"}},
//		Tokenizer: "assets/tokenizer.json",
//		Output:    "data/code", // data/code.bin, .idx, .json
//	})
//
// The output is a function of the inputs and the options: the number of workers
// does not change a byte. It appears whole at the end, or not at all; a run that
// was killed is simply started again.
package prepare
