package inspect

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"unicode"

	"titan/data/progress"
)

// String lays the report out for reading.
func (r *Report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("dataset", "%s", r.Prefix)
	row("tokens", "%d (%s, %s)", r.Tokens, r.DType, progress.FormatBytes(r.BinBytes))
	row("documents", "%d (%d to %d tokens, median %d)", r.Documents, r.Shortest, r.Longest, r.Median)
	row("ids", "%d different, the largest is %d", r.Distinct, r.LargestID)
	row("unigram entropy", "%.4f nats a token (perplexity %.1f)", r.UnigramEntropy, math.Exp(r.UnigramEntropy))
	if r.TextBytes > 0 {
		row("text", "%s, %.3f bytes a token", progress.FormatBytes(r.TextBytes), float64(r.TextBytes)/float64(r.Tokens))
	}
	if m := r.Manifest; m == nil {
		row("manifest", "none; the dataset was not written by titan")
	} else {
		row("tokenizer", "vocabulary of %d, SHA-256 %s", m.Tokenizer.VocabSize, m.Tokenizer.SHA256)
		row("around documents", "%d before, %d behind", m.Before, m.Behind)
		if m.Split != nil {
			row("split", "%s; %g for validation, seed %d", m.Split.Part, m.Split.Share, m.Split.Seed)
		}
		for _, s := range m.Sources {
			row("input", "%s: %d files, %s, %d documents, %d tokens, %d empty, %d skipped",
				s.Input, s.Files, progress.FormatBytes(s.Bytes), s.Documents, s.Tokens, s.Empty, s.Skipped)
		}
	}
	if r.Verified {
		row("verified", "the tokens are those of the manifest's SHA-256")
	}
	for i, t := range r.Frequent {
		text := ""
		if r.TextBytes > 0 {
			text = fmt.Sprintf("  %q", t.Text)
		}
		row(map[bool]string{true: "most frequent"}[i == 0], "%6.3f%%  %d%s", 100*float64(t.Count)/float64(r.Tokens), t.ID, text)
	}
	w.Flush()
	for _, s := range r.Samples {
		fmt.Fprintf(&b, "\ndocument %d, %d tokens:\n  %s\n", s.Document, s.Tokens, strings.ReplaceAll(strings.TrimRight(printable(s.Text), "\n"), "\n", "\n  "))
	}
	return b.String()
}

// printable replaces what could command a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
