// Package data serves training batches from token datasets.
//
//	l, err := data.New(data.Options{
//		Sources:     []data.Source{{Prefix: "data/code", Weight: 3}, {Prefix: "data/prose", Weight: 1}},
//		SeqLen:      4096,
//		GlobalBatch: 256,
//		Vocab:       model.Vocab,
//		Seed:        42,
//	})
//	defer l.Close()
//	b, err := l.Batch(step, rows) // rows: those of the global batch that this host feeds
//
// A batch is a function of (seed, step) and of nothing else. Which hosts ask for
// which rows, how the mesh is laid out, where a run was resumed: none of it moves
// a token. There is no state to save beyond the step.
//
// The documents of a dataset form one stream, which is cut into samples of
// SeqLen tokens; the last one may be shorter and is padded. An epoch visits all
// samples in an order of its own, so that every token but the stream's first is
// the label of exactly one position an epoch. The order is a bijection computed
// on the spot, in constant memory.
package data
