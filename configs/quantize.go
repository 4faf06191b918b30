package configs

import (
	"fmt"

	"titan/internal/plural"
	"titan/internal/recipekey"
	"titan/mesh"
	"titan/models/decoder"
)

// quantize checks that what is to be multiplied in 8-bit floats can be.
func (c *checking) quantize() {
	r := c.recipe
	f := r.Quantize.Linear.Float8
	if !f.Enable || !c.clean("quantize", "model", "parallelism") {
		return
	}
	m, err := r.Decoder()
	if err != nil {
		return
	}
	for _, e := range recipekey.Flatten(f.Fits(m, r.Parallelism.Tensor)) {
		c.add(e)
	}
	if f.AllGather && !r.Parallelism.ReshardAfterForward() {
		c.add(recipekey.Errorf("quantize.linear.float8.enable_fsdp_float8_all_gather", "is true, which needs parallelism.fsdp_reshard_after_forward = \"always\": parameters gathered once a step are gathered in mixed_precision_param"))
	}
}

// float8Unit returns what the length of a sequence must be a multiple of for
// products in 8-bit floats, and why.
func (r *Recipe) float8Unit() (int, string) {
	f, cp, local := r.Quantize.Linear.Float8, r.Parallelism.Context, r.Training.LocalBatchSize
	m, err := r.Decoder()
	if err != nil || !f.Enable || cp < 1 || local < 1 {
		return 1, "" // found elsewhere
	}
	tokens := f.TokenMultiple(m)
	return tokens * cp / gcd(tokens*cp, local), fmt.Sprintf("what a device has of %s (local_batch_size) must be a multiple of %d tokens for products in 8-bit floats (not with quantize.linear.float8.recipe_name = %q)", plural.Of(local, "sequence"), tokens, decoder.RecipeRowwiseGradHP)
}

// quantizeWarnings returns what 8-bit products gain nothing by.
func (r *Recipe) quantizeWarnings() []string {
	t, err := mesh.ParseTopology(r.Mesh.Topology)
	if !r.Quantize.Linear.Float8.Enable || err != nil {
		return nil // the topology may be open
	}
	if chip, err := t.Chip(); err == nil && chip.PeakFP8 <= chip.PeakBF16 {
		return []string{fmt.Sprintf("quantize.linear.float8.enable is true, but a product of 8-bit floats takes a %s no less time than one of bf16: scaling comes on top, and only enable_fsdp_float8_all_gather saves anything", t.Kind)}
	}
	return nil
}
