package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"titan/configs"
	"titan/internal/human"
	"titan/internal/nearest"
	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/pjrt/plugins"
	"titan/plan"
)

// codeDoesNotFit is the exit code of a plan for which there is no room.
const codeDoesNotFit = 3

// planFlags are the flags of titan plan.
type planFlags struct {
	recipeFlags
	topology           string
	quick, list, again bool
	noSearch, choose   bool
	tries              int
	json, html, effort string
}

func newPlan() *cobra.Command {
	var flags planFlags
	c := &cobra.Command{
		Use:   "plan",
		Short: "Compile a recipe for TPUs that are not here: memory, communication, expected speed",
		Long: `Compile the step that titan train would run, for a topology of TPUs, on any machine,
and say whether it fits, what devices send each other, how fast it is expected to
be, and what limits it. The compiled step is kept in the compile cache: devices of
that topology with the same folder and the same plugin load it.

A step that does not fit ends the command with exit code 3, after the changes to
the recipe that would make it fit. A mistake in the recipe or the topology is exit
code 1, one on the command line 2.`,
		Example: `  titan plan --config llama3_8b
  titan plan --config llama3_70b --topology tpu7x:4x4x8 --quick
  titan plan --config llama3_8b --effort O1
  titan plan --config qwen3_8b --topology v5p:4x4x4 --choose
  titan plan --list-topologies`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if flags.list {
				return listTopologies(c)
			}
			return runPlan(c, &flags)
		},
	}
	flags.add(c)
	c.Flags().StringVar(&flags.topology, "topology", "", "compile for this `topology`, such as tpu7x:4x4x4 or v5e:16x16*2, instead of the recipe's")
	c.Flags().BoolVar(&flags.quick, "quick", false, "let the compiler try less: some times faster, memory and time are rough")
	c.Flags().StringVar(&flags.effort, "effort", "default", "how hard the compiler tries: quick, O1, O2 or default, which is what devices run; to compare `levels`")
	c.Flags().BoolVar(&flags.noSearch, "no-search", false, "do not look for changes that make a step fit")
	c.Flags().BoolVar(&flags.choose, "choose", false, "look for the fastest mesh, batch of a pass and activation checkpointing for the recipe's topology and sequences of a step, and plan that")
	c.Flags().IntVar(&flags.tries, "tries", 3, "with --choose: how many `combinations` are compiled besides the recipe as it is")
	c.Flags().BoolVar(&flags.again, "no-cache", false, "compile even what the compile cache has, and store nothing")
	c.Flags().StringVar(&flags.json, "json", "", "write the report as JSON to this `file`, too; - for the standard output, alone")
	c.Flags().StringVar(&flags.html, "html", "", "write the report as a page to this `file`, too")
	c.Flags().BoolVar(&flags.list, "list-topologies", false, "list the topologies that can be planned for, and leave")
	c.AddCommand(newPlanKernel())
	return c
}

// newPlanKernel is what titan plan starts to look at the code of a tile kernel.
func newPlanKernel() *cobra.Command {
	return &cobra.Command{
		Use: "kernel", Hidden: true, Args: exactly(0, "a job on the standard input"),
		RunE: func(c *cobra.Command, _ []string) error {
			return plan.CompileKernel(c.InOrStdin(), c.OutOrStdout())
		},
	}
}

// setEffort sets how hard the compiler tries.
func (f *planFlags) setEffort(o *plan.Options) error {
	levels := map[string]int{"default": 0, "quick": pjrt.LevelO0, "O1": pjrt.LevelO1, "O2": pjrt.LevelO2}
	level, ok := levels[f.effort]
	if !ok {
		names := slices.Sorted(maps.Keys(levels))
		return usageError{fmt.Errorf("--effort %q is not known: there are %s%s", f.effort, strings.Join(names, ", "), nearest.Hint(f.effort, names))}
	}
	if f.quick && f.effort != "default" {
		return usageError{fmt.Errorf("--quick is --effort quick: give one of them, not --effort %s", f.effort)}
	}
	if o.Quick = f.quick || level == pjrt.LevelO0; !o.Quick {
		o.Level = level
	}
	return nil
}

