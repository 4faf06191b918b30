package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"titan/pjrt/plugins"
	"titan/sweep"
)

// codePointsFailed is the exit code of a sweep in which points failed for other
// reasons than memory.
const codePointsFailed = 4

// sweepFlags are the flags of titan sweep.
type sweepFlags struct {
	recipeFlags
	chips, devices, kind    string
	topologies, vary        []string
	mode, name, folder      string
	plan, quick, dry        bool
	maxSlice, maxCompile    int
	extrapolate             bool
	steps, warmup           int
	timeout                 time.Duration
	again, retry            bool
	references              []string
	json, csv, markdownFile string
}

func newSweep() *cobra.Command {
	var flags sweepFlags
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Plan or train a recipe at many points: chip counts, meshes, any key",
		Long: `Plan or train a recipe at many points, each in a process of its own, and compare.

With --plan points are compiled for TPUs that are not here, as titan plan does;
without, they are trained on virtual devices of this machine for some steps. Weak
mode keeps the work of a device, strong mode that of a step.

What came out is kept in a folder. A sweep that was ended, or killed, goes on
where it was with the same command; points that are done are not repeated. Points
that fail are noted, and the sweep goes on.

The exit code is 0 if all points have figures, do not fit, or are impossible; 4 if
points failed otherwise; 1 for a mistake in the recipe, 2 for one on the command
line, 130 after Ctrl-C.`,
		Example: `  titan sweep --config qwen3_235b_a22b --plan --mode weak --chips 64,128,...,8192
  titan sweep --config qwen3_moe_debug --mode strong --devices 1,2,4,8
  titan sweep --config llama3_8b --plan --vary training.local_batch_size=1,2,4 --vary activation_checkpoint.mode=none,full
  titan sweep --config qwen3_235b_a22b --plan --mode weak --chips 1024,8192 --reference qwen3_235b_v7x`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runSweep(c, &flags) },
	}
	flags.add(c)
	f := c.Flags()
	f.BoolVar(&flags.plan, "plan", false, "plan the points instead of training")
	f.StringVar(&flags.mode, "mode", "", "what stays the same while devices are added: `weak` (the work of a device) or strong (that of a step)")
	f.StringVar(&flags.chips, "chips", "", "plan for these `numbers` of chips, as 64,128,256 or 64,128,...,8192, in the shapes that pods offer")
	f.StringVar(&flags.kind, "kind", "", "`kind` of the chips, such as tpu7x, instead of that of the recipe's topology")
	f.IntVar(&flags.maxSlice, "max-slice", 0, "most `chips` of a slice; more are several slices (default 1024, or those of the recipe's slice if that has more)")
	f.StringSliceVar(&flags.topologies, "topologies", nil, "plan for these `topologies`, such as tpu7x:4x4x4,tpu7x:4x4x8")
	f.StringVar(&flags.devices, "devices", "", "train on these `numbers` of virtual devices")
	f.StringArrayVar(&flags.vary, "vary", nil, "try `section.key=a,b,c` of the recipe; with several, all combinations")
	f.BoolVar(&flags.quick, "quick", false, "let the compiler try less: faster, memory and time are rough")
	f.BoolVar(&flags.extrapolate, "extrapolate", false, "compute what takes longer than --timeout to compile from smaller points")
	f.IntVar(&flags.maxCompile, "max-compile-chips", 0, "compute points of more `chips` from smaller ones instead of compiling them")
	f.IntVar(&flags.steps, "steps", 20, "steps of a run")
	f.IntVar(&flags.warmup, "warmup", 5, "first steps of a run, which do not count")
	f.DurationVar(&flags.timeout, "timeout", 0, "end a point after this `time`, such as 90m (default: none)")
	f.StringVar(&flags.name, "name", "", "`name` of the sweep's folder (default: recipe, mode, and plan or run)")
	f.StringVar(&flags.folder, "folder", filepath.Join("outputs", "sweeps"), "`folder` that the sweep's own is in")
	f.BoolVar(&flags.again, "again", false, "repeat points that are done")
	f.BoolVar(&flags.retry, "retry", false, "repeat points that failed")
	f.BoolVar(&flags.dry, "dry-run", false, "show the points, and try none")
	f.StringSliceVar(&flags.references, "reference", nil, "show a published `series` beside the points: a TOML file, or "+strings.Join(sweep.References(), " or "))
	f.StringVar(&flags.json, "json", "", "write the sweep as JSON to this `file`; - for the standard output, alone")
	f.StringVar(&flags.csv, "csv", "", "write the points' figures, unrounded, to this `file`; - for the standard output, alone")
	f.StringVar(&flags.markdownFile, "markdown", "", "write the table as Markdown to this `file`; - for the standard output, alone")
	return c
}

