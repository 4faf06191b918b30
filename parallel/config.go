package parallel

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"titan/internal/recipekey"
	"titan/mesh"
)

// Config is the recipe's section [parallelism]: how devices share the work.
type Config struct {
	Replicate int    `toml:"data_parallel_replicate_degree" doc:"copies of the sharded parameters (HSDP if more than 1)"`
	Shard     int    `toml:"data_parallel_shard_degree" doc:"devices over which a copy is sharded (FSDP); -1: all that the other degrees leave"`
	Reshard   string `toml:"fsdp_reshard_after_forward" doc:"whether gathered parameters are dropped after the forward pass and gathered again for the backward pass: always, never, or default, which is always unless pipelined"`
	Prefetch  string `toml:"fsdp_prefetch" doc:"what is gathered ahead of its use: matrix (the next one of the same layer) or layer (all of the next layer, whose gradients are also scattered a layer later: more to hide behind, for the memory of two layers' matrices)"`

	Tensor   int    `toml:"tensor_parallel_degree" doc:"devices that share heads, feed-forward width and vocabulary, and the tokens between blocks (sequence parallelism)"`
	Context  int    `toml:"context_parallel_degree" doc:"devices that share the tokens of a sequence"`
	Rotate   string `toml:"context_parallel_rotate_method" doc:"how keys and values reach the devices of a sequence: ring (passed on while attention is computed) or allgather"`
	Balancer string `toml:"context_parallel_load_balancer" doc:"headtail: device i of n has chunks i and 2n-1-i of a sequence, so that causal attention is equal work for all"`
	Expert   int    `toml:"expert_parallel_degree" doc:"devices that share the experts, taken from data_parallel_shard_degree, which it divides; every expert is sharded further over the rest"`

	Pipeline int    `toml:"pipeline_parallel_degree" doc:"stages of layers, each on devices of its own"`
	Schedule string `toml:"pipeline_parallel_schedule" doc:"order of the micro-batches in a pipeline: 1F1B"`
}

// DefaultConfig returns the values of [parallelism] in a recipe that does not
// set them.
func DefaultConfig() Config {
	return Config{
		Replicate: 1, Shard: -1, Reshard: "default", Prefetch: "matrix", Tensor: 1, Context: 1, Pipeline: 1, Expert: 1,
		Rotate: "ring", Balancer: "headtail", Schedule: "1F1B",
	}
}

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	errs := []error{
		recipekey.Positive("parallelism.data_parallel_replicate_degree", c.Replicate),
		recipekey.OneOf("parallelism.fsdp_reshard_after_forward", c.Reshard, "default", "always", "never"),
		recipekey.OneOf("parallelism.fsdp_prefetch", c.Prefetch, "matrix", "layer"),
		recipekey.Positive("parallelism.tensor_parallel_degree", c.Tensor),
		recipekey.Positive("parallelism.context_parallel_degree", c.Context),
		recipekey.OneOf("parallelism.context_parallel_rotate_method", c.Rotate, "ring", "allgather"),
		recipekey.OneOf("parallelism.context_parallel_load_balancer", c.Balancer, "headtail"),
		recipekey.Positive("parallelism.expert_parallel_degree", c.Expert),
		recipekey.Positive("parallelism.pipeline_parallel_degree", c.Pipeline),
		recipekey.OneOf("parallelism.pipeline_parallel_schedule", c.Schedule, "1F1B"),
	}
	if c.Shard != -1 && c.Shard < 1 {
		errs = append(errs, recipekey.Errorf("parallelism.data_parallel_shard_degree", "is %d and must be positive, or -1 for all devices that the other degrees leave", c.Shard))
	}
	return errors.Join(errs...)
}

// ReshardAfterForward reports whether gathered parameters are dropped after the
// forward pass.
func (c Config) ReshardAfterForward() bool {
	return c.Reshard == "always" || c.Reshard == "default" && c.Pipeline == 1
}

// LayerAhead reports whether a layer's parameters are gathered while the one before is
// computed.
func (c Config) LayerAhead() bool { return c.Prefetch == "layer" }

// Degrees returns the degrees that multiply with data_parallel_shard_degree to the
// number of devices, by their keys, outermost axis first.
func (c Config) Degrees() []Degree {
	return []Degree{
		{"parallelism.pipeline_parallel_degree", c.Pipeline}, {"parallelism.data_parallel_replicate_degree", c.Replicate},
		{"parallelism.context_parallel_degree", c.Context}, {"parallelism.tensor_parallel_degree", c.Tensor},
	}
}

// Degree is a number of devices that a recipe asks for.
type Degree struct {
	Key string
	N   int
}