func runPlan(c *cobra.Command, flags *planFlags) error {
	load := func(set ...string) (*configs.Recipe, error) {
		all := append([]string{}, flags.set...)
		if flags.topology != "" {
			all = append(all, "mesh.platform=tpu", "mesh.devices=0", "mesh.topology="+flags.topology)
		}
		r, _, err := configs.Load(flags.config, append(all, set...))
		return r, err
	}
	if err := required(c, "config"); err != nil {
		return err
	}
	switch {
	case flags.tries < 1:
		return usageError{fmt.Errorf("--tries is %d and must be at least 1: how many combinations --choose compiles besides the recipe", flags.tries)}
	case c.Flags().Changed("tries") && !flags.choose:
		return usageError{errors.New("--tries is for --choose: give that, too, or leave it out")}
	case c.Flags().Changed("topology") && flags.topology == "":
		return usageError{errors.New("--topology is empty: name one (titan plan --list-topologies), or leave it out for the recipe's")}
	}
	if err := checkOutputs(c, []string{"json"}, "html"); err != nil {
		return err
	}
	if flags.topology != "" {
		if _, err := mesh.ParseTopology(flags.topology); err != nil {
			return fmt.Errorf("--topology: %s", strings.TrimPrefix(err.Error(), "mesh: "))
		}
	}
	o := plan.Options{Cache: compilecache.OpenDefault(), Log: func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }}
	err := flags.setEffort(&o)
	if err != nil {
		return err
	}
	if o.Recipe, err = load(); err != nil {
		return err
	}
	if o.Plugin, err = plugins.Find("tpu"); err != nil {
		return err
	}
	if self, err := os.Executable(); err == nil {
		o.Child = []string{self, "plan", "kernel"}
	}
	if flags.again {
		o.Cache = nil
	}
	var report *plan.Report
	if flags.choose {
		report, err = plan.Choose(c.Context(), o, flags.tries, load)
	} else {
		report, err = plan.Make(c.Context(), o)
	}
	if err != nil {
		return err
	}
	if !report.Memory.Fits && !flags.noSearch {
		if report.Changes, err = plan.Search(c.Context(), o, report, load); err != nil {
			return err
		}
	}
	if err := writePlan(c, report, flags.json); err != nil {
		return err
	}
	if flags.html != "" {
		if err := writePlanPage(report, flags.html); err != nil {
			return err
		}
	}
	if !report.Memory.Fits {
		return exitError{errors.New("the step does not fit"), codeDoesNotFit}
	}
	return nil
}

// writePlan prints the report and writes it as JSON.
func writePlan(c *cobra.Command, r *plan.Report, file string) error {
	if file != "-" {
		fmt.Fprint(c.OutOrStdout(), r)
	}
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if data = append(data, '\n'); file == "-" {
		_, err = c.OutOrStdout().Write(data)
		return err
	}
	return writeOutput("--json", file, data)
}

// listTopologies lists what real pods offer.
func listTopologies(c *cobra.Command) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tDEVICES A CHIP\tBF16 TFLOP/S\tHBM GIB\tSHAPES")
	for _, chip := range mesh.Chips() {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%d\t%s\n", chip.Kind, chip.Devices, chip.PeakBF16/1e12, chip.HBMBytes>>30, shapes(chip))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), "\nA topology is KIND:SHAPE, such as tpu7x:4x4x4; with *N, N slices of it over the data-centre network.")
	return nil
}

// shapes lists the shapes of a generation: all small ones, and the rule for the
// others.
func shapes(c mesh.Chip) string {
	var out []string
	for _, s := range c.Shapes() {
		n := 1
		var sides []string
		for _, side := range s {
			n *= side
			sides = append(sides, fmt.Sprint(side))
		}
		if c.Dims == 3 && n > 256 {
			return strings.Join(out, " ") + fmt.Sprintf(" … sides multiples of 4, ascending, up to %s chips", human.Int(c.MaxChips))
		}
		out = append(out, strings.Join(sides, "x"))
	}
	return strings.Join(out, " ")
}
