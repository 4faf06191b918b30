package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/dtype"
	"titan/metrics"
	"titan/models/decoder"
	"titan/pjrt"
	"titan/sharding"
)

// progress is the part of a run's state that is not on the devices; saved with
// every checkpoint as "train".
type progress struct {
	Step   int64 `json:"step"`   // steps done
	Tokens int64 `json:"tokens"` // valid tokens seen
	// Data is the fingerprint of the loader: what a batch holds follows from it
	// and the step.
	Data string `json:"data"`
	Seed uint64 `json:"seed"`
}

// modelState is saved as "model", so that a checkpoint can be exported or
// sampled from without its recipe.
type modelState struct {
	Family    string         `json:"family"`
	Config    decoder.Config `json:"config"`
	Tokenizer string         `json:"tokenizer,omitempty"` // hf_assets_path
}

// start makes the state that training begins with: the checkpoint to go on from
// if there is one, else what the recipe says to begin from, else new parameters.
func (t *trainer) start(ctx context.Context) error {
	c := t.recipe.Checkpoint
	if t.store != nil {
		loaded, err := t.resume(ctx)
		var none *checkpoint.NotFoundError
		switch {
		case errors.As(err, &none) && c.LoadStep == checkpoint.Latest:
		case err != nil:
			return err
		case loaded:
			return nil
		}
	}
	if err := t.initialise(); err != nil {
		return err
	}
	path := c.InitialLoadPath
	if c.InitialLoadInHF && path == "" {
		path = t.recipe.Model.HFAssetsPath
	}
	switch {
	case path == "":
		t.logf("parameters: initialised from seed %d", t.recipe.Debug.Seed)
		return nil
	case c.InitialLoadInHF:
		return t.fromHF(ctx, path)
	}
	return t.fromCheckpoint(ctx, path, c.InitialLoadModelOnly)
}

func (t *trainer) initialise() error {
	var err error
	t.state, err = t.machine.Init(t.recipe.Debug.Seed, t.options.Model, t.step.Vars)
	return err
}

// resume goes on from a checkpoint of this run.
func (t *trainer) resume(ctx context.Context) (bool, error) {
	c := t.recipe.Checkpoint
	exclude := func(what string) bool { return slices.Contains(c.ExcludeFromLoading, what) }
	if exclude("optimizer") {
		if err := t.initialise(); err != nil {
			return false, err
		}
	}
	o := checkpoint.LoadOptions{Step: c.LoadStep, Fallback: c.Fallback, Verify: c.Verify}
	loaded, err := t.store.Load(ctx, o, func(c *checkpoint.Checkpoint) error {
		var p progress
		if err := c.State("train", &p); err != nil {
			return fmt.Errorf("train: %s: %w; a checkpoint of the model only can be used with checkpoint.initial_load_path", c.Path(), err)
		}
		t.progress = p
		return t.restore(ctx, c, exclude("optimizer"))
	})
	if err != nil {
		return false, err
	}
	for _, e := range loaded.Skipped {
		t.logf("WARNING: %v", e)
	}
	t.logf("resumed from %s", loaded.Path)
	if t.progress.Data != t.data && !exclude("train_state") {
		t.logf("WARNING: the data, its order or the batch is not that of the checkpoint; training goes on with batch %d of the new data", t.progress.Step)
	}
	if exclude("train_state") {
		t.progress = progress{}
	}
	t.progress.Data, t.progress.Seed = t.data, t.recipe.Debug.Seed
	t.saved = int64(loaded.Step)
	return true, nil
}

// restore fills the state's variables from a source of the same tensors.
func (t *trainer) restore(ctx context.Context, c *checkpoint.Checkpoint, paramsOnly bool) error {
	s, target, err := t.target(paramsOnly)
	if err != nil {
		return err
	}
	return c.Restore(ctx, target, t.deliver(s))
}

// target is the state to be filled, made empty if there is none, and what of it.
func (t *trainer) target(paramsOnly bool) (*State, checkpoint.Target, error) {
	if t.state == nil {
		s, err := newState(t.machine.Mesh, t.step.Vars)
		if err != nil {
			return nil, checkpoint.Target{}, err
		}
		t.state = s
	}
	tensors := t.state.Tensors()
	if paramsOnly {
		tensors = tensors[:len(t.options.Model.Params())]
	}
	return t.state, checkpoint.Target{Mesh: t.machine.Mesh, Tensors: tensors}, nil
}

func (t *trainer) deliver(s *State) checkpoint.Deliver {
	return func(tensor int, positions []int, data []byte) error {
		return s.put(t.exe.Devices, t.machine.Client, tensor, positions, data)
	}
}

// fromHF begins from published weights.
func (t *trainer) fromHF(ctx context.Context, path string) error {
	m, err := hfmodel.Open(path)
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	defer m.Close()
	if err := m.Check(t.recipe.Model.Name, t.options.Model); err != nil {
		return fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	src, err := m.Tensors(dtype.F32)
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	s, target, err := t.target(true)
	if err != nil {
		return err
	}
	if err := checkpoint.RestoreFrom(ctx, path, src, target, t.deliver(s)); err != nil {
		return err
	}
	for _, n := range m.Notes {
		t.logf("note: %s", n)
	}
	t.logf("parameters: from %s (Hugging Face layout)", path)
	return nil
}

// fromCheckpoint begins from another run's checkpoint: a folder of checkpoints,
// of which the last is taken, or one of them.
func (t *trainer) fromCheckpoint(ctx context.Context, path string, modelOnly bool) error {
	dir, step := path, checkpoint.Latest
	if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "step-")); err == nil && strings.HasPrefix(filepath.Base(path), "step-") {
		dir, step = filepath.Dir(path), n
	}
	folder, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_path: %w", err)
	}
	c, err := folder.Open(step)
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_path: %w", err)
	}
	defer c.Close()
	if err := t.restore(ctx, c, modelOnly); err != nil {
		return fmt.Errorf("checkpoint.initial_load_path: %w", err)
	}
	t.logf("parameters: from %s", c.Path())
	return nil
}

