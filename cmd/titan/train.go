package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"titan/checkpoint"
	"titan/configs"
	"titan/launch"
	"titan/pjrt"
	"titan/train"
)

// Exit codes of a run that a signal ended after it had saved, and of one that
// cannot go on without another host.
const (
	codePreempted   = 42  // SIGTERM: the job's controller starts it again
	codeLost        = 142 // another host is gone, or never came: likewise
	codeInterrupted = 130 // SIGINT
	codeHangUp      = 129 // SIGHUP
)

func newTrain() *cobra.Command {
	var flags recipeFlags
	c := &cobra.Command{
		Use:   "train",
		Short: "Train a model",
		Long: `Train what a recipe says, from its last checkpoint on if it has one.

SIGINT, SIGTERM and SIGHUP end the run after the step under way and a checkpoint;
a second one ends it at once. The exit code is then 130, 42 and 129. On several
hosts all end when one is asked to, after the same step; one that is gone ends the
others with 142.`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runTrain(c, &flags) },
	}
	flags.add(c)
	return c
}

func runTrain(c *cobra.Command, flags *recipeFlags) error {
	o, err := flags.run(c)
	if err != nil {
		return err
	}
	res, err := train.Run(c.Context(), o)
	switch {
	case launch.Passing(err):
		return exitError{err, codeLost}
	case err != nil:
		return err
	case res.Stopped != nil:
		return stoppedBy(res, goOn(o.Recipe, res))
	}
	return nil
}

// stoppedBy is how the process ends when a signal ended its run; what says what
// becomes of it.
func stoppedBy(res *train.Result, what string) error {
	switch {
	case res.Preempted():
		return exitError{errors.New("preempted" + what), codePreempted}
	case res.Stopped == syscall.SIGHUP:
		return exitError{errors.New("hung up" + what), codeHangUp}
	}
	return exitError{errors.New("interrupted" + what), codeInterrupted}
}

// run loads a recipe and prepares the process for training what it says.
func (flags *recipeFlags) run(c *cobra.Command) (train.RunOptions, error) {
	r, origins, err := flags.load(c)
	if err != nil {
		return train.RunOptions{}, err
	}
	if r.Mesh.Platform == "cpu" {
		if err := pjrt.KeepHostPages(); err != nil {
			fmt.Fprintln(c.ErrOrStderr(), "note:", err)
		}
	}
	for _, w := range r.Warnings() {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
	}
	// Who reads the log may end first, as tee does at Ctrl-C: not a reason to die
	// before the save.
	signal.Ignore(syscall.SIGPIPE)
	// The signals are ours from here on: the first asks, the second kills.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		ends = append(ends, syscall.SIGHUP)
	}
	signal.Reset(ends...)
	stop := make(chan os.Signal, 1)
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, ends...)
	go func() {
		s := <-asked
		signal.Reset(ends...)
		stop <- s
	}()
	return train.RunOptions{
		Recipe: r, Origins: origins, Version: version(), Out: c.OutOrStdout(), Colour: r.Metrics.Colour(os.Stdout), Stop: stop,
	}, nil
}

// goOn says what becomes of a run that a signal ended.
func goOn(r *configs.Recipe, res *train.Result) string {
	switch {
	case !r.Checkpoint.Enable && res.Step > 0:
		return fmt.Sprintf(" after step %d; nothing is saved, as checkpoint.enable is false", res.Step)
	case !res.Saved:
		return " before the first step; the same command starts again"
	case r.Checkpoint.LoadStep != checkpoint.Latest:
		return fmt.Sprintf(" after step %d; the same command without checkpoint.load_step goes on from there", res.Step)
	}
	return fmt.Sprintf(" after step %d; the same command goes on from there", res.Step)
}
