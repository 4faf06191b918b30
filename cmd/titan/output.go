package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"titan/internal/wholefile"
)

// writeOutput writes a file that a flag asked for: all of it, or what was there stays.
func writeOutput(flag, path string, content []byte) error {
	if err := wholefile.Write(path, content); err != nil {
		return fmt.Errorf("%s: nothing is written: %w; name a file in a folder that exists and has room", flag, err)
	}
	return nil
}

// checkOutputs looks, before long work, at the files that flags ask for: each of them
// is named and none twice, and its folder is there. Those in piped may be "-", the
// standard output.
func checkOutputs(c *cobra.Command, piped []string, flags ...string) error {
	taken := map[string]string{}
	for _, name := range append(piped, flags...) {
		f := c.Flags().Lookup(name)
		path := f.Value.String()
		switch {
		case !f.Changed:
			continue
		case path == "":
			return usageError{fmt.Errorf("--%s is empty: name a file, or leave it out", name)}
		case path == "-" && !slices.Contains(piped, name):
			return usageError{fmt.Errorf("--%s cannot be the standard output: name a file", name)}
		}
		if other := taken[filepath.Clean(path)]; other != "" {
			return usageError{fmt.Errorf("--%s and --%s are both %s: name two files", other, name, path)}
		}
		if taken[filepath.Clean(path)] = name; path == "-" {
			continue
		}
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return fmt.Errorf("--%s: %s is a folder; name a file", name, path)
		}
		if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--%s: there is no folder %s; name a file in one that exists", name, filepath.Dir(path))
		}
	}
	return nil
}

// checkedOutput is one that remembers what went wrong: those who print to it need not
// look.
type checkedOutput struct {
	io.Writer
	err error
}

func (o *checkedOutput) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}
