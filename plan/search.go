package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"titan/configs"
)

// Change is a change of a recipe that was checked by compiling.
type Change struct {
	// Set are the keys to change, as --set takes them.
	Set []string `json:"set"`
	// Needed is what the changed step needs of a device, in bytes; 0 if unknown.
	Needed int64 `json:"needed"`
	Fits   bool  `json:"fits"`
	// TokensPerSecond is what the changed step is expected to reach on a device.
	TokensPerSecond float64 `json:"tokens_per_second_device,omitempty"`
}

func (c Change) String() string {
	s := strings.Join(c.Set, " ")
	switch {
	case c.Fits:
		return fmt.Sprintf("%s: fits, %s a device, %s tokens/s predicted", s, gib(c.Needed), thousands(int64(c.TokensPerSecond+0.5)))
	case c.Needed > 0:
		return fmt.Sprintf("%s: does not fit, %s a device", s, gib(c.Needed))
	}
	return s + ": does not fit"
}

// mostTried bounds how many changes are compiled.
const mostTried = 5

// Search looks for the change of a recipe, for which r says that it does not fit,
// that makes it fit: what costs least speed first, each checked by compiling, until
// one fits. load gives the recipe with further keys set.
func Search(ctx context.Context, o Options, r *Report, load func(set ...string) (*configs.Recipe, error)) ([]Change, error) {
	var out []Change
	for _, set := range candidates(o.Recipe, r) {
		if len(out) == mostTried {
			break
		}
		recipe, err := load(set...)
		if err != nil { // not possible for other reasons, such as a degree that does not divide
			continue
		}
		try := o
		try.Recipe = recipe
		if o.Log != nil {
			o.Log("trying %s", strings.Join(set, " "))
		}
		got, err := Make(ctx, try)
		if err != nil {
			return out, fmt.Errorf("plan: trying %s: %w", strings.Join(set, " "), err)
		}
		out = append(out, Change{Set: set, Needed: got.Memory.Needed, Fits: got.Memory.Fits, TokensPerSecond: got.TokensPerSecond})
		if got.Memory.Fits {
			break
		}
	}
	return out, nil
}

// candidates lists changes that need less memory, those that cost least speed first:
// a copy of the parameters spread over more devices costs communication only, so
// does gathering them twice; computing again costs up to a third of the arithmetic;
// fewer sequences at a time make matrices smaller, and devices that share sequences
// wait for each other.
func candidates(r *configs.Recipe, report *Report) [][]string {
	var out [][]string
	p, batch := r.Parallelism, max(1, r.Training.LocalBatchSize)
	if slices := max(1, report.slices); p.Replicate > slices && p.Replicate%2 == 0 {
		out = append(out, []string{fmt.Sprintf("parallelism.data_parallel_replicate_degree=%d", p.Replicate/2), "parallelism.data_parallel_shard_degree=-1"})
	}
	var least []string // what the later ones are combined with
	add := func(set ...string) {
		out = append(out, append(slices.Clone(least), set...))
	}
	if !p.ReshardAfterForward() {
		add("parallelism.fsdp_reshard_after_forward=always")
		least = out[len(out)-1]
	}
	if r.ActivationCheckpoint.Mode != "full" {
		add("activation_checkpoint.mode=full")
		least = out[len(out)-1]
	}
	for n := batch / 2; n >= 1; n /= 2 {
		// The step stays as large as it was.
		add(fmt.Sprintf("training.local_batch_size=%d", n), fmt.Sprintf("training.global_batch_size=%d", report.Sequences))
	}
	if batch > 1 {
		least = out[len(out)-1]
	}
	for _, n := range []int{2, 4} {
		add(fmt.Sprintf("parallelism.context_parallel_degree=%d", n*max(1, p.Context)))
	}
	return out
}
