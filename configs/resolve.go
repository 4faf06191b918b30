package configs

import (
	"errors"
	"fmt"

	"titan/data"
	"titan/dtype"
	"titan/internal/plural"
	"titan/internal/recipekey"
	"titan/mesh"
	"titan/models/decoder"
	"titan/optim"
	"titan/parallel"
)

// Decoder returns the dimensions of the model: those of the flavor, with what
// [model.override] and [moe] change.
func (r *Recipe) Decoder() (decoder.Config, error) {
	c, err := r.Model.Decoder()
	return r.MoE.Apply(c), err
}

// MeshAxes returns the axes of the mesh, slowest first: those of
// parallel.AxisNames that have more than one device, dp_replicate and dp_shard in
// any case.
//
// Where the recipe leaves the number of devices open, on cpu there are as many
// as the degrees ask for; elsewhere data_parallel_shard_degree = -1 is an error,
// and MeshAxesOn says what it is on devices that are known.
func (r *Recipe) MeshAxes() ([]mesh.Axis, error) {
	n := r.Mesh.Count()
	if n == 0 && r.Mesh.Platform != "cpu" && r.Parallelism.Shard == -1 {
		return nil, recipekey.Errorf("mesh.devices", "is open, and so is parallelism.data_parallel_shard_degree; set one of them, or mesh.topology")
	}
	return r.MeshAxesOn(n)
}

// MeshAxesOn returns the axes of the mesh over a number of devices; 0 stands for
// as many as the degrees ask for. What is wrong with the degrees is an error with
// the nearest that work.
func (r *Recipe) MeshAxesOn(devices int) ([]mesh.Axis, error) {
	if err := r.Parallelism.Validate(); err != nil {
		return nil, err
	}
	s := r.spreadOn(devices)
	if err := errors.Join(s.errors()...); err != nil {
		return nil, err
	}
	return r.Parallelism.Axes(devices)
}

// DataParallel returns over how many devices a batch is split.
func (r *Recipe) DataParallel() (int, error) {
	axes, err := r.MeshAxes()
	if err != nil {
		return 0, err
	}
	return parallel.BatchDegree(axes), nil
}

const keyBatch = "training.global_batch_size"

// MicroSteps returns how many passes make a step: global_batch_size divided by
// what all devices take in one. A pipeline needs as many as it has stages.
func (r *Recipe) MicroSteps() (int, error) {
	dp, err := r.DataParallel()
	if err != nil {
		return 0, err
	}
	return r.MicroStepsOn(dp)
}

// MicroStepsOn is MicroSteps where a batch is split over dp devices.
func (r *Recipe) MicroStepsOn(dp int) (int, error) {
	t, pass, stages := r.Training, r.Training.LocalBatchSize*dp, max(1, r.Parallelism.Pipeline)
	passes := 1
	if t.GlobalBatchSize != -1 {
		near := nearestIs(max(stages, (t.GlobalBatchSize+pass/2)/pass) * pass)
		if t.GlobalBatchSize < dp {
			near += ", or fewer data-parallel devices: with context_parallel_degree and tensor_parallel_degree several share a sequence"
		}
		if passes = t.GlobalBatchSize / pass; t.GlobalBatchSize%pass != 0 || passes == 0 {
			return 0, recipekey.Errorf(keyBatch, "is %d and must be a multiple of %d: local_batch_size %d on %s%s",
				t.GlobalBatchSize, pass, t.LocalBatchSize, plural.Of(dp, "data-parallel device"), near)
		}
	}
	if passes < stages {
		return 0, recipekey.Errorf(keyBatch, "is %d, which is %s of %s, and the %d stages of a pipeline need a pass each at least%s",
			t.GlobalBatchSize, passesOf(passes), plural.Of(pass, "sequence"), stages, nearestIs(stages*pass))
	}
	return passes, nil
}

// Bubble returns the share of a step in which a stage of the pipeline waits, with
// so many passes.
func (r *Recipe) Bubble(passes int) float64 {
	return parallel.Bubble(r.Parallelism.Pipeline, passes)
}

func passesOf(n int) string {
	if n == 1 {
		return "one pass"
	}
	return fmt.Sprintf("%d passes", n)
}

