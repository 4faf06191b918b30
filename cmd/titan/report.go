package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"titan/compare"
	"titan/plan"
	"titan/report"
)

// reportFlags are the flags of titan report.
type reportFlags struct {
	out, title, svg, png, serve string
	price, currency             string
	target                      float64
}

func newReport() *cobra.Command {
	var flags reportFlags
	c := &cobra.Command{
		Use:   "report PATH…",
		Short: "Make a page of a run, a plan, a sweep, or of several compared",
		Long: `Make one HTML page that needs nothing else: of a run's folder (job.dump_folder), a
sweep's folder, a plan as titan plan --json writes it, a published series, or of
several of them, compared with the first as titan compare does.

With --serve the page is shown by a server of this process and follows a run that
goes on.`,
		Example: `  titan report outputs/llama3_8b -o page.html
  titan report outputs/a outputs/b qwen3_235b_v7x
  titan report outputs/llama3_8b --serve 127.0.0.1:8080
  titan report outputs/sweeps/weak --png figures`,
		Args: some("what to report"),
		RunE: func(c *cobra.Command, args []string) error { return runReport(c, args, &flags) },
	}
	f := c.Flags()
	f.StringVarP(&flags.out, "out", "o", "", "write the page to this `file`; report.html if nothing else is asked for")
	f.StringVar(&flags.title, "title", "", "`title` of the page")
	f.StringVar(&flags.svg, "svg", "", "write every chart as SVG to this `folder`")
	f.StringVar(&flags.png, "png", "", "write every chart as PNG to this `folder`")
	f.StringVar(&flags.serve, "serve", "", "show the page at this `address`, such as 127.0.0.1:8080, and follow what changes")
	f.Float64Var(&flags.target, "target-loss", 0, "tokens, time and cost that it took to reach this `loss`")
	addPrice(c, &flags.price, &flags.currency)
	return c
}

func runReport(c *cobra.Command, args []string, flags *reportFlags) error {
	if flags.serve != "" {
		if flags.out != "" || flags.svg != "" || flags.png != "" {
			return usageError{errors.New("--serve writes no files; leave out --out, --svg and --png")}
		}
		return serveReport(c, args, flags)
	}
	page, err := buildReport(args, flags, c.ErrOrStderr())
	if err != nil {
		return err
	}
	if flags.out == "" && flags.svg == "" && flags.png == "" {
		flags.out = "report.html"
	}
	if flags.out != "" {
		html, err := page.HTML()
		if err != nil {
			return err
		}
		if err := writeOutput("--out", flags.out, html); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "wrote", flags.out)
	}
	for _, kind := range []struct{ format, dir string }{{"svg", flags.svg}, {"png", flags.png}} {
		if kind.dir == "" {
			continue
		}
		n, err := writeDrawings(page, kind.format, kind.dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "wrote %d charts to %s\n", n, kind.dir)
	}
	return nil
}

// buildReport reads everything and makes the page; warnings go to tell, too.
func buildReport(args []string, flags *reportFlags, tell io.Writer) (*report.Page, error) {
	inputs, warnings, err := loadAll(args, tell)
	if err != nil {
		return nil, err
	}
	if err := setPrices(resultsOf(inputs), flags.price, flags.currency); err != nil {
		return nil, usageError{err}
	}
	return report.New(inputs, report.Options{Title: flags.title, TargetLoss: flags.target, Titan: version(), Now: time.Now(), Warnings: warnings})
}

// writeDrawings writes the charts of a page to a folder.
func writeDrawings(page *report.Page, format, dir string) (int, error) {
	drawings, err := page.Drawings(format)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("--%s: %w; name a folder", format, err)
	}
	for name, content := range drawings {
		if err := writeOutput("--"+format, filepath.Join(dir, name), content); err != nil {
			return 0, err
		}
	}
	return len(drawings), nil
}

func serveReport(c *cobra.Command, args []string, flags *reportFlags) error {
	if _, err := buildReport(args, flags, c.ErrOrStderr()); err != nil { // what is wrong from the beginning is told at once
		return err
	}
	l, err := net.Listen("tcp", flags.serve)
	if err != nil {
		return fmt.Errorf("--serve: %w; give an address that is free, such as 127.0.0.1:0", err)
	}
	fmt.Fprintf(c.OutOrStdout(), "the report is at http://%s/ until Ctrl-C\n", l.Addr())
	build := func() (*report.Page, error) { return buildReport(args, flags, io.Discard) } // the page has the warnings
	s := &report.Server{Build: build, Paths: slices.Clone(args)}
	return s.Serve(c.Context(), l)
}

// writePlanPage makes the page of a plan.
func writePlanPage(p *plan.Report, file string) error {
	r := compare.FromPlan(p)
	page, err := report.New([]*compare.Input{{Path: r.Name, Plan: p, Results: []*compare.Result{r}}}, report.Options{Titan: version(), Now: time.Now()})
	if err != nil {
		return err
	}
	html, err := page.HTML()
	if err != nil {
		return err
	}
	return writeOutput("--html", file, html)
}
