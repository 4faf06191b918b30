package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"titan/internal/human"
	"titan/internal/plural"
	"titan/pjrt/compilecache"
)

func newCache() *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "List and clear the compiled programs kept on disk",
		Long: "List the compiled programs that are kept on disk, the last used first.\n" +
			"$" + compilecache.EnvVar + " names another folder for them, or says \"off\".",
		Args: noVerb,
		RunE: func(c *cobra.Command, _ []string) error { return listCache(c) },
	}
	c.AddCommand(&cobra.Command{
		Use:   "clear",
		Short: "Remove all compiled programs; they are compiled again when needed",
		Args:  exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			cache, err := theCache()
			if err != nil {
				return err
			}
			n, bytes, err := cache.Clear()
			if err != nil {
				return fmt.Errorf("clearing %s: %w", cache.Path(), err)
			}
			fmt.Fprintf(c.OutOrStdout(), "removed %s from %s\n", programs(n, bytes), cache.Path())
			return nil
		},
	})
	return c
}

func theCache() (*compilecache.Cache, error) {
	dir, err := compilecache.Dir()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, fmt.Errorf("the compile cache is off: $%s says so", compilecache.EnvVar)
	}
	return compilecache.Open(dir), nil
}

func listCache(c *cobra.Command) error {
	cache, err := theCache()
	if err != nil {
		return err
	}
	entries, err := cache.Entries()
	if err != nil {
		return fmt.Errorf("listing the compile cache: %w", err)
	}
	total := int64(0)
	for _, e := range entries {
		total += e.Bytes
	}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "%s in %s\n", programs(len(entries), total), cache.Path())
	if len(entries) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROGRAM\tPLATFORM\tSIZE\tCOMPILED\tLAST USED\tKEY")
	for _, e := range entries {
		name, platform, created := e.Name, e.Platform, e.Created.Local().Format(time.DateTime)
		if name == "" {
			name, platform, created = "(unreadable)", "-", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%d KiB\t%s\t%s\t%.12s\n", name, platform, e.Bytes>>10, created, e.Used.Local().Format(time.DateTime), e.Key)
	}
	return w.Flush()
}

func programs(n int, bytes int64) string {
	return fmt.Sprintf("%s (%s)", plural.Of(n, "compiled program"), human.Memory(bytes))
}
