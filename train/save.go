package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/dtype"
	"titan/internal/human"
	"titan/metrics"
	"titan/pjrt"
)

// save writes the checkpoint that is due after progress.Step steps; with the
// recipe's async mode it copies the state to the host and returns. That it fails
// is no reason to lose the run: it is told, and the next one may succeed.
func (t *trainer) save(ctx context.Context) error {
	defer t.meter.Pause(metrics.Checkpoint)()
	snap := t.snapshot()
	if t.saver == nil {
		t.reportSave(t.store.Save(ctx, snap))
		return ctx.Err()
	}
	held, err := t.hold(ctx, snap)
	if err != nil {
		return err
	}
	err = t.saver.Save(ctx, held)
	if err != nil && ctx.Err() == nil {
		// That of an earlier save, and so is told already: hand over again.
		err = t.saver.Save(ctx, held)
	}
	return err
}

// saveLast makes sure that there is a checkpoint of what was done, and after the
// last step whatever else the recipe wants.
func (t *trainer) saveLast(ctx context.Context) error {
	if t.store == nil {
		return nil
	}
	defer t.meter.Pause(metrics.Checkpoint)()
	if t.saver != nil {
		_ = t.saver.Close() // what failed is told already, and what counts is saved below
		t.saver = nil
	}
	last := t.progress.Step >= int64(t.recipe.Training.Steps)
	trained, err := t.hosts.any(ctx, "save", t.progress.Step > 0 && t.progress.Step != t.savedStep())
	if err != nil {
		return fmt.Errorf("train: agreeing on the last save: %w", err)
	}
	if trained {
		snap := t.snapshot()
		if last && t.recipe.Checkpoint.LastSaveModelOnly {
			if err := t.modelOnly(&snap); err != nil {
				return err
			}
		}
		saved, err := t.store.Save(ctx, snap)
		if err != nil {
			before := "there is no checkpoint"
			if s := t.savedStep(); s >= 0 {
				before = fmt.Sprintf("the last checkpoint is that of step %d", s)
			}
			return fmt.Errorf("train: the steps up to %d are not saved, %s: %w", t.progress.Step, before, err)
		}
		t.reportSave(saved, nil)
	}
	if last && t.recipe.Checkpoint.LastSaveInHF && t.hosts.leads() {
		return t.export(ctx, trained)
	}
	return nil
}

func (t *trainer) snapshot() checkpoint.Snapshot {
	return checkpoint.Snapshot{
		Step: int(t.progress.Step), Mesh: t.machine.Mesh, Tensors: t.state.Tensors(), Shard: t.state.Shard,
		State: map[string]any{trainKey: t.progress, hfmodel.StateKey: t.modelState()},
	}
}

// modelState lets a checkpoint be exported or sampled from without its recipe.
func (t *trainer) modelState() hfmodel.Saved {
	return hfmodel.Saved{Family: t.recipe.Model.Name, Config: t.options.Model, Tokenizer: t.recipe.Model.HFAssetsPath}
}

func (t *trainer) reportSave(s *checkpoint.Saved, err error) {
	if err != nil {
		t.logf("WARNING: a checkpoint was not saved, training goes on without: %v", err)
		return
	}
	t.setSaved(int64(s.Step))
	t.recordSave(s)
	t.logf("saved %s (%s)", s.Path, human.Memory(s.Bytes))
	for _, n := range s.Notes {
		t.logf("note: %s", n)
	}
}

func (t *trainer) savedStep() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.saved
}

func (t *trainer) setSaved(step int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saved = step
}

// modelOnly leaves what the model reads in a snapshot, the parameters in the type
// of the recipe.
func (t *trainer) modelOnly(snap *checkpoint.Snapshot) error {
	as, err := dtype.Parse(t.recipe.Checkpoint.ExportDType)
	if err != nil {
		return err
	}
	params := len(t.options.Model.Params())
	snap.Tensors = slices.Clone(snap.Tensors[:len(t.options.Model.Arrays())])
	for i := range params { // buffers are small, and change in small steps
		snap.Tensors[i].DType = as
	}
	shard := snap.Shard
	snap.Shard = func(ctx context.Context, tensor, position int) ([]byte, error) {
		raw, err := shard(ctx, tensor, position)
		if err != nil || as == dtype.F32 || tensor >= params {
			return raw, err
		}
		xs := make([]float32, len(raw)/4)
		copy(pjrt.AsBytes(xs), raw)
		return dtype.FromFloat32(as, xs)
	}
	delete(snap.State, trainKey)
	return nil
}

// hold copies what this process would write of a snapshot to host memory, so
// that training can change the state meanwhile.
func (t *trainer) hold(ctx context.Context, snap checkpoint.Snapshot) (checkpoint.Snapshot, error) {
	list, err := t.store.Parts(&snap)
	if err != nil {
		return snap, err
	}
	parts := map[checkpoint.Part][]byte{}
	for _, p := range list {
		if parts[p], err = snap.Shard(ctx, p.Tensor, p.Position); err != nil {
			return snap, err
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
		return parts[checkpoint.Part{Tensor: tensor, Position: position}], nil
	}
	return snap, nil
}

// export writes the last checkpoint in Hugging Face's layout. One that is there
// is replaced if this process has trained, and else left as it is.
func (t *trainer) export(ctx context.Context, trained bool) error {
	dir := filepath.Join(t.recipe.Job.DumpFolder, fmt.Sprintf("hf-step-%08d", t.progress.Step))
	_, err := os.Stat(dir)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint.last_save_in_hf: %w", err)
	}
	if there && !trained {
		return nil
	}
	c, err := t.store.Open(int(t.progress.Step))
	if err != nil {
		return fmt.Errorf("checkpoint.last_save_in_hf: %w", err)
	}
	defer c.Close()
	as, err := dtype.Parse(t.recipe.Checkpoint.ExportDType)
	if err != nil {
		return err
	}
	// Nothing that is complete goes before its successor is there. What a killed
	// run left is nobody's: this one has the folder's lock.
	next, old := dir+".new", dir+".old"
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".hf-step-*.new.tmp-*"))
	for _, d := range append(left, next, old) {
		err = errors.Join(err, os.RemoveAll(d))
	}
	if err == nil {
		err = hfmodel.Export(ctx, next, t.recipe.Model.Name, t.options.Model, c, hfmodel.ExportOptions{DType: as, Tokenizer: t.tokenizerDir()})
	}
	if err == nil && there {
		err = os.Rename(dir, old)
	}
	if err == nil {
		err = os.Rename(next, dir)
	}
	if err == nil {
		err = os.RemoveAll(old)
	}
	if err != nil {
		return fmt.Errorf("checkpoint.last_save_in_hf: %w; the checkpoint itself is saved, and the same command exports it again", err)
	}
	t.logf("exported %s", dir)
	return nil
}
