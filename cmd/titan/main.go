// Command titan trains large language models on meshes of accelerators.
//
// Each verb is a file: parse the flags, call the package that does the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

// usageError is a mistake on the command line, exit code 2.
type usageError struct{ error }

// exitError ends the process with a code of its own.
type exitError struct {
	error
	code int
}

// run executes one command and returns the process's exit code.
func run(args []string) (code int) {
	defer func() {
		if r := recover(); r != nil {
			code = crash(args, r, debug.Stack())
		}
	}()
	ctx, stop := endOnSignal()
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	out := &checkedOutput{Writer: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	var by signaled
	switch {
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &by):
		return interruptedBy(by.by)
	case err == nil && out.err != nil:
		err = fmt.Errorf("writing the output: %w", out.err)
	case err == nil:
		return 0
	}
	if err.Error() != "" {
		fmt.Fprintln(os.Stderr, "titan:", err)
	}
	var usage usageError
	var exit exitError
	switch {
	case errors.As(err, &usage):
		return 2
	case errors.As(err, &exit):
		return exit.code
	}
	return 1
}

// crash reports a bug of titan without showing a stack to the user.
func crash(args []string, r any, stack []byte) int {
	where := ""
	report := fmt.Sprintf("titan %s\narguments: %q\npanic: %v\n\n%s", version(), args, r, stack)
	if dir, err := os.MkdirTemp("", "titan-crash-"); err == nil {
		if p := filepath.Join(dir, "report.txt"); os.WriteFile(p, []byte(report), 0o600) == nil {
			where = "; please report it with " + p
		}
	}
	fmt.Fprintf(os.Stderr, "titan: this is a bug: %v%s\n", r, where)
	return 70
}

// numberError is what the flags' parser says of a number besides what is wrong.
var numberError = regexp.MustCompile(`: strconv\.\w+: parsing ".*?": `)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "titan",
		Short:         "Train large language models on meshes of accelerators",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noVerb,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		said := numberError.ReplaceAllString(err.Error(), ": ")
		return usageError{fmt.Errorf("%s; see `%s --help`", said, c.CommandPath())}
	})
	root.AddCommand(newTrain(), newProfile(), newPlan(), newSweep(), newCompare(), newReport(), newGenerate(), newConfig(), newPlugin(), newDoctor(), newData(), newCache(), newCheckpoint(), newVersion())
	return root
}

// noVerb explains an unknown verb.
func noVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	c.SuggestionsMinimumDistance = 2 // edits
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", s[0])
	}
	return usageError{fmt.Errorf("unknown command %q%s (see `%s --help`)", args[0], hint, c.CommandPath())}
}

// exactly makes a wrong number of arguments a usage error.
func exactly(n int, what string) cobra.PositionalArgs {
	return counting(func(got int) bool { return got == n }, what)
}

// some makes it a usage error that there are no arguments.
func some(what string) cobra.PositionalArgs {
	return counting(func(got int) bool { return got > 0 }, what)
}

func counting(right func(n int) bool, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if !right(len(args)) {
			return usageError{fmt.Errorf("`%s` needs %s; see `%s --help`", c.CommandPath(), what, c.CommandPath())}
		}
		return nil
	}
}
