package configs

import (
	"fmt"

	"titan/internal/recipekey"
	"titan/mesh"
)

// quantize checks that what is to be multiplied in 8-bit floats can be.
func (c *checking) quantize() {
	r := c.recipe
	f := r.Quantize.Linear.Float8
	if !f.Enable || !c.clean("quantize", "model", "parallelism", "training.seq_len", "training.local_batch_size") {
		return
	}
	m, err := r.Decoder()
	if err != nil {
		return
	}
	tokens := r.Training.LocalBatchSize * r.Training.SeqLen / r.Parallelism.Context
	for _, e := range recipekey.Flatten(f.Fits(m, r.Parallelism.Tensor, tokens)) {
		c.add(e)
	}
	if f.AllGather && !r.Parallelism.ReshardAfterForward() {
		c.add(recipekey.Errorf("quantize.linear.float8.enable_fsdp_float8_all_gather", "is true, which needs parallelism.fsdp_reshard_after_forward = \"always\": parameters gathered once a step are gathered in mixed_precision_param"))
	}
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
