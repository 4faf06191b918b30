package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/data/progress"
)

func newCheckpoint() *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "List, verify and export what training saved",
		Args:  noVerb,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newCheckpointList(), newCheckpointVerify(), newCheckpointExport())
	return c
}

const checkpointFolder = "one folder of checkpoints"

// openCheckpoints opens a folder of checkpoints. A path that names a checkpoint in
// it, as listed, stands for the folder and the step.
func openCheckpoints(path string) (f *checkpoint.Folder, step int, err error) {
	path = filepath.Clean(path)
	step = checkpoint.Latest
	if digits, ok := strings.CutPrefix(filepath.Base(path), "step-"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 0 {
			path, step = filepath.Dir(path), n
		}
	}
	f, err = checkpoint.OpenFolder(path)
	return f, step, err
}

// stepFlag is --step.
type stepFlag struct{ step int }

func (s *stepFlag) add(c *cobra.Command) {
	c.Flags().IntVar(&s.step, "step", checkpoint.Latest, "`number` of the step; -1 for the checkpoint committed last")
}

// resolve returns the step wanted: that of the flag, or of the path.
func (s *stepFlag) resolve(c *cobra.Command, fromPath int) (int, error) {
	switch {
	case s.step < checkpoint.Latest:
		return 0, usageError{fmt.Errorf("--step is %d and must be a step, or -1", s.step)}
	case fromPath != checkpoint.Latest && c.Flags().Changed("step") && s.step != fromPath:
		return 0, usageError{fmt.Errorf("--step is %d, but the path names step %d", s.step, fromPath)}
	case fromPath != checkpoint.Latest:
		return fromPath, nil
	}
	return s.step, nil
}

