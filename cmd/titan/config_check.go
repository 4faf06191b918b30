package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"titan/configs"
	"titan/internal/human"
	"titan/internal/plural"
)

func newConfigCheck() *cobra.Command {
	var flags recipeFlags
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a recipe without running it: mesh, parameters, bytes, batches",
		Long: `Check a recipe without running it, and say what it comes to. Bytes are those of
what is kept from step to step and of the gradients; activations and what the
compiler needs in between come on top.`,
		Example: "  titan config check --config llama3_70b",
		Args:    exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			r, origins, err := flags.load(c)
			if err != nil {
				return err
			}
			text, err := checked(r, origins)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), text)
			return err
		},
	}
	flags.add(c)
	return c
}

// checked describes a recipe that Load accepted.
func checked(r *configs.Recipe, origins *configs.Origins) (string, error) {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s"+format+"\n", append([]any{what}, args...)...)
	}

	model, err := r.Decoder()
	if err != nil {
		return "", err
	}
	m, err := r.Machine()
	if err != nil {
		return "", err
	}
	plan, err := r.Placement(m)
	if err != nil {
		return "", err
	}
	micro, err := r.MicroSteps()
	if err != nil {
		return "", err
	}
	tokens, err := r.TokensPerStep()
	if err != nil {
		return "", err
	}
	batch, err := r.GlobalBatch()
	if err != nil {
		return "", err
	}
	memory, err := r.Memory(m)
	if err != nil {
		return "", err
	}

	line("recipe", "%s", strings.Join(origins.Files, " ← "))
	all, _, routed := model.Count()
	active := ""
	if model.MoE != nil && routed > 0 {
		active = fmt.Sprintf(", %s of them for each token", human.Int(all-routed+routed*int64(model.MoE.TopK)/int64(model.MoE.Experts)))
	}
	line("model", "%s %s: %s parameters%s", r.Model.Name, r.Model.Flavor, human.Int(all), active)
	on := r.Mesh.Platform
	if r.Mesh.Topology != "" {
		on += " " + r.Mesh.Topology
	}
	line("mesh", "%v, %s", m, on)
	axes, err := networks(r, m)
	if err != nil {
		return "", err
	}
	for _, a := range axes {
		line("axis", "%s", a)
	}
	passes := "one pass"
	if micro > 1 {
		passes = fmt.Sprintf("%d passes", micro)
	}
	line("batch", "%s of %s in %s, %s a device: %s a step", human.Counted(int64(batch), "sequence"), human.Counted(r.Training.SeqLen, "token"),
		passes, human.Int(r.Training.LocalBatchSize), human.Counted(tokens, "token"))
	line("run", "%s, %s", human.Counted(r.Training.Steps, "step"), human.Counted(tokens*int64(r.Training.Steps), "token"))

	if n := r.Parallelism.Pipeline; n > 1 {
		line("pipeline", "%d stages of %s, %s: a stage waits for %.1f%% of a step", n, plural.Of(model.Layers/n, "layer"), passes, 100*r.Bubble(micro))
	}
	gathered, of := "", ""
	if memory.Kept > 0 {
		gathered = fmt.Sprintf(", gathered parameters %s", human.Size(memory.Kept))
	}
	if memory.Device > 0 {
		of = " of " + human.Size(memory.Device)
	}
	line("memory", "a device: parameters %s, gradients %s, optimizer state %s%s; %s%s in all, and activations",
		human.Size(memory.Parameters), human.Size(memory.Gradients), human.Size(memory.State), gathered,
		human.Size(memory.Parameters+memory.Gradients+memory.State+memory.Kept), of)
	why := map[string][]string{} // parameters by the reason why they are not sharded
	for _, w := range plan.Whole() {
		if !strings.Contains(w.Reason, " divides ") { // these are notes, with their sizes
			why[w.Reason] = append(why[w.Reason], w.Name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		line("unsharded", "%s: %s", reason, strings.Join(why[reason], ", "))
	}

	for _, w := range append(r.Warnings(), missing(r)...) {
		line("note", "%s", w)
	}
	line("ok", "recipe %.12s", r.Hash())
	return b.String(), nil
}

// missing says which inputs of a run are not there. It is no mistake of the
// recipe: it may be checked on another machine than it runs on.
func missing(r *configs.Recipe) []string {
	var out []string
	absent := func(key, path string) {
		if _, err := os.Stat(path); err != nil {
			out = append(out, fmt.Sprintf("%s: there is no %s here", key, path))
		}
	}
	sources, err := r.Sources()
	if err != nil {
		out = append(out, err.Error())
	}
	for _, s := range sources {
		absent("data", s.Prefix+".idx")
	}
	if r.Validation.Enable {
		absent("validation.dataset_path", r.Validation.DatasetPath+".idx")
	}
	if r.Model.HFAssetsPath != "" {
		absent("model.hf_assets_path", r.Model.HFAssetsPath)
	}
	return out
}