// GlobalBatch returns the sequences of a step over all devices.
func (r *Recipe) GlobalBatch() (int, error) {
	n, err := r.MicroSteps()
	if err != nil {
		return 0, err
	}
	dp, err := r.DataParallel()
	return n * dp * r.Training.LocalBatchSize, err
}

// TokensPerStep returns the positions of a step over all devices.
func (r *Recipe) TokensPerStep() (int64, error) {
	n, err := r.GlobalBatch()
	return int64(n) * int64(r.Training.SeqLen), err
}

// Machine returns the mesh of MeshAxes on the machines that the recipe names, where
// every device has its place: on cpu in one process, with a topology on its chips.
// Elsewhere devices are known by their numbers only.
func (r *Recipe) Machine() (*mesh.Mesh, error) {
	axes, err := r.MeshAxes()
	if err != nil {
		return nil, err
	}
	if r.Mesh.Topology != "" {
		t, err := mesh.ParseTopology(r.Mesh.Topology)
		if err != nil {
			return nil, err
		}
		return mesh.ForTopology(axes, t.DeviceInfos(), parallel.AcrossSlices()...)
	}
	m, err := mesh.New(axes, nil)
	if err != nil || r.Mesh.Platform != "cpu" {
		return m, err
	}
	infos := make([]mesh.DeviceInfo, m.Size())
	for i := range infos {
		infos[i].ID = i
	}
	return m.WithDevices(infos)
}

// Placement returns where the parameters lie on a mesh with the axes of
// MeshAxes.
func (r *Recipe) Placement(m *mesh.Mesh) (*parallel.Plan, error) {
	c, err := r.Decoder()
	if err != nil {
		return nil, err
	}
	o, err := r.PlacementOptions()
	if err != nil {
		return nil, err
	}
	var params []parallel.Param
	for _, p := range c.Arrays() {
		params = append(params, parallel.Param{Name: p.Name, Shape: p.Shape, Axes: p.Axes})
	}
	return parallel.New(m, params, o)
}

// PlacementOptions returns how parameters are used: in which types, and whether
// they are gathered again for the backward pass.
func (r *Recipe) PlacementOptions() (parallel.Options, error) {
	compute, err := dtype.Parse(r.Training.MixedPrecisionParam)
	if err != nil {
		return parallel.Options{}, err
	}
	reduce, err := dtype.Parse(r.Training.MixedPrecisionReduce)
	if err != nil {
		return parallel.Options{}, err
	}
	return parallel.Options{Compute: compute, Reduce: reduce, Reshard: r.Parallelism.ReshardAfterForward()}, nil
}

// NewOptimizer returns the optimizer of the model's parameters.
func (r *Recipe) NewOptimizer() (*optim.Optimizer, error) {
	c, err := r.Decoder()
	if err != nil {
		return nil, err
	}
	var params []optim.Param
	for _, p := range c.Params() {
		params = append(params, optim.Param{Name: p.Name, Shape: p.Shape, Axes: p.Axes})
	}
	return optim.New(r.Optimizer, r.LRScheduler, r.Training.Steps, r.Training.MaxNorm, params)
}

// Sources returns the datasets of training: data.sources, or the one of
// training.dataset_path. It is an error if the recipe names none.
func (r *Recipe) Sources() ([]data.Source, error) {
	if len(r.Data.Sources) > 0 {
		var out []data.Source
		for _, s := range r.Data.Sources {
			out = append(out, data.Source{Prefix: s.Path, Weight: s.Weight})
		}
		return out, nil
	}
	if r.Training.DatasetPath == "" {
		return nil, recipekey.Errorf("training.dataset_path", "is missing: there is nothing to train on; make a dataset with titan data prepare and name it here, or in [[data.sources]]")
	}
	return []data.Source{{Prefix: r.Training.DatasetPath}}, nil
}

// ValidationBatch returns the sequences a device works on at a time in
// validation, and their length.
func (r *Recipe) ValidationBatch() (localBatch, seqLen int) {
	localBatch, seqLen = r.Validation.LocalBatchSize, r.Validation.SeqLen
	if localBatch == 0 {
		localBatch = r.Training.LocalBatchSize
	}
	if seqLen == 0 {
		seqLen = r.Training.SeqLen
	}
	return localBatch, seqLen
}