func newCheckpointList() *cobra.Command {
	return &cobra.Command{
		Use:     "list DIR",
		Short:   "List the checkpoints of a folder, and what is wrong with those that cannot be used",
		Example: "  titan checkpoint list outputs/checkpoint",
		Args:    exactly(1, checkpointFolder),
		RunE: func(c *cobra.Command, args []string) error {
			folder, only, err := openCheckpoints(args[0])
			if err != nil {
				return err
			}
			all, err := folder.List()
			if err != nil {
				return err
			}
			list := all[:0:0]
			for _, l := range all {
				if only == checkpoint.Latest || l.Step == only {
					list = append(list, l)
				}
			}
			if len(list) == 0 {
				return fmt.Errorf("%s has no checkpoints", args[0])
			}
			latest := -1 // the one committed last
			for i, l := range list {
				if l.Manifest != nil && (latest < 0 || l.Manifest.Generation > list[latest].Manifest.Generation) {
					latest = i
				}
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "STEP\tSTATUS\tSIZE\tSAVED\tMESH\t")
			for i, l := range list {
				if l.Manifest == nil {
					fmt.Fprintf(w, "%d\t%v\t\t\t\t\n", l.Step, l.Status)
					continue
				}
				var mesh []string
				for _, a := range l.Manifest.Mesh {
					mesh = append(mesh, fmt.Sprintf("%s=%d", a.Name, a.Size))
				}
				note := ""
				if i == latest && only == checkpoint.Latest {
					note = "latest"
				}
				fmt.Fprintf(w, "%d\t%v\t%s\t%s\t%s\t%s\n", l.Step, l.Status, progress.FormatBytes(l.Bytes),
					l.Manifest.Created.Local().Format("2006-01-02 15:04:05"), strings.Join(mesh, " "), note)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, l := range list {
				if l.Err != nil {
					fmt.Fprintf(c.OutOrStdout(), "%v\n", l.Err)
				}
			}
			return nil
		},
	}
}

func newCheckpointVerify() *cobra.Command {
	var step stepFlag
	c := &cobra.Command{
		Use:     "verify DIR",
		Short:   "Read all of a checkpoint and compare it with its checksums",
		Example: "  titan checkpoint verify outputs/checkpoint --step 500",
		Args:    exactly(1, checkpointFolder),
		RunE: func(c *cobra.Command, args []string) error {
			folder, fromPath, err := openCheckpoints(args[0])
			if err != nil {
				return err
			}
			want, err := step.resolve(c, fromPath)
			if err != nil {
				return err
			}
			found, err := folder.Verify(c.Context(), want)
			if err != nil {
				return interrupted(c.Context(), err)
			}
			fmt.Fprintf(c.OutOrStdout(), "step %d is complete and as it was saved\n", found)
			return nil
		},
	}
	step.add(c)
	return c
}

func newCheckpointExport() *cobra.Command {
	var step stepFlag
	var o hfmodel.ExportOptions
	var to, typeName string
	shard := byteSize(5e9)
	c := &cobra.Command{
		Use:   "export DIR --to HFDIR",
		Short: "Write the model of a checkpoint as Transformers, vLLM and SGLang load it",
		Long: `Write the model of a checkpoint in the layout of Hugging Face: config.json,
generation_config.json, safetensors (with an index if there are several files),
and the tokenizer. What only training needs is left out.

The directory appears whole at the end, or not at all; it must not exist yet.`,
		Example: "  titan checkpoint export outputs/checkpoint --to my-model --dtype bfloat16",
		Args:    exactly(1, checkpointFolder),
		RunE: func(c *cobra.Command, args []string) error {
			if err := required(c, "to"); err != nil {
				return err
			}
			if to == "" {
				return usageError{errors.New("--to is empty and must name a directory to make")}
			}
			var err error
			if o.DType, err = hfmodel.ParseDType(typeName); err != nil {
				return usageError{fmt.Errorf("--dtype: %w", err)}
			}
			if o.MaxShardSize = int64(shard); o.MaxShardSize < 1 {
				return usageError{errors.New("--max-shard-size must be positive")}
			}
			folder, fromPath, err := openCheckpoints(args[0])
			if err != nil {
				return err
			}
			want, err := step.resolve(c, fromPath)
			if err != nil {
				return err
			}
			ck, err := folder.Open(want)
			if err != nil {
				return err
			}
			defer ck.Close()
			m, err := hfmodel.SavedModel(ck)
			if err != nil {
				return err
			}
			missing := ""
			if o.Tokenizer == "" && m.Tokenizer != "" {
				o.Tokenizer = m.Tokenizer
				if _, err := os.Stat(m.Tokenizer); err != nil {
					o.Tokenizer, missing = "", m.Tokenizer
				}
			}
			bar := progress.New(os.Stderr, "exporting", progress.Bytes)
			defer bar.Done()
			o.Progress = func(done, total int64) { bar.Set(done, total, "") }
			err = hfmodel.ExportCheckpoint(c.Context(), to, ck, o)
			bar.Done()
			if err != nil {
				return interrupted(c.Context(), err)
			}
			fmt.Fprintf(c.OutOrStdout(), "step %d of %s, a %s in %s, is in %s\n", ck.Step(), args[0], m.Family, typeName, to)
			switch {
			case missing != "":
				fmt.Fprintf(c.OutOrStdout(), "without a tokenizer: %s, where the run had it, is not there; --tokenizer names another place\n", missing)
			case o.Tokenizer == "":
				fmt.Fprintln(c.OutOrStdout(), "without a tokenizer; --tokenizer names one")
			}
			return nil
		},
	}
	step.add(c)
	f := c.Flags()
	f.StringVar(&to, "to", "", "`directory` to make")
	f.StringVar(&typeName, "dtype", "float32", "element `type` of the weights: float32, bfloat16 or float16")
	f.StringVar(&o.Tokenizer, "tokenizer", "", "`folder` (or tokenizer.json) of the tokenizer to copy; that of the run if not given")
	f.Var(&shard, "max-shard-size", "largest `size` of a file, such as 5GB")
	return c
}