// save writes a checkpoint of the state after progress.Step steps. With the
// recipe's async mode it copies the state to the host and returns.
func (t *trainer) save(ctx context.Context) error {
	defer t.meter.Pause(metrics.Checkpoint)()
	s := t.state
	snap := checkpoint.Snapshot{
		Step: int(t.progress.Step), Mesh: t.machine.Mesh, Tensors: s.Tensors(), Shard: s.Shard,
		State: map[string]any{"train": t.progress, "model": t.modelState()},
	}
	last := t.progress.Step >= int64(t.recipe.Training.Steps)
	if last && t.recipe.Checkpoint.LastSaveModelOnly {
		if err := t.modelOnly(&snap); err != nil {
			return err
		}
	}
	if t.saver == nil || last {
		if t.saver != nil {
			if err := t.saver.Wait(ctx); err != nil {
				t.logf("WARNING: %v", err)
			}
		}
		saved, err := t.store.Save(ctx, snap)
		t.reportSave(saved, err)
		if err != nil {
			return err
		}
	} else {
		held, err := hold(ctx, snap)
		if err != nil {
			return err
		}
		if err := t.saver.Save(ctx, held); err != nil {
			// That of an earlier save, and so is reported already: hand over again.
			if err := t.saver.Save(ctx, held); err != nil {
				return err
			}
		}
	}
	t.saved = t.progress.Step
	if last && t.recipe.Checkpoint.LastSaveInHF {
		return t.export(ctx)
	}
	return nil
}

func (t *trainer) modelState() modelState {
	return modelState{t.recipe.Model.Name, t.options.Model, t.recipe.Model.HFAssetsPath}
}

func (t *trainer) reportSave(s *checkpoint.Saved, err error) {
	if err != nil {
		t.logf("WARNING: the checkpoint was not saved: %v", err)
		return
	}
	t.logf("saved %s (%s)", s.Path, mib(s.Bytes))
	for _, n := range s.Notes {
		t.logf("note: %s", n)
	}
}

// modelOnly leaves the parameters in a snapshot, in the type of the recipe.
func (t *trainer) modelOnly(snap *checkpoint.Snapshot) error {
	as, err := dtype.Parse(t.recipe.Checkpoint.ExportDType)
	if err != nil {
		return err
	}
	snap.Tensors = slices.Clone(snap.Tensors[:len(t.options.Model.Params())])
	for i := range snap.Tensors {
		snap.Tensors[i].DType = as
	}
	shard := snap.Shard
	snap.Shard = func(ctx context.Context, tensor, position int) ([]byte, error) {
		raw, err := shard(ctx, tensor, position)
		if err != nil || as == dtype.F32 {
			return raw, err
		}
		xs := make([]float32, len(raw)/4)
		copy(pjrt.AsBytes(xs), raw)
		return dtype.FromFloat32(as, xs)
	}
	delete(snap.State, "train")
	return nil
}

// hold copies what this process would write of a snapshot to host memory, so
// that training can change the state meanwhile.
func hold(ctx context.Context, snap checkpoint.Snapshot) (checkpoint.Snapshot, error) {
	type part struct{ tensor, position int }
	parts := map[part][]byte{}
	for i, tensor := range snap.Tensors {
		l, err := sharding.NewLayout(snap.Mesh, tensor.Spec, tensor.Shape)
		if err != nil {
			return snap, err
		}
		for k := range l.Shards() {
			p := l.Holders(k)[0]
			raw, err := snap.Shard(ctx, i, p)
			if err != nil {
				return snap, err
			}
			for _, h := range l.Holders(k) {
				parts[part{i, h}] = raw
			}
		}
	}
	// The state's values change as well.
	state := map[string]any{}
	for k, v := range snap.State {
		raw, err := json.Marshal(v)
		if err != nil {
			return snap, fmt.Errorf("train: %w", err)
		}
		state[k] = json.RawMessage(raw)
	}
	snap.State = state
	snap.Shard = func(_ context.Context, tensor, position int) ([]byte, error) {
		return parts[part{tensor, position}], nil
	}
	return snap, nil
}

// export writes the last checkpoint in Hugging Face's layout.
func (t *trainer) export(ctx context.Context) error {
	c, err := t.store.Open(int(t.progress.Step))
	if err != nil {
		return err
	}
	defer c.Close()
	as, err := dtype.Parse(t.recipe.Checkpoint.ExportDType)
	if err != nil {
		return err
	}
	dir := filepath.Join(t.recipe.Job.DumpFolder, fmt.Sprintf("hf-step-%08d", t.progress.Step))
	err = hfmodel.Export(ctx, dir, t.recipe.Model.Name, t.options.Model, c, hfmodel.ExportOptions{DType: as, Tokenizer: t.tokenizerDir()})
	if err != nil {
		return fmt.Errorf("checkpoint.last_save_in_hf: %w", err)
	}
	t.logf("exported %s", dir)
	return nil
}
