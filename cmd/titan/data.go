package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"titan/data/source"
	"titan/internal/nearest"
)

func newData() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Turn text into token datasets, and look into them",
		Args:  noVerb,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newDataPrepare(), newDataTrainTokenizer(), newDataInspect())
	return c
}

// sourceFlags are the flags that say how inputs are read.
type sourceFlags struct {
	format           string
	include, exclude []string
	field            string
}

func (s *sourceFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&s.include, "include", nil, "take only files of directories that match this `pattern`, such as '*.go' or 'src/**/*.md'; may be repeated")
	f.StringArrayVar(&s.exclude, "exclude", nil, "leave out files and folders that match this `pattern`; may be repeated")
	f.StringVar(&s.format, "format", "auto", "`format` of all files: auto (by their names), text, jsonl or parquet; .gz and .zst are unpacked")
	f.StringVar(&s.field, "field", "text", "`name` of the field or column with the text, in JSONL and Parquet")
}

func (s *sourceFlags) options() (source.Options, error) {
	known := []string{"auto", string(source.Text), string(source.JSONL), string(source.Parquet)}
	o := source.Options{Format: source.Format(s.format), Field: s.field, Include: s.include, Exclude: s.exclude}
	switch o.Format {
	case "auto":
		o.Format = source.Auto
	case source.Text, source.JSONL, source.Parquet:
	default:
		return o, usageError{fmt.Errorf("--format %q is not known%s", s.format, nearest.Hint(s.format, known))}
	}
	return o, nil
}

// inputs makes a missing input a usage error.
func inputs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("`%s` needs inputs: files, directories or globs; see `%s --help`", c.CommandPath(), c.CommandPath())}
	}
	return nil
}

// required makes flags that are not given a usage error that names them all.
func required(c *cobra.Command, names ...string) error {
	var missing []string
	for _, n := range names {
		if !c.Flags().Changed(n) {
			missing = append(missing, "--"+n)
		}
	}
	if len(missing) > 0 {
		return usageError{fmt.Errorf("`%s` needs %s; see `%s --help`", c.CommandPath(), strings.Join(missing, " and "), c.CommandPath())}
	}
	return nil
}

// byteSize is a flag such as 64MB, 1.5GiB or 4096.
type byteSize int64

var byteUnits = []struct {
	suffix string
	bytes  float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

func (b *byteSize) Type() string   { return "size" }
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

func (b *byteSize) Set(s string) error {
	number, unit := s, 1.0
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0 && v*unit < math.MaxInt64) {
		return fmt.Errorf("want a size such as 64MB, 1.5GiB or 4096")
	}
	*b = byteSize(v * unit)
	return nil
}