// spec reads the flags.
func (f *sweepFlags) spec(c *cobra.Command) (sweep.Spec, error) {
	s := sweep.Spec{
		Recipe: f.config, Set: f.set, Mode: sweep.Mode(f.mode), Source: sweep.Run, Topologies: f.topologies, Kind: f.kind, MaxSlice: f.maxSlice,
		Steps: f.steps, Warmup: f.warmup, Quick: f.quick, Extrapolate: f.extrapolate, MaxCompileChips: f.maxCompile,
	}
	if f.plan {
		s.Source = sweep.Plan
	}
	bad := func(format string, args ...any) (sweep.Spec, error) {
		return s, usageError{fmt.Errorf(format+"; see `%s --help`", append(args, c.CommandPath())...)}
	}
	if err := checkOutputs(c, []string{"json", "csv", "markdown"}); err != nil {
		return s, err
	}
	switch {
	case s.Mode != sweep.NoMode && s.Mode != sweep.Weak && s.Mode != sweep.Strong:
		return bad("--mode is %q and must be weak or strong", f.mode)
	case !f.plan && (f.quick || f.extrapolate || f.maxCompile != 0):
		return bad("--quick, --extrapolate and --max-compile-chips are for --plan")
	case f.extrapolate && f.timeout == 0 && f.maxCompile == 0:
		return bad("--extrapolate needs --timeout or --max-compile-chips, to say what is not compiled")
	case f.plan && (c.Flags().Changed("steps") || c.Flags().Changed("warmup")):
		return bad("--steps and --warmup are for runs; a plan has no steps")
	case f.warmup < 0 || f.steps <= f.warmup:
		return bad("--warmup is %d and --steps is %d: steps must be left that count", f.warmup, f.steps)
	case f.maxSlice < 0 || f.maxCompile < 0 || f.timeout < 0:
		return bad("--max-slice, --max-compile-chips and --timeout must not be negative")
	}
	for _, list := range []struct {
		flag, text string
		to         *[]int
	}{{"--chips", f.chips, &s.Chips}, {"--devices", f.devices, &s.Devices}} {
		if list.text == "" {
			continue
		}
		n, err := sweep.ParseCounts(list.text)
		if err != nil {
			return bad("%s: %s", list.flag, strings.TrimPrefix(err.Error(), "sweep: "))
		}
		*list.to = n
	}
	if s.Mode == sweep.NoMode && len(s.Chips)+len(s.Devices) > 1 {
		return bad("--mode is needed with several numbers of chips or devices: weak (the work of a device stays the same) or strong (that of a step)")
	}
	for _, text := range f.vary {
		v, err := sweep.ParseVary(text)
		if err != nil {
			return bad("--vary: %s", strings.TrimPrefix(err.Error(), "sweep: "))
		}
		for _, other := range s.Vary {
			if other.Key == v.Key {
				return bad("--vary names %s twice", v.Key)
			}
		}
		s.Vary = append(s.Vary, v)
	}
	s.Name = f.name
	if s.Name == "" {
		parts := []string{strings.TrimSuffix(filepath.Base(f.config), ".toml"), f.mode, string(s.Source)}
		if f.quick {
			parts = append(parts, "quick")
		}
		s.Name = strings.ReplaceAll(strings.Join(parts, "-"), "--", "-")
	}
	if !filepath.IsLocal(s.Name) {
		return bad("--name is %q and must be the name of a folder", s.Name)
	}
	return s, nil
}

