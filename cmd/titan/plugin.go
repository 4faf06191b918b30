package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"titan/pjrt/plugins"
)

func newPlugin() *cobra.Command {
	c := &cobra.Command{
		Use:   "plugin",
		Short: "Install and list PJRT plugins, through which programs are compiled and run",
		Args:  noVerb,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPluginInstall(), newPluginList(), newPluginRemove(), newPluginProbe())
	return c
}

func newPluginInstall() *cobra.Command {
	var o plugins.InstallOptions
	c := &cobra.Command{
		Use:   "install " + strings.Join(plugins.Names(), "|"),
		Short: "Fetch a pinned plugin with pip, check it and unpack it into the cache",
		Args:  exactly(1, "one plugin name ("+strings.Join(plugins.Names(), ", ")+")"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := plugins.Pinned(args[0]); err != nil {
				return usageError{err}
			}
			o.Log = c.ErrOrStderr()
			path, err := plugins.Install(c.Context(), args[0], o)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), path)
			return nil
		},
		ValidArgs: plugins.Names(),
	}
	c.Flags().StringVar(&o.Wheel, "wheel", "", "install from this wheel `file` instead of fetching it")
	c.Flags().StringVar(&o.Python, "python", "", "Python `interpreter` whose pip fetches wheels (default python3)")
	c.Flags().BoolVar(&o.Force, "force", false, "install again what is installed")
	return c
}

func newPluginList() *cobra.Command {
	verify := false
	c := &cobra.Command{
		Use:   "list",
		Short: "List the plugins: pinned version, API version, where they are",
		Args:  exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PLUGIN\tPINNED\tPJRT API\tSOURCE\tPATH")
			var damaged []error
			for _, s := range plugins.List() {
				if verify && s.Problem == "" {
					if err := plugins.Verify(s.Name); err != nil {
						damaged = append(damaged, err)
						s.Problem = err.Error()
					}
				}
				if s.Problem != "" {
					fmt.Fprintf(w, "%s\t%s\t-\t-\t%s\n", s.Name, s.Pinned, s.Problem)
					continue
				}
				p, err := probe(c.Context(), s.Name, s.Path)
				if err != nil && p.API == "" {
					p.API = "unreadable"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", s.Name, s.Pinned, p.API, s.Source, s.Path)
			}
			return errors.Join(w.Flush(), errors.Join(damaged...))
		},
	}
	c.Flags().BoolVar(&verify, "verify", false, "read each installed library and compare its sha256")
	return c
}

func newPluginRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove " + strings.Join(plugins.Names(), "|"),
		Short: "Delete a plugin from the cache",
		Args:  exactly(1, "one plugin name ("+strings.Join(plugins.Names(), ", ")+")"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := plugins.Pinned(args[0]); err != nil {
				return usageError{err}
			}
			return plugins.Remove(c.Context(), args[0])
		},
		ValidArgs: plugins.Names(),
	}
}
