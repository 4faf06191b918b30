// Package source reads documents for tokenisation: text files, JSON lines and
// Parquet, plain or compressed with gzip or Zstandard.
//
//	files, err := source.Find([]string{"corpus/**/*.jsonl.zst"}, source.Options{Field: "text"})
//	err = source.Process(ctx, files, opts, workers,
//		func(worker int, c *source.Chunk) (result, error) { ... c.Documents(...) ... },
//		func(r result) error { ... })
//
// The order of documents is a function of the inputs alone: inputs as given,
// the files of each sorted by path, records as they stand. Process works on
// many chunks at once and hands the results back in that order.
package source
