package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"titan/compare"
)

// compareFlags are the flags of titan compare.
type compareFlags struct {
	target              float64
	price, currency     string
	markdown, csv, json bool
	out                 string
	strict              bool
}

func newCompare() *cobra.Command {
	var flags compareFlags
	c := &cobra.Command{
		Use:   "compare PATH…",
		Short: "Put runs, plans, sweeps and published results side by side",
		Long: `Compare results: folders of runs (job.dump_folder) and of sweeps, plans as titan
plan --json writes them, and published series, such as qwen3_235b_v7x (titan sweep
lists them). All are compared with the first.

What cannot be compared, because the model, the length of sequences, the
convention of FLOPs, the padding or the precision differ, because one is measured
and the other predicted, or for another reason, is marked, explained and never
ranked. With --strict it ends the command with exit code 1.`,
		Example: `  titan compare outputs/a outputs/b
  titan compare outputs/a outputs/b --target-loss 3.2 --price 4.2
  titan compare plan.json qwen3_235b_v7x --markdown --out table.md`,
		Args: some("what to compare"),
		RunE: func(c *cobra.Command, args []string) error { return runCompare(c, args, &flags) },
	}
	f := c.Flags()
	f.Float64Var(&flags.target, "target-loss", 0, "tokens, time and cost that it took to reach this `loss`")
	addPrice(c, &flags.price, &flags.currency)
	f.BoolVar(&flags.markdown, "markdown", false, "print Markdown")
	f.BoolVar(&flags.csv, "csv", false, "print CSV, a line for each figure of each result")
	f.BoolVar(&flags.json, "json", false, "print JSON")
	f.StringVar(&flags.out, "out", "", "write to this `file` instead of printing")
	f.BoolVar(&flags.strict, "strict", false, "fail if any figure cannot be compared")
	return c
}

// addPrice adds the flags by which results get a price.
func addPrice(c *cobra.Command, price, currency *string) {
	c.Flags().StringVar(price, "price", "", "`price` of a chip for an hour, instead of cost.price_per_chip_hour: one for all results, or A=4.2,C=2.7 by letter")
	c.Flags().StringVar(currency, "currency", "", "`currency` of --price, instead of cost.currency")
}

func runCompare(c *cobra.Command, args []string, flags *compareFlags) error {
	n := 0
	for _, on := range []bool{flags.markdown, flags.csv, flags.json} {
		if on {
			n++
		}
	}
	switch {
	case n > 1:
		return usageError{errors.New("--markdown, --csv and --json exclude each other; give one")}
	case flags.target < 0:
		return usageError{fmt.Errorf("--target-loss is %g and must be positive", flags.target)}
	}
	inputs, _, err := loadAll(args, c.ErrOrStderr())
	if err != nil {
		return err
	}
	results := resultsOf(inputs)
	if err := setPrices(results, flags.price, flags.currency); err != nil {
		return usageError{err}
	}
	all, err := compare.New(results, compare.Options{TargetLoss: flags.target})
	if err != nil {
		return err
	}
	var text []byte
	switch {
	case flags.markdown:
		text = []byte(all.Markdown())
	case flags.csv:
		text, err = all.CSV()
	case flags.json:
		text, err = all.JSON()
	default:
		text = []byte(all.Text(terminalWidth()))
	}
	if err != nil {
		return err
	}
	if flags.out != "" {
		err = writeOutput("--out", flags.out, text)
	} else {
		_, err = c.OutOrStdout().Write(text)
	}
	if err != nil {
		return err
	}
	if flags.strict && all.Marked() {
		return errors.New("not all figures can be compared, and --strict is given: the reasons are with the table")
	}
	return nil
}

// loadAll opens what is to be compared. What is damaged is told and returned as
// warnings; what cannot be read at all is an error only if nothing is left.
func loadAll(paths []string, tell io.Writer) (inputs []*compare.Input, warnings []string, err error) {
	var failed []error
	for _, p := range paths {
		in, found, err := compare.Load(p)
		warnings = append(warnings, found...)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if len(in.Results) == 0 {
			warnings = append(warnings, fmt.Sprintf("%s: the %s has no results yet", p, in.Noun()))
		}
		inputs = append(inputs, in)
	}
	if len(inputs) > 0 {
		for _, err := range failed {
			warnings = append(warnings, "left out: "+err.Error())
		}
	}
	for _, w := range warnings {
		fmt.Fprintln(tell, "warning:", w)
	}
	if len(inputs) == 0 {
		return nil, warnings, errors.Join(failed...)
	}
	return inputs, warnings, nil
}

func resultsOf(inputs []*compare.Input) []*compare.Result {
	var out []*compare.Result
	for _, in := range inputs {
		out = append(out, in.Results...)
	}
	return out
}

// setPrices sets the prices of --price.
func setPrices(results []*compare.Result, price, currency string) error {
	if price == "" {
		return nil
	}
	set := func(r *compare.Result, text string) error {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p > 0) || p > 1e9 {
			return fmt.Errorf("--price: %q is no price; give a number, or letters of results as in A=4.2,C=2.7", text)
		}
		money := currency
		if money == "" {
			if money = r.Currency; money == "" {
				money = "USD"
			}
		}
		r.SetPrice(p, money)
		return nil
	}
	if !strings.Contains(price, "=") {
		for _, r := range results {
			if err := set(r, price); err != nil {
				return err
			}
		}
		return nil
	}
	for _, part := range strings.Split(price, ",") {
		letter, amount, _ := strings.Cut(part, "=")
		found := false
		for i, r := range results {
			if found = compare.Letter(i) == strings.TrimSpace(letter); found {
				if err := set(r, amount); err != nil {
					return err
				}
				break
			}
		}
		if !found {
			return fmt.Errorf("--price: there is no result %q; they are A to %s", letter, compare.Letter(len(results)-1))
		}
	}
	return nil
}

// terminalWidth is how many letters a line of the terminal has.
func terminalWidth() int {
	if isatty.IsTerminal(os.Stdout.Fd()) {
		if w, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 20 {
			return int(w.Col)
		}
	}
	return 120
}
