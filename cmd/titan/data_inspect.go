package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"titan/data/inspect"
	"titan/data/progress"
)

func newDataInspect() *cobra.Command {
	o := inspect.Options{}
	asJSON := false
	c := &cobra.Command{
		Use:   "inspect PREFIX",
		Short: "Show what a token dataset holds: counts, manifest, entropy, samples",
		Long: `Show what the token dataset PREFIX.bin, PREFIX.idx holds: its tokens and
documents, what it was made from, and the unigram entropy of its tokens in nats,
which is the loss of the best model that ignores all context. With a tokenizer,
also the beginnings of some documents and the most frequent tokens.`,
		Example: `  titan data inspect data/go --tokenizer assets/go`,
		Args:    exactly(1, "one dataset prefix"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Prefix = args[0]
			if o.Samples < 0 || o.Length < 1 || o.Top < 0 {
				return usageError{fmt.Errorf("--samples is %d, --top %d and --sample-tokens %d: they must not be negative, the last positive", o.Samples, o.Top, o.Length)}
			}
			bar := progress.New(os.Stderr, "counting tokens", progress.Count)
			defer bar.Done()
			o.Progress = func(done, total int64) { bar.Set(done, total, "") }
			r, err := inspect.Run(c.Context(), o)
			bar.Done()
			if err != nil {
				return interrupted(c.Context(), err)
			}
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetEscapeHTML(false)
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), r)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Tokenizer, "tokenizer", "", "a tokenizer.json, or the `folder` that holds it, to decode with")
	f.IntVar(&o.Samples, "samples", 3, "`number` of documents to show, spread over the dataset; needs --tokenizer")
	f.IntVar(&o.Length, "sample-tokens", 48, "`number` of tokens of each")
	f.IntVar(&o.Top, "top", 5, "`number` of most frequent tokens to list")
	f.BoolVar(&o.Verify, "verify", false, "compare the tokens with the hash in the manifest")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// interrupted replaces the error of work that the user's signal ended: nothing
// is left of it, and nothing was wrong.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted; nothing was written")
	}
	return err
}
