package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"titan/train"
)

func newProfile() *cobra.Command {
	var flags recipeFlags
	warmup, steps := 3, 3
	c := &cobra.Command{
		Use:   "profile",
		Short: "Trace some training steps",
		Long: `Train the first steps of a recipe and trace the last of them: a timeline of what the
trainer does (data, dispatch, wait, validation) and of the devices' programs, with
their operations where the plugin has a profiler. Open it at ui.perfetto.dev or
chrome://tracing.

Nothing is saved but traces, metrics and the record, in the folder profile of
job.dump_folder; checkpoints are left alone. To trace a run while it trains, see
profiling.enable_profiling in the recipe.`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if warmup < 0 || steps < 1 {
				return usageError{fmt.Errorf("--warmup is %d and --steps %d: there must be at least one step to trace; see `%s --help`", warmup, steps, c.CommandPath())}
			}
			o, err := flags.run(c)
			if err != nil {
				return err
			}
			res, dir, err := train.Profile(c.Context(), o, warmup, steps)
			switch {
			case err != nil:
				return err
			case res.Stopped != nil:
				return stoppedBy(res, "; what was not traced by then is not there")
			}
			fmt.Fprintf(c.OutOrStdout(), "the traces are in %s; open timeline.json at ui.perfetto.dev\n", dir)
			return nil
		},
	}
	flags.add(c)
	c.Flags().IntVar(&steps, "steps", steps, "steps to trace")
	c.Flags().IntVar(&warmup, "warmup", warmup, "steps before them")
	return c
}
