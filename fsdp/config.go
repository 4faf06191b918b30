package fsdp

import (
	"errors"
	"math"

	"titan/internal/recipekey"
	"titan/mesh"
)

// Names of the mesh axes over which a batch is split.
const (
	AxisReplicate = "dp_replicate" // parameters are replicated
	AxisShard     = "dp_shard"     // parameters, gradients and optimizer state are sharded
)

// Config is the recipe's section [parallelism]: how devices share the work.
type Config struct {
	Replicate int    `toml:"data_parallel_replicate_degree" doc:"copies of the sharded parameters (HSDP if more than 1)"`
	Shard     int    `toml:"data_parallel_shard_degree" doc:"devices over which a copy is sharded (FSDP); -1: all that the other degrees leave"`
	Reshard   string `toml:"fsdp_reshard_after_forward" doc:"whether gathered parameters are dropped after the forward pass and gathered again for the backward pass: always, never, or default, which is always"`

	Tensor   int `toml:"tensor_parallel_degree" doc:"not supported yet; 1"`
	Context  int `toml:"context_parallel_degree" doc:"not supported yet; 1"`
	Pipeline int `toml:"pipeline_parallel_degree" doc:"not supported yet; 1"`
	Expert   int `toml:"expert_parallel_degree" doc:"not supported yet; 1"`
}

// DefaultConfig returns the values of [parallelism] in a recipe that does not
// set them.
func DefaultConfig() Config {
	return Config{Replicate: 1, Shard: -1, Reshard: "default", Tensor: 1, Context: 1, Pipeline: 1, Expert: 1}
}

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	errs := []error{
		recipekey.Positive("parallelism.data_parallel_replicate_degree", c.Replicate),
		recipekey.OneOf("parallelism.fsdp_reshard_after_forward", c.Reshard, "default", "always", "never"),
	}
	if c.Shard != -1 && c.Shard < 1 {
		errs = append(errs, recipekey.Errorf("parallelism.data_parallel_shard_degree", "is %d and must be positive, or -1 for all devices that the other degrees leave", c.Shard))
	}
	for _, d := range []struct {
		key    string
		degree int
	}{
		{"tensor_parallel_degree", c.Tensor}, {"context_parallel_degree", c.Context},
		{"pipeline_parallel_degree", c.Pipeline}, {"expert_parallel_degree", c.Expert},
	} {
		if d.degree != 1 {
			errs = append(errs, recipekey.Errorf("parallelism."+d.key, "is %d; only 1 is supported yet: shard more with data_parallel_shard_degree, or leave it out", d.degree))
		}
	}
	return errors.Join(errs...)
}

// ReshardAfterForward reports whether gathered parameters are dropped after the
// forward pass.
func (c Config) ReshardAfterForward() bool { return c.Reshard != "never" }

// Axes returns the mesh axes of c over the given number of devices, first
// [AxisReplicate], then [AxisShard], both even where their size is 1. With
// devices 0 there are as many as the degrees ask for, where -1 asks for one.
// The error is a *recipekey.Error.
func (c Config) Axes(devices int) ([]mesh.Axis, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	shard := c.Shard
	if shard == -1 {
		shard = 1
		if devices > 0 {
			shard = devices / c.Replicate
			if shard*c.Replicate != devices {
				return nil, recipekey.Errorf("parallelism.data_parallel_replicate_degree", "is %d, which does not divide %d devices", c.Replicate, devices)
			}
		}
	}
	// Compared by division: the product may be more than an int holds.
	if devices > 0 && (devices/c.Replicate != shard || devices%c.Replicate != 0) {
		return nil, recipekey.Errorf("parallelism.data_parallel_shard_degree", "%d × data_parallel_replicate_degree %d is not the number of devices, %d", shard, c.Replicate, devices)
	}
	if c.Replicate > math.MaxInt32/shard {
		return nil, recipekey.Errorf("parallelism.data_parallel_shard_degree", "%d × data_parallel_replicate_degree %d is more than %d devices", shard, c.Replicate, math.MaxInt32)
	}
	return []mesh.Axis{{Name: AxisReplicate, Size: c.Replicate}, {Name: AxisShard, Size: shard}}, nil
}
