package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"titan/configs"
	"titan/internal/human"
	"titan/models/decoder"
)

// Change is a change of a recipe that was checked by compiling.
type Change struct {
	// Set are the keys to change, as --set takes them.
	Set []string `json:"set"`
	// Needed is what the changed step needs of a device, in bytes; 0 if unknown.
	Needed int64 `json:"needed"`
	Fits   bool  `json:"fits"`
	// Tight: it may be otherwise at the compiler's default effort; see [Memory].
	Tight bool `json:"tight,omitempty"`
	// Estimated says that Needed is an estimate, far above the limit: the change was
	// not compiled.
	Estimated bool `json:"estimated,omitempty"`
	// TokensPerSecond is what the changed step is expected to reach on a device.
	TokensPerSecond float64 `json:"tokens_per_second_device,omitempty"`
}

func (c Change) String() string {
	s := strings.Join(c.Set, " ")
	switch {
	case c.Fits:
		return fmt.Sprintf("%s: %s, %s a device, %s tokens/s predicted", s, verdict(true, c.Tight), human.Memory(c.Needed), human.Count(c.TokensPerSecond))
	case c.Estimated:
		return fmt.Sprintf("%s: does not fit, %s a device by estimate", s, human.Memory(c.Needed))
	case c.Needed > 0:
		return fmt.Sprintf("%s: %s, %s a device", s, verdict(false, c.Tight), human.Memory(c.Needed))
	}
	return s + ": does not fit"
}

// mostTried bounds how many changes are compiled.
const mostTried = 5

// hopeless is by how much the estimate of a change must exceed the limit for it not
// to be compiled.
const hopeless = 1.1

// Search looks for the change of a recipe, for which r says that it does not fit,
// that makes it fit: what costs least speed first, each checked by compiling, until
// one fits; with little effort, until one fits not only just. Changes of which the
// program's own count, corrected by what the compiler said of the recipe, says that
// they need much too much are not compiled. load gives the recipe with further keys
// set.
func Search(ctx context.Context, o Options, r *Report, load func(set ...string) (*configs.Recipe, error)) ([]Change, error) {
	return search(ctx, o, r, load, Make)
}

// search is Search with another way to plan.
func search(ctx context.Context, o Options, r *Report, load func(set ...string) (*configs.Recipe, error), plan func(context.Context, Options) (*Report, error)) ([]Change, error) {
	var out []Change
	tried := 0
	for _, set := range candidates(o.Recipe, r) {
		recipe, err := load(set...)
		if err != nil { // not possible for other reasons, such as a degree that does not divide
			continue
		}
		s, err := build(recipe)
		if err != nil {
			continue
		}
		if n := s.estimate(r); n > int64(hopeless*float64(r.Memory.Limit)) {
			out = append(out, Change{Set: set, Needed: n, Estimated: true})
			continue
		}
		if tried++; tried > mostTried {
			break
		}
		try := o
		try.Recipe = recipe
		if o.Log != nil {
			o.Log("trying %s", strings.Join(set, " "))
		}
		got, err := plan(ctx, try)
		if err != nil {
			return out, fmt.Errorf("plan: trying %s: %w", strings.Join(set, " "), err)
		}
		out = append(out, Change{Set: set, Needed: got.Memory.Needed, Fits: got.Memory.Fits, Tight: got.Memory.Tight, TokensPerSecond: got.TokensPerSecond})
		if got.Memory.Fits && !got.Memory.Tight {
			break
		}
	}
	return out, nil
}

// estimate is what a step needs by its own count, in which what there is besides
// arguments is multiplied by what the count of the step of r was wrong by.
func (s *traced) estimate(r *Report) int64 {
	ratio := 1.0
	if counted := r.counted; counted > 0 && r.Memory.Needed > r.Memory.Arguments {
		ratio = float64(r.Memory.Needed-r.Memory.Arguments) / float64(counted)
	}
	return s.arguments + int64(ratio*float64(s.counted()))
}

// counted is what a step needs besides its arguments, by its own count.
func (s *traced) counted() int64 {
	f := s.step.Module.Footprint()
	return f.InUse() - f.Arguments
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
	if mode := r.ActivationCheckpoint.Mode; mode != decoder.RematFull && mode != decoder.RematBudget {
		add("activation_checkpoint.mode=" + decoder.RematFull)
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
