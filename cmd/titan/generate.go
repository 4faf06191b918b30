package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"titan/data/progress"
	"titan/dtype"
	"titan/train"
	"titan/train/generate"
)

// generateFlags are those of titan generate.
type generateFlags struct {
	recipe         recipeFlags
	checkpoint, hf string
	step           stepFlag
	tokenizer      string
	prompt         string
	echo           bool
	platform       string
	dtype          string
	request        generate.Request
}

func newGenerate() *cobra.Command {
	var g generateFlags
	c := &cobra.Command{
		Use:   "generate",
		Short: "Sample text from a trained model",
		Long: `Sample text from the model of a checkpoint, a Hugging Face folder, or the last
checkpoint of a recipe's run. The text goes to standard output as it is made,
everything else to standard error.

The same flags give the same text on the same machine.`,
		Example: `  titan generate --config qwen3_moe_debug --prompt "func main() {" --temperature 0.8
  titan generate --checkpoint outputs/checkpoint --step 500 --prompt @start.txt --num 3
  titan generate --hf Qwen3-0.6B --prompt "The capital of France is" --temperature 0 --stop .`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runGenerate(c, &g) },
	}
	g.recipe.add(c)
	g.step.add(c)
	f := c.Flags()
	f.StringVar(&g.checkpoint, "checkpoint", "", "`folder` of checkpoints, or one of them")
	f.StringVar(&g.hf, "hf", "", "`folder` in Hugging Face's layout")
	f.StringVar(&g.tokenizer, "tokenizer", "", "`folder` of the tokenizer, or its tokenizer.json; that of the model if not given")
	f.StringVar(&g.prompt, "prompt", "", "`text` to go on from; @FILE reads it from a file, - from standard input")
	f.BoolVar(&g.echo, "echo", false, "write the prompt before each sample")
	f.IntVar(&g.request.MaxTokens, "max-tokens", 0, fmt.Sprintf("longest sample, a `number` of tokens; %d, or what the model can read, if not given", generate.DefaultMaxTokens))
	f.IntVar(&g.request.Samples, "num", 1, "`number` of samples")
	f.Float64Var(&g.request.Sampling.Temperature, "temperature", 1, "`divisor` of the logits: below 1 likelier tokens, 0 always the likeliest")
	f.Float64Var(&g.request.Sampling.TopP, "top-p", 1, "sample among the fewest tokens that have this `probability` together")
	f.IntVar(&g.request.Sampling.TopK, "top-k", 0, "sample among this `number` of the likeliest tokens; 0: all")
	f.Uint64Var(&g.request.Sampling.Seed, "seed", 0, "`number` that the choices follow from")
	f.StringArrayVar(&g.request.Stop, "stop", nil, "end a sample before this `text`; may be repeated")
	f.StringVar(&g.platform, "platform", "cpu", "`plugin` to run on, a name or the path of a library; one device is used")
	f.StringVar(&g.dtype, "dtype", "float32", "`type` to compute in: float32 or bfloat16")
	return c
}

func runGenerate(c *cobra.Command, g *generateFlags) error {
	compute, err := dtype.Parse(g.dtype)
	if err != nil || compute != dtype.F32 && compute != dtype.BF16 {
		return usageError{fmt.Errorf("--dtype is %q and must be float32 or bfloat16", g.dtype)}
	}
	if err := g.check(c); err != nil {
		return usageError{err}
	}
	if g.request.Prompt, err = readPrompt(g.prompt, c.InOrStdin()); err != nil {
		return err
	}
	w, err := g.open(c)
	if err != nil {
		return err
	}
	defer w.Close()
	tok, err := w.OpenTokenizer(g.tokenizer)
	switch {
	case err != nil && g.tokenizer == "":
		return fmt.Errorf("%w; --tokenizer names another", err)
	case err != nil:
		return fmt.Errorf("--tokenizer: %w", err)
	}
	m, err := train.OpenDevice(g.platform, "--platform")
	if err != nil {
		return err
	}
	defer m.Close()
	log := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
	all, _, _ := w.Config.Count()
	log("%s, %d parameters, of %s", w.Family, all, w.Where)
	for _, n := range w.Notes {
		log("note: %s", n)
	}
	began := time.Now()
	bar := progress.New(os.Stderr, "reading parameters", progress.Bytes)
	defer bar.Done()
	model, err := generate.New(c.Context(), m, w, tok, generate.Options{
		Compute: compute, Compiled: func(name, how string) { log("%s: %s", name, how) },
		Progress: func(done, total int64) { bar.Set(done, total, "") },
	})
	bar.Done()
	if err != nil {
		return interrupted(c.Context(), err)
	}
	defer model.Close()
	log("parameters read in %.1fs", time.Since(began).Seconds())

	out := sampleWriter{out: c.OutOrStdout(), samples: g.request.Samples}
	if g.echo {
		out.before = g.request.Prompt
	}
	g.request.Emit = out.emit
	res, err := model.Generate(c.Context(), g.request)
	out.end(len(res.Samples))
	if len(res.Samples) > 0 {
		for _, line := range res.Summary() {
			log("%s", line)
		}
	}
	if err != nil && c.Context().Err() != nil {
		return exitError{errors.New("interrupted"), codeInterrupted}
	}
	return err
}

