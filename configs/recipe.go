// Package configs has the recipe: the sections that each component owns,
// composed, read from TOML, inherited and checked.
//
//	r, origins, err := configs.Load("qwen3_moe_debug", []string{"training.steps=100"})
//	for _, w := range r.Warnings() { … }
//	model, err := r.Decoder()
//	axes, err := r.MeshAxes()
//
// Loading is strict: what a recipe says is understood and possible, or Load
// fails with all mistakes, each with its place. docs/recipes.md has the rules.
package configs

import (
	"titan/checkpoint"
	"titan/data"
	"titan/kernels"
	"titan/mesh"
	"titan/metrics"
	"titan/models"
	"titan/models/decoder"
	"titan/optim"
	"titan/parallel"
)

// Recipe says what to train and how to spread it.
type Recipe struct {
	Job                  Job                          `toml:"job" doc:"the run as a whole"`
	Mesh                 mesh.Config                  `toml:"mesh" doc:"the devices there are"`
	Model                models.Config                `toml:"model" doc:"what is trained"`
	Training             Training                     `toml:"training" doc:"batches, steps and precision"`
	Data                 data.Config                  `toml:"data" doc:"what it is trained on"`
	Parallelism          parallel.Config              `toml:"parallelism" doc:"how devices share the work"`
	MoE                  decoder.MoEConfig            `toml:"moe" doc:"how tokens reach their experts"`
	ActivationCheckpoint decoder.ActivationCheckpoint `toml:"activation_checkpoint" doc:"which activations are computed again in the backward pass"`
	Kernels              kernels.Config               `toml:"kernels" doc:"what is computed by tile kernels"`
	Quantize             decoder.Quantize             `toml:"quantize" doc:"products in narrower types"`
	Optimizer            optim.Config                 `toml:"optimizer" doc:"the optimizer"`
	LRScheduler          optim.Schedule               `toml:"lr_scheduler" doc:"the learning rate over the steps"`
	Checkpoint           checkpoint.Config            `toml:"checkpoint" doc:"saving, resuming, and where to begin from"`
	Metrics              metrics.Config               `toml:"metrics" doc:"what is shown and recorded"`
	Validation           Validation                   `toml:"validation" doc:"loss on held-out data"`
	Debug                Debug                        `toml:"debug" doc:"seed and checks"`
	Comm                 Comm                         `toml:"comm" doc:"time limits between hosts"`
	Profiling            Profiling                    `toml:"profiling" doc:"traces of what devices do"`
	Cost                 metrics.Cost                 `toml:"cost" doc:"what chips cost, for comparisons"`
}

// Defaults returns a recipe of the sections' defaults. It is incomplete: there
// is no default model.
func Defaults() Recipe {
	return Recipe{
		Job:   Job{DumpFolder: "./outputs", SaveConfigFile: "recipe.toml"},
		Mesh:  mesh.DefaultConfig(),
		Model: models.DefaultConfig(),
		Training: Training{
			LocalBatchSize: 8, GlobalBatchSize: -1, SeqLen: 2048, MaxNorm: 1, Steps: 10000,
			DType: "float32", MixedPrecisionParam: "bfloat16", MixedPrecisionReduce: "float32",
		},
		Data:                 data.DefaultConfig(),
		Parallelism:          parallel.DefaultConfig(),
		MoE:                  decoder.DefaultMoEConfig(),
		ActivationCheckpoint: decoder.DefaultActivationCheckpoint(),
		Kernels:              kernels.DefaultConfig(),
		Quantize:             decoder.DefaultQuantize(),
		Optimizer:            optim.Defaults(),
		LRScheduler:          optim.DefaultSchedule(),
		Checkpoint:           checkpoint.DefaultConfig(),
		Metrics:              metrics.DefaultConfig(),
		Validation:           Validation{Freq: 10, Steps: -1},
		Comm:                 Comm{InitTimeout: 300, TrainTimeout: 100, SaveTimeout: 1800},
		Profiling:            Profiling{TracesFolder: "profile_traces", Freq: 10, Active: 1},
		Cost:                 metrics.DefaultCost(),
	}
}