// Axes returns the mesh axes of c over the given number of devices, in the order
// of [AxisNames], [AxisReplicate] and [AxisShard] even where their size is 1. With
// devices 0 there are as many as the degrees ask for, where -1 asks for as few as
// possible. The error is a *recipekey.Error.
func (c Config) Axes(devices int) ([]mesh.Axis, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	others := 1 // devices for each in data_parallel_shard_degree
	for _, d := range c.Degrees() {
		// Compared by division: products may be more than an int holds.
		if d.N > math.MaxInt32/others {
			return nil, recipekey.Errorf(d.Key, "is %d%s", d.N, TooMany(others))
		}
		if devices > 0 && devices/others%d.N != 0 {
			return nil, recipekey.Errorf(d.Key, "is %d, which does not divide %s", d.N, Left(devices/others, devices))
		}
		others *= d.N
	}
	shard := c.Shard
	if shard == -1 {
		shard = c.Expert
		if devices > 0 {
			shard = devices / others
		}
	}
	if devices > 0 && devices/others != shard {
		return nil, recipekey.Errorf("parallelism.data_parallel_shard_degree", "is %d%s", shard, ButLeft(devices/others, devices))
	}
	if others > math.MaxInt32/shard {
		return nil, recipekey.Errorf("parallelism.data_parallel_shard_degree", "is %d%s", shard, TooMany(others))
	}
	if shard%c.Expert != 0 {
		return nil, recipekey.Errorf("parallelism.expert_parallel_degree", "is %d and must divide data_parallel_shard_degree (%d), from whose devices it is taken", c.Expert, shard)
	}
	var axes []mesh.Axis
	for _, a := range []mesh.Axis{
		{Name: AxisPipeline, Size: c.Pipeline}, {Name: AxisReplicate, Size: c.Replicate}, {Name: AxisShard, Size: shard / c.Expert},
		{Name: AxisExpert, Size: c.Expert}, {Name: AxisContext, Size: c.Context}, {Name: AxisTensor, Size: c.Tensor},
	} {
		if a.Size > 1 || a.Name == AxisReplicate || a.Name == AxisShard {
			axes = append(axes, a)
		}
	}
	return axes, nil
}

// Left names devices of which other degrees have taken some: "the 8 devices" or
// "the 4 of 8 devices that other degrees leave".
func Left(left, devices int) string {
	switch {
	case left == devices && devices == 1:
		return "the only device"
	case left == devices:
		return fmt.Sprintf("the %d devices", devices)
	}
	return fmt.Sprintf("the %d of %d devices that other degrees leave", left, devices)
}

// ButLeft says, after data_parallel_shard_degree, how many devices there are for it.
func ButLeft(left, devices int) string {
	switch {
	case left == devices && devices == 1:
		return ", but there is 1 device"
	case left == devices:
		return fmt.Sprintf(", but there are %d devices", devices)
	}
	return fmt.Sprintf(", but the other degrees leave %d of %d devices", left, devices)
}

// TooMany says, after a degree, that with others it asks for more devices than can
// be counted.
func TooMany(others int) string {
	if others == 1 {
		return fmt.Sprintf(", more than %d devices", math.MaxInt32)
	}
	return fmt.Sprintf("; with %d of other degrees that is more than %d devices", others, math.MaxInt32)
}

// AcrossSlices names the axes that may lie across slices, over the data-centre
// network: what the others exchange, it is too slow for.
func AcrossSlices() []string { return []string{AxisPipeline, AxisReplicate} }

// Carries says what the devices along an axis exchange.
func (c Config) Carries(axis string) string {
	switch axis {
	case AxisPipeline:
		return "activations from stage to stage"
	case AxisReplicate:
		return "gradients, added up"
	case AxisShard:
		return "parameters gathered, gradients scattered, layer by layer"
	case AxisExpert:
		return "tokens to their experts and back; other parameters as dp_shard"
	case AxisContext:
		if c.Rotate == "allgather" {
			return "keys and values, gathered in every layer; parameters as dp_shard"
		}
		return "keys and values, in a ring, in every layer; parameters as dp_shard"
	case AxisTensor:
		return "activations gathered and scattered, twice in every layer"
	}
	return ""
}

// BatchDegree returns over how many devices the sequences of a batch are split on
// a mesh with these axes.
func BatchDegree(axes []mesh.Axis) int {
	n := 1
	for _, a := range axes {
		if slices.Contains(batchAxes, a.Name) {
			n *= a.Size
		}
	}
	return n
}

// Bubble returns the share of a step in which a stage of a pipeline waits, with so
// many micro-batches: (stages-1)/(passes+stages-1) (Narayanan et al., 2021).
func Bubble(stages, passes int) float64 {
	stages, passes = max(1, stages), max(1, passes)
	return float64(stages-1) / float64(passes+stages-1)
}
