// Package generate samples text from a trained model, on one device:
//
//	folder, err := checkpoint.OpenFolder("outputs/checkpoint")
//	w, err := generate.OpenCheckpoint(folder, checkpoint.Latest)
//	tok, err := w.OpenTokenizer("")
//	m, err := train.OpenDevice("cpu", "--platform")
//	g, err := generate.New(ctx, m, w, tok, generate.Options{})
//	res, err := g.Generate(ctx, generate.Request{Prompt: "func main() {", Emit: show})
//
// The model reads the prompt in chunks and then one token at a time, keeping the
// keys and values of what it has read on the device; the choice of the next token
// is made here, from its logits.
package generate