// check refuses flags that contradict each other.
func (g *generateFlags) check(c *cobra.Command) error {
	var given []string
	for _, n := range []string{"checkpoint", "hf", "config"} {
		if c.Flags().Changed(n) {
			given = append(given, "--"+n)
		}
	}
	switch {
	case len(given) != 1:
		return fmt.Errorf("`%s` needs one of --checkpoint, --hf and --config, and was given %s; see `%s --help`",
			c.CommandPath(), orNone(strings.Join(given, " and ")), c.CommandPath())
	case g.hf != "" && c.Flags().Changed("step"):
		return errors.New("--step names a checkpoint, and a Hugging Face folder has none")
	case given[0] != "--config" && c.Flags().Changed("set"):
		return errors.New("--set changes a recipe, and there is no --config")
	case c.Flags().Changed("max-tokens") && g.request.MaxTokens < 1:
		return fmt.Errorf("--max-tokens is %d and must be positive", g.request.MaxTokens)
	case g.request.Samples < 1:
		return fmt.Errorf("--num is %d and must be positive", g.request.Samples)
	}
	if c.Flags().Changed("top-p") && g.request.Sampling.TopP == 0 {
		return errors.New("--top-p is 0 and must be above 0 and at most 1")
	}
	if err := g.request.Validate(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// open finds the model.
func (g *generateFlags) open(c *cobra.Command) (*generate.Weights, error) {
	if g.hf != "" {
		return generate.OpenHF(g.hf)
	}
	path, assets := g.checkpoint, ""
	if g.recipe.config != "" {
		r, _, err := g.recipe.load(c)
		if err != nil {
			return nil, err
		}
		assets = r.Model.HFAssetsPath
		if path = r.Checkpoint.Folder; !filepath.IsAbs(path) {
			path = filepath.Join(r.Job.DumpFolder, path)
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s, where the recipe keeps its checkpoints, does not exist: train first (`titan train --config %s`), or name one with --checkpoint", path, g.recipe.config)
		}
	}
	folder, step, err := openCheckpoints(path)
	if err != nil {
		return nil, err
	}
	if step, err = g.step.resolve(c, step); err != nil {
		return nil, err
	}
	w, err := generate.OpenCheckpoint(folder, step)
	if err == nil && assets != "" {
		w.Tokenizer = assets
	}
	return w, err
}

// mostPrompt is the size of a prompt beyond which it is a mistake, or has no end.
const mostPrompt = 16 << 20

// readPrompt resolves the flag's value.
func readPrompt(s string, stdin io.Reader) (string, error) {
	var raw []byte
	var err error
	switch {
	case s == "-":
		raw, err = io.ReadAll(io.LimitReader(stdin, mostPrompt+1))
	case strings.HasPrefix(s, "@"):
		var f *os.File
		if f, err = os.Open(s[1:]); err == nil {
			raw, err = io.ReadAll(io.LimitReader(f, mostPrompt+1))
			_ = f.Close()
		}
	default:
		return s, nil
	}
	if err != nil {
		return "", fmt.Errorf("--prompt: %w", err)
	}
	if len(raw) > mostPrompt {
		return "", fmt.Errorf("--prompt: it has more than %d MiB, which no model reads: shorten it", mostPrompt>>20)
	}
	return string(raw), nil
}

// sampleWriter writes samples one after the other, each beginning on a line of
// its own.
type sampleWriter struct {
	out     io.Writer
	samples int
	before  string // each sample
	started int
	last    byte
}

func (s *sampleWriter) emit(sample int, text string) error {
	s.begin(sample + 1)
	return s.write(text)
}

// begin starts the samples up to number n.
func (s *sampleWriter) begin(n int) {
	for s.started < n {
		s.endLine()
		s.started++
		if s.samples > 1 {
			_ = s.write(fmt.Sprintf("--- sample %d of %d\n", s.started, s.samples))
		}
		_ = s.write(s.before)
	}
}

// end completes what was written of n samples.
func (s *sampleWriter) end(n int) {
	s.begin(n)
	s.endLine()
}

func (s *sampleWriter) endLine() {
	if s.last != 0 && s.last != '\n' {
		_ = s.write("\n")
	}
}

func (s *sampleWriter) write(text string) error {
	if text == "" {
		return nil
	}
	s.last = text[len(text)-1]
	_, err := io.WriteString(s.out, text)
	return err
}
