package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"titan/data/prepare"
	"titan/data/progress"
)

func newDataPrepare() *cobra.Command {
	var o prepare.Options
	var src sourceFlags
	c := &cobra.Command{
		Use:   "prepare INPUT... --tokenizer FILE --output PREFIX",
		Short: "Turn text, JSONL or Parquet into a token dataset",
		Long: `Turn text files, JSON lines and Parquet, plain or packed with gzip or Zstandard,
into a memory-mapped token dataset: PREFIX.bin and PREFIX.idx in the format of
Megatron-Core, and PREFIX.json, which tells what it was made from.

A text file is one document; a line of JSONL and a row of Parquet too. The
dataset appears whole at the end, or not at all, and is the same whatever the
number of workers.`,
		Example: `  titan data prepare "$(go env GOROOT)/src" --include '*.go' \
      --tokenizer assets/go --output data/go --validation 0.02`,
		Args: inputs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := required(c, "tokenizer", "output"); err != nil {
				return err
			}
			var err error
			if o.Source, err = src.options(); err != nil {
				return err
			}
			if o.Workers < 0 {
				return usageError{errors.New("--workers must not be negative")}
			}
			o.Inputs = args
			bar := progress.New(os.Stderr, "preparing", progress.Bytes)
			defer bar.Done()
			o.Progress = func(p prepare.Progress) {
				bar.Set(p.Bytes, p.TotalBytes, fmt.Sprintf("%d documents, %d tokens", p.Documents, p.Tokens))
			}
			res, err := prepare.Run(c.Context(), o)
			bar.Done()
			if err != nil {
				return interrupted(c.Context(), err)
			}
			fmt.Fprint(c.OutOrStdout(), res)
			return nil
		},
	}
	f := c.Flags()
	src.add(c)
	f.StringVar(&o.Tokenizer, "tokenizer", "", "a tokenizer.json, or the `folder` that holds it")
	f.StringVar(&o.Output, "output", "", "`prefix` of the files written")
	f.BoolVar(&o.Overwrite, "overwrite", false, "replace a dataset that is there")
	f.StringVar(&o.BOS, "bos", prepare.Auto, "`token` before every document: auto (what the tokenizer's post-processor puts there), none, or a name")
	f.StringVar(&o.EOS, "eos", prepare.Auto, "`token` behind every document: auto (what the post-processor puts there, else the tokenizer's end-of-text token), none, or a name")
	f.BoolVar(&o.PlainSpecial, "plain-special", false, "take special tokens that a document spells for plain text")
	f.BoolVar(&o.SkipBad, "skip-bad", false, "leave out and count records that are malformed or not UTF-8, instead of stopping at the first")
	f.Float64Var(&o.Validation, "validation", 0, "`share` of the documents that go into a second dataset, PREFIX"+prepare.ValidationSuffix)
	f.Uint64Var(&o.Seed, "seed", 0, "`number` that decides which documents are for validation")
	f.IntVar(&o.Workers, "workers", 0, "`number` of encoders at work (0: one a core)")
	return c
}
