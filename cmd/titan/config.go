package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"titan/configs"
	"titan/recipes"
)

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Show, check and document recipes",
		Args:  noVerb,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newConfigShow(), newConfigCheck(), newConfigSchema(), newConfigList())
	return c
}

// recipeFlags are the flags of every verb that takes a recipe.
type recipeFlags struct {
	config string
	set    []string
}

func (r *recipeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&r.config, "config", "", "`recipe`: a path, or the name of a built-in one (see `titan config list`)")
	c.Flags().StringArrayVar(&r.set, "set", nil, "override a `section.key=value` of the recipe; may be repeated")
}

// load reads and checks the recipe.
func (r *recipeFlags) load(c *cobra.Command) (*configs.Recipe, *configs.Origins, error) {
	if err := required(c, "config"); err != nil {
		return nil, nil, err
	}
	return configs.Load(r.config, r.set)
}

func newConfigShow() *cobra.Command {
	var flags recipeFlags
	bare := false
	c := &cobra.Command{
		Use:   "show",
		Short: "Print the resolved recipe, each value with its origin",
		Long: `Print the resolved recipe as TOML: what it says, what it inherits, what --set
changes, and the defaults. Where a value is from stands behind it. The output is
a recipe itself.`,
		Example: "  titan config show --config qwen3_moe_debug --set training.steps=100",
		Args:    exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			r, origins, err := flags.load(c)
			if err != nil {
				return err
			}
			if bare {
				origins = nil
			}
			_, err = io.WriteString(c.OutOrStdout(), r.TOML(origins))
			return err
		},
	}
	flags.add(c)
	c.Flags().BoolVar(&bare, "bare", false, "without origins")
	return c
}

func newConfigList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the built-in recipes",
		Args:  exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "RECIPE\tMESH\tDESCRIPTION")
			for _, name := range recipes.Names() {
				r, _, err := configs.Load("builtin:"+name, nil)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, machines(r), r.Job.Description)
			}
			return w.Flush()
		},
	}
}

// machines names what a recipe runs on: "tpu7x:4x4x4" or "8 cpu".
func machines(r *configs.Recipe) string {
	if r.Mesh.Topology != "" {
		return r.Mesh.Topology
	}
	if n := r.Mesh.Count(); n > 0 {
		return fmt.Sprintf("%d %s", n, r.Mesh.Platform)
	}
	return r.Mesh.Platform
}

func newConfigSchema() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "schema [SECTION]",
		Short: "Document every key of a recipe",
		Example: `  titan config schema training
  titan config schema --json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("`%s` takes one section; see `%s --help`", c.CommandPath(), c.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return configs.Sections(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			keys := configs.Schema()
			if len(args) == 1 {
				var err error
				if keys, err = configs.SchemaOf(args[0]); err != nil {
					return usageError{err}
				}
			}
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetEscapeHTML(false)
				e.SetIndent("", "  ")
				return e.Encode(keys)
			}
			return printSchema(c.OutOrStdout(), keys)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func printSchema(w io.Writer, keys []configs.Key) error {
	var b strings.Builder
	section := ""
	for _, k := range keys {
		if k.Section != section {
			section = k.Section
			header := "[" + section + "]"
			if k.OfElements {
				header = "[" + header + "]"
			}
			fmt.Fprintf(&b, "\n%s\n%s\n", header, wrap(configs.SectionDoc(section), "    "))
		}
		kind := k.Type
		if k.Default != "" && k.Default != `""` {
			kind += ", default " + k.Default
		}
		fmt.Fprintf(&b, "  %s: %s\n%s\n", k.Name, kind, wrap(k.Doc, "      "))
	}
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// wrap breaks a text into lines of 80 columns.
func wrap(text, indent string) string {
	var lines []string
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > 80 {
			lines, line = append(lines, line), indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
