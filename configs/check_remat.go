package configs

import (
	"fmt"
	"slices"

	"titan/internal/recipekey"
	"titan/models/decoder"
)

// remat checks activation checkpointing against platform, model and parallelism.
func (c *checking) remat() {
	const section = "activation_checkpoint"
	r := c.recipe
	if !c.clean(section) {
		return
	}
	a := r.ActivationCheckpoint
	if len(a.Offload) > 0 && r.Mesh.Platform == "cpu" {
		c.add(recipekey.Errorf(section+".offload", "is not possible on cpu, whose devices share the memory of their host; leave it out"))
	}
	if b, err := a.Budget(); err == nil && a.Mode == decoder.RematBudget && b.Bytes == 0 && r.Mesh.Platform == "cpu" {
		c.add(recipekey.Errorf(section+".memory_budget", "is a share of what a device has, which cpu does not say; give a size, such as \"4GiB\""))
	}
	if a.Keeps(decoder.NameWeights) && (r.Parallelism.Reshard == "always" || !r.Parallelism.ReshardAfterForward()) {
		key := section + ".save"
		if slices.Contains(a.Offload, decoder.NameWeights) {
			key = section + ".offload"
		}
		does := "drops"
		if !r.Parallelism.ReshardAfterForward() {
			does = "keeps by itself"
		}
		c.add(recipekey.Errorf(key, "has %q, gathered parameters, which parallelism.fsdp_reshard_after_forward = %q %s; leave out one of them", decoder.NameWeights, r.Parallelism.Reshard, does))
	}
	m, err := r.Decoder()
	if err != nil {
		return
	}
	check := func(key string, names []string) {
		for i, n := range names {
			if !m.HasValue(n) {
				c.add(recipekey.Errorf(fmt.Sprintf("%s.%s[%d]", section, key, i), "no layer of this model has values called %q, which %s; leave it out", n, onlyWith(n)))
			}
		}
	}
	if check("offload", a.Offload); a.Mode == decoder.RematSelective && a.SelectiveOption == "op" {
		check("save", a.Save)
	}
}

// onlyWith says which models have the values of a name.
func onlyWith(name string) string {
	if name == decoder.NameRouter {
		return "only models with experts have"
	}
	return "only models with experts have, with moe.dispatch = \"capacity\""
}