func runSweep(c *cobra.Command, flags *sweepFlags) error {
	if err := required(c, "config"); err != nil {
		return err
	}
	spec, err := flags.spec(c)
	if err != nil {
		return err
	}
	var published []*sweep.Series
	for _, name := range flags.references {
		s, err := sweep.Reference(name)
		if err != nil {
			return err
		}
		published = append(published, s)
	}
	s, err := sweep.New(spec)
	if err != nil {
		return err
	}
	if flags.dry {
		return flags.write(c, s, published)
	}
	o, err := flags.options(c, spec.Source)
	if err != nil {
		return err
	}
	dir := filepath.Join(flags.folder, spec.Name)
	if err := sweep.Execute(c.Context(), dir, s, o); err != nil {
		if c.Context().Err() != nil {
			return exitError{err, codeInterrupted}
		}
		return err
	}
	if err := flags.write(c, s, published); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "kept in %s\n", dir)
	for i := range s.Points {
		if p := &s.Points[i]; p.Status == sweep.Failed && p.Failure != sweep.OutOfMemory {
			return exitError{fmt.Errorf("%s failed; --retry tries failed points again, once their cause is mended", p.ID), codePointsFailed}
		}
	}
	return nil
}

// options says how points are tried.
func (f *sweepFlags) options(c *cobra.Command, source sweep.Source) (sweep.Options, error) {
	titan, err := os.Executable()
	if err != nil {
		return sweep.Options{}, err
	}
	o := sweep.Options{Command: []string{titan}, Timeout: f.timeout, Versions: sweep.Versions{Titan: version()},
		Log: func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }}
	switch {
	case f.again:
		o.Again = sweep.All
	case f.retry:
		o.Again = sweep.FailedPoints
	}
	name := "cpu"
	if source == sweep.Plan {
		name = "tpu"
	}
	plugin, err := plugins.Find(name)
	if err != nil {
		return o, err
	}
	o.Versions.Plugin = pluginVersion(name, plugin)
	return o, nil
}

// pluginVersion names a plugin: by its folder, which has version and hash, or by
// its path where it was named by hand.
func pluginVersion(name, path string) string {
	if os.Getenv(plugins.EnvVar(name)) != "" {
		return path
	}
	return name + " " + filepath.Base(filepath.Dir(path))
}

// write prints the table and writes the files that were asked for.
func (f *sweepFlags) write(c *cobra.Command, s *sweep.Sweep, published []*sweep.Series) error {
	alone := false
	for _, out := range []struct {
		flag, file string
		to         func(io.Writer) error
	}{
		{"--json", f.json, func(w io.Writer) error { return writeSweepJSON(w, s, published) }},
		{"--csv", f.csv, func(w io.Writer) error { return s.WriteCSV(w, published...) }},
		{"--markdown", f.markdownFile, func(w io.Writer) error { return s.WriteMarkdown(w, published...) }},
	} {
		switch out.file {
		case "":
			continue
		case "-":
			alone = true
			if err := out.to(c.OutOrStdout()); err != nil {
				return err
			}
			continue
		}
		var b bytes.Buffer
		if err := out.to(&b); err != nil {
			return err
		}
		if err := writeOutput(out.flag, out.file, b.Bytes()); err != nil {
			return err
		}
	}
	if alone {
		return nil
	}
	return s.WriteTable(c.OutOrStdout(), published...)
}

// writeSweepJSON writes a sweep as it is kept and, where there are, published
// series.
func writeSweepJSON(w io.Writer, s *sweep.Sweep, published []*sweep.Series) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		*sweep.Sweep
		References []*sweep.Series `json:"references,omitempty"`
	}{s, published})
}
