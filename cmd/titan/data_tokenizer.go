package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"titan/data/bpetrain"
	"titan/data/progress"
	"titan/data/tokenizer"
	"titan/internal/nearest"
)

// styleTokens are the special tokens that the families of a style use.
var styleTokens = map[tokenizer.Style]struct {
	bos, eos string
}{
	tokenizer.Llama3: {"<|begin_of_text|>", "<|end_of_text|>"},
	tokenizer.Qwen:   {"", "<|endoftext|>"},
	tokenizer.GPT2:   {"", "<|endoftext|>"},
}

func newDataTrainTokenizer() *cobra.Command {
	var o bpetrain.Options
	var src sourceFlags
	var style string
	var sample byteSize
	var styles []string
	for _, s := range tokenizer.Styles() {
		styles = append(styles, string(s))
	}
	c := &cobra.Command{
		Use:   "train-tokenizer INPUT... --vocab-size N --output FOLDER",
		Short: "Learn a byte-level BPE vocabulary from text",
		Long: `Learn a byte-level byte-pair encoding from text, JSONL or Parquet and write it as
FOLDER/tokenizer.json and FOLDER/tokenizer_config.json, which the tokenizers and
transformers libraries read too.

--style picks how text is split before pairs are joined: llama3 (digits in
threes), qwen (NFC, digits one by one) or gpt2.`,
		Example: `  titan data train-tokenizer "$(go env GOROOT)/src" --include '*.go' \
      --vocab-size 2048 --output assets/go`,
		Args: inputs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := required(c, "vocab-size", "output"); err != nil {
				return err
			}
			var err error
			if o.Source, err = src.options(); err != nil {
				return err
			}
			if o.Style = tokenizer.Style(style); !slices.Contains(tokenizer.Styles(), o.Style) {
				return usageError{fmt.Errorf("--style %q is not known%s", style, nearest.Hint(style, styles))}
			}
			if o.Workers < 0 {
				return usageError{fmt.Errorf("--workers is %d and must not be negative", o.Workers)}
			}
			if o.MinFrequency < 1 {
				return usageError{fmt.Errorf("--min-frequency is %d and must be positive", o.MinFrequency)}
			}
			o.Inputs, o.SampleBytes = args, int64(sample)
			if !c.Flags().Changed("bos") {
				o.BOS = styleTokens[o.Style].bos
			}
			if !c.Flags().Changed("eos") {
				o.EOS = styleTokens[o.Style].eos
			}
			for _, name := range []string{o.EOS, o.BOS} {
				if name != "" && !slices.Contains(o.Special, name) {
					o.Special = slices.Insert(o.Special, 0, name)
				}
			}
			reading := progress.New(os.Stderr, "reading", progress.Bytes)
			merging := progress.New(os.Stderr, "joining pairs", progress.Count)
			done := func() { reading.Done(); merging.Done() }
			defer done()
			o.Progress = func(p bpetrain.Progress) {
				if p.Tokens == 0 {
					reading.Set(p.Bytes, p.TotalBytes, "")
					return
				}
				reading.Done()
				merging.Set(int64(p.Tokens), int64(p.VocabSize), "")
			}
			res, err := bpetrain.Run(c.Context(), o)
			done()
			if err != nil {
				return interrupted(c.Context(), err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d tokens, %d merges, from %d different pieces in %d documents (%s of %s of text), %d records skipped\n",
				res.OutputFile, res.VocabSize, res.Merges, res.Pretokens, res.Documents, progress.FormatBytes(res.TextBytes), progress.FormatBytes(res.AllBytes), res.Skipped)
			if res.Exhausted {
				fmt.Fprintf(c.ErrOrStderr(), "titan: note: the text gave only %d of the %d tokens asked for: no pair occurs %d times any more\n", res.VocabSize, o.VocabSize, o.MinFrequency)
			}
			return nil
		},
	}
	f := c.Flags()
	src.add(c)
	f.IntVar(&o.VocabSize, "vocab-size", 0, "`number` of tokens, special ones included")
	f.StringVar(&style, "style", string(tokenizer.Llama3), "`name` of the family whose pre-tokeniser is used: "+strings.Join(styles, ", "))
	f.StringVar(&o.Output, "output", "", "`folder` for tokenizer.json and tokenizer_config.json")
	f.StringArrayVar(&o.Special, "special", nil, "a special `token`; may be repeated. They get the last ids, behind --bos and --eos")
	f.StringVar(&o.BOS, "bos", "", "`token` put before every text, '' for none (default of the style: llama3 <|begin_of_text|>, others none)")
	f.StringVar(&o.EOS, "eos", "", "`token` that ends a document, '' for none (default of the style: llama3 <|end_of_text|>, others <|endoftext|>)")
	f.Int64Var(&o.MinFrequency, "min-frequency", 2, "a pair must occur this `number` of times to be joined")
	f.Var(&sample, "sample-bytes", "learn from documents of about this `size` in all (such as 64MB), picked by hash, instead of from all")
	f.Uint64Var(&o.Seed, "seed", 0, "`number` that decides which documents the sample has")
	f.BoolVar(&o.Overwrite, "overwrite", false, "replace a tokenizer that is there")
	f.BoolVar(&o.SkipBad, "skip-bad", false, "leave out and count records that are malformed or not UTF-8, instead of stopping at the first")
	f.IntVar(&o.Workers, "workers", 0, "`number` of readers at work (0: one a core)")
	return c
}
