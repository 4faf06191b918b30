package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/dtype"
)

// initialPath is where the recipe begins from if it does not resume; "" for new
// parameters.
func (t *trainer) initialPath() string {
	c := t.recipe.Checkpoint
	if c.InitialLoadInHF && c.InitialLoadPath == "" {
		return t.recipe.Model.HFAssetsPath
	}
	return c.InitialLoadPath
}

// openHF opens published weights.
func (t *trainer) openHF(path string) (*hfmodel.Model, error) {
	m, err := hfmodel.Open(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	if err := m.Check(t.recipe.Model.Name, t.options.Model); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	return m, nil
}

// fromHF begins from published weights.
func (t *trainer) fromHF(ctx context.Context, path string) error {
	m, err := t.openHF(path)
	if err != nil {
		return err
	}
	defer m.Close()
	src, err := m.Tensors(dtype.F32)
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	err = t.fill([]string{partOptimizer, partBuffers}, func(target checkpoint.Target) error {
		return checkpoint.RestoreFrom(ctx, path, src, target, t.deliver())
	})
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_in_hf: %w", err)
	}
	for _, n := range m.Notes {
		t.logf("note: %s", n)
	}
	t.source = path + " (Hugging Face layout)"
	t.logf("parameters: from %s", t.source)
	return nil
}

// openInitial opens another run's checkpoint: a folder of checkpoints, of which
// the last is taken, or one of them.
func openInitial(path string) (*checkpoint.Checkpoint, error) {
	dir, step := filepath.Clean(path), checkpoint.Latest
	if digits, ok := strings.CutPrefix(filepath.Base(dir), "step-"); ok {
		if n, err := strconv.Atoi(digits); err == nil {
			dir, step = filepath.Dir(dir), n
		}
	}
	folder, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint.initial_load_path: %w", err)
	}
	c, err := folder.Open(step)
	if err != nil {
		hint := ""
		if none := (*checkpoint.NotFoundError)(nil); errors.As(err, &none) && len(none.Available) == 0 {
			hint = insteadOf(dir)
		}
		return nil, fmt.Errorf("checkpoint.initial_load_path: %w%s", err, hint)
	}
	return c, nil
}

// insteadOf says which folder was likely meant by one without checkpoints: that of
// a run has them in a folder of its own, published weights are asked for by another
// key. It is "" if there is none.
func insteadOf(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
		return "; for weights in the Hugging Face layout set checkpoint.initial_load_in_hf = true"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		sub := filepath.Join(dir, e.Name())
		folder, err := checkpoint.OpenFolder(sub)
		if err != nil {
			continue
		}
		if list, err := folder.List(); err == nil && slices.ContainsFunc(list, func(l checkpoint.Listed) bool { return l.Status == checkpoint.Complete }) {
			return fmt.Sprintf("; it is the folder of a run: its checkpoints are in %s", sub)
		}
	}
	return ""
}

// checkInitial checks another run's checkpoint. Of the model only the shapes
// must be those of the recipe: a run may begin with longer rotations, say.
func (t *trainer) checkInitial(c *checkpoint.Checkpoint) error {
	exclude := t.initialExclude(c)
	if !t.recipe.Checkpoint.InitialLoadModelOnly && !hasProgress(c) {
		return fmt.Errorf("%s has the parameters only; set checkpoint.initial_load_model_only = true", c.Path())
	}
	var err error
	m, modelErr := hfmodel.SavedModel(c)
	if modelErr == nil {
		modelErr = hfmodel.CheckConfig(c.Path(), m.Family, m.Config, t.recipe.Model.Name, t.options.Model)
	}
	if t.recipe.Checkpoint.InitialLoadModelOnly {
		_, err = converted(c, t.wanted(exclude))
	} else {
		err = c.Check(t.wanted(exclude))
	}
	switch {
	case err != nil && modelErr != nil:
		return modelErr
	case err == nil && modelErr != nil:
		t.logf("WARNING: %v; its parameters fit and are used", modelErr)
	}
	return err
}

// initialExclude is what another run's checkpoint is not used for: where only the
// model is taken, also buffers that it does not have.
func (t *trainer) initialExclude(c *checkpoint.Checkpoint) []string {
	if t.recipe.Checkpoint.InitialLoadModelOnly {
		out := []string{partOptimizer, partTrain}
		for _, p := range t.options.Model.Buffers() {
			if !slices.ContainsFunc(c.Entries(), func(e safetensors.Entry) bool { return e.Name == p.Name }) {
				return append(out, partBuffers)
			}
		}
		return out
	}
	return t.recipe.Checkpoint.ExcludeFromLoading
}

// fromCheckpoint begins from another run's checkpoint.
func (t *trainer) fromCheckpoint(ctx context.Context, path string) error {
	c, err := openInitial(path)
	if err != nil {
		return err
	}
	defer c.Close()
	exclude := t.initialExclude(c)
	what := "parameters"
	if t.recipe.Checkpoint.InitialLoadModelOnly {
		err = t.fill(exclude, func(target checkpoint.Target) error {
			src, err := converted(c, target.Tensors)
			if err != nil {
				return err
			}
			return checkpoint.RestoreFrom(ctx, c.Path(), src, target, t.deliver())
		})
	} else {
		what = "state"
		err = t.restore(ctx, c, exclude)
	}
	if err != nil {
		return fmt.Errorf("checkpoint.initial_load_path: %w", err)
	}
	t.source = c.Path()
	t.logf("%s: from %s", what, t.source)
	if what == "state" {
		t.logExcluded(exclude)
	}
	return nil
}
