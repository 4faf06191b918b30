package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/dtype"
	"titan/metrics"
	"titan/optim"
)

// trainKey is the name under which a checkpoint's state has the progress.
const trainKey = "train"

// progress is the part of a run's state that is not on the devices; saved with
// every checkpoint.
type progress struct {
	Step   int64 `json:"step"`   // steps done
	Tokens int64 `json:"tokens"` // valid tokens seen
	// Data is the fingerprint of the loader: what a batch holds follows from it
	// and the step.
	Data string `json:"data"`
	Seed uint64 `json:"seed"`
	// Excluded is what the run was told not to restore when it began. A restart
	// must not leave it out again.
	Excluded []string `json:"excluded,omitempty"`
}

// What checkpoint.exclude_from_loading names.
const (
	partOptimizer = "optimizer"
	partTrain     = "train_state"
)

// partBuffers is what else a model reads besides parameters, which published
// weights do not have.
const partBuffers = "buffers"

// hasProgress tells a checkpoint of training from one of the model only.
func hasProgress(c *checkpoint.Checkpoint) bool {
	_, ok := c.Manifest().State[trainKey]
	return ok
}

// checkStart finds out, before anything is compiled, whether start can succeed,
// and the step that the run then goes on after.
func (t *trainer) checkStart(ctx context.Context) (step int64, err error) {
	c := t.recipe.Checkpoint
	if t.store != nil {
		_, err := t.store.Load(ctx, checkpoint.LoadOptions{Step: c.LoadStep, Fallback: c.Fallback, Group: t.hosts.members()}, func(c *checkpoint.Checkpoint) error {
			t.restores = true
			exclude := t.excluded(c)
			if !slices.Contains(exclude, partTrain) {
				step = int64(c.Step())
			}
			if t.completed(c) {
				return nil
			}
			if !hasProgress(c) {
				return fmt.Errorf("train: %s has the parameters only (checkpoint.last_save_model_only), so training cannot go on from it; "+
					"set checkpoint.load_step to one before it, or begin from it with checkpoint.initial_load_path in another job.dump_folder", c.Path())
			}
			return t.checkCheckpoint(c, exclude)
		})
		if !t.none(err) {
			return step, err
		}
	}
	path := t.initialPath()
	switch {
	case path == "":
		return 0, nil
	}
	t.restores = true
	if c.InitialLoadInHF {
		m, err := t.openHF(path)
		if err != nil {
			return 0, err
		}
		return 0, m.Close()
	}
	ck, err := openInitial(path)
	if err != nil {
		return 0, err
	}
	defer ck.Close()
	if err := t.checkInitial(ck); err != nil {
		return 0, fmt.Errorf("checkpoint.initial_load_path: %w", err)
	}
	if !slices.Contains(t.initialExclude(ck), partTrain) {
		step = int64(ck.Step())
	}
	return step, nil
}

// none reports whether there is nothing to resume from, and need not be.
func (t *trainer) none(err error) bool {
	var none *checkpoint.NotFoundError
	return errors.As(err, &none) && t.recipe.Checkpoint.LoadStep == checkpoint.Latest
}

// completed reports whether a checkpoint of the model only is the end of this
// recipe's training.
func (t *trainer) completed(c *checkpoint.Checkpoint) bool {
	return !hasProgress(c) && c.Step() >= t.recipe.Training.Steps
}

// start makes the state that training begins with: the checkpoint to go on from
// if there is one, else what the recipe says to begin from, else new parameters.
func (t *trainer) start(ctx context.Context) error {
	err := t.load(ctx)
	if err != nil || t.state == nil {
		return err
	}
	raw, err := t.state.Whole(t.state.index(optim.SkippedName))
	if err != nil {
		return err
	}
	t.skipped = dtype.Float(dtype.S32, raw, 0)
	return nil
}

func (t *trainer) load(ctx context.Context) error {
	if t.store != nil {
		if err := t.resume(ctx); !t.none(err) {
			return err
		}
	}
	if err := t.initialise(ctx); err != nil {
		return err
	}
	path := t.initialPath()
	switch {
	case path == "":
		t.source = fmt.Sprintf("initialised from seed %d", t.recipe.Debug.Seed)
		t.logf("parameters: %s", t.source)
		return nil
	case t.recipe.Checkpoint.InitialLoadInHF:
		return t.fromHF(ctx, path)
	}
	return t.fromCheckpoint(ctx, path)
}

func (t *trainer) initialise(ctx context.Context) error {
	defer t.meter.Pause(metrics.Initialise)()
	s, err := abandonable(ctx, func() (*State, error) {
		return t.machine.Init(t.recipe.Debug.Seed, t.options.Model, t.step.Vars)
	})
	t.abandoned = t.abandoned || errors.Is(err, errAbandoned)
	if err != nil {
		return err
	}
	t.state.Close()
	t.state = s
	return nil
}

// resume goes on from a checkpoint of this run.
func (t *trainer) resume(ctx context.Context) error {
	c := t.recipe.Checkpoint
	o := checkpoint.LoadOptions{Step: c.LoadStep, Fallback: c.Fallback, Verify: c.Verify, Attempt: 1, Group: t.hosts.members()}
	var exclude []string
	loaded, err := t.store.Load(ctx, o, func(c *checkpoint.Checkpoint) error {
		exclude = t.excluded(c)
		if t.completed(c) {
			t.progress.Step = int64(c.Step())
			return nil
		}
		if err := t.checkCheckpoint(c, exclude); err != nil {
			return err
		}
		return t.restore(ctx, c, exclude)
	})
	if err != nil {
		return err
	}
	for _, e := range loaded.Skipped {
		t.logf("WARNING: %v", e)
	}
	t.source = loaded.Path
	t.logf("resumed from %s", loaded.Path)
	t.logExcluded(exclude)
	if c.LoadStep != checkpoint.Latest {
		t.logf("WARNING: checkpoint.load_step is set: if this run starts again, it is from step %d again", c.LoadStep)
	}
	if !slices.Contains(exclude, partTrain) {
		t.setSaved(int64(loaded.Step))
	}
	return nil
}

// excluded is what is not restored of a checkpoint: what the recipe says, unless
// the run that saved it has begun that way already.
func (t *trainer) excluded(c *checkpoint.Checkpoint) []string {
	var p progress
	if hasProgress(c) && c.State(trainKey, &p) != nil {
		p = progress{}
	}
	var out []string
	for _, what := range t.recipe.Checkpoint.ExcludeFromLoading {
		if !slices.Contains(p.Excluded, what) {
			out = append(out, what)
		}
	}
	return out
}

func (t *trainer) logExcluded(exclude []string) {
	if len(exclude) > 0 {
		t.logf("not restored: %s (checkpoint.exclude_from_loading)", strings.Join(exclude, ", "))
	}
}

// checkCheckpoint compares a checkpoint with the recipe's model and optimizer.
func (t *trainer) checkCheckpoint(c *checkpoint.Checkpoint, exclude []string) error {
	m, err := hfmodel.SavedModel(c)
	if err != nil {
		return err
	}
	if err := hfmodel.CheckConfig(c.Path(), m.Family, m.Config, t.recipe.Model.Name, t.options.Model); err != nil {
		if c.Check(t.wanted([]string{partBuffers})) == nil {
			return fmt.Errorf("%w; another run, with a job.dump_folder of its own, may begin from its parameters: checkpoint.initial_load_path", err)
		}
		return err
	}
	err = c.Check(t.wanted(exclude))
	if err != nil && c.Check(t.wanted([]string{partOptimizer})) == nil {
		return fmt.Errorf("train: %s was saved with another optimizer than the recipe's (%s): set it as it was, or begin with new moments: checkpoint.exclude_from_loading = [%q]; %w",
			c.Path(), t.recipe.Optimizer.Name, partOptimizer, err)
	}
	return err
}

// wanted lists the tensors that are restored.
func (t *trainer) wanted(exclude []string) []checkpoint.Tensor {
	tensors, m := tensorsOf(t.step.Vars), t.options.Model
	switch {
	case slices.Contains(exclude, partBuffers):
		return tensors[:len(m.Params())]
	case slices.Contains(exclude, partOptimizer):
		return tensors[:len(m.Arrays())]
	}
	return tensors
}

// restore takes the state, but for what is excluded, from a checkpoint. What is
// excluded is as at the start of a run.
func (t *trainer) restore(ctx context.Context, c *checkpoint.Checkpoint, exclude []string) error {
	var p progress
	if err := c.State(trainKey, &p); err != nil {
		return fmt.Errorf("train: %s: %w", c.Path(), err)
	}
	if slices.Contains(exclude, partOptimizer) {
		if err := t.initialise(ctx); err != nil {
			return err
		}
	}
	if err := t.fill(exclude, func(target checkpoint.Target) error { return c.Restore(ctx, target, t.deliver()) }); err != nil {
		return err
	}
	if n := t.left(c, exclude); n > 0 {
		t.logf("WARNING: the optimizer of %s was another for %d parameters, as it has second moments for them: they are left out, and its first moments go on as momentum; "+
			"to begin with new ones set checkpoint.exclude_from_loading = [%q]", c.Path(), n, partOptimizer)
	}
	if slices.Contains(exclude, partTrain) {
		p = progress{}
	} else if p.Data != t.data {
		t.logf("WARNING: the data, its order or the batch is not that of %s; training goes on with batch %d of the new data", c.Path(), p.Step)
	}
	p.Data, p.Seed, p.Excluded = t.data, t.recipe.Debug.Seed, t.recipe.Checkpoint.ExcludeFromLoading
	t.progress = p
	return nil
}

// left counts the second moments that a checkpoint has and the recipe's optimizer has
// no use for.
func (t *trainer) left(c *checkpoint.Checkpoint, exclude []string) int {
	if slices.Contains(exclude, partOptimizer) {
		return 0
	}
	n := 0
	for _, e := range c.Entries() {
		if strings.HasPrefix(e.Name, optim.SecondMoment) && t.state.index(e.Name) < 0 {
			n++
		}
	}
	return n
}

// fill calls restore with the state as the target, which is made empty if there
// is none.
func (t *trainer) fill(exclude []string, restore func(checkpoint.Target) error) error {
	if t.state == nil {
		s, err := newState(t.machine.Mesh, t.step.Vars)
		if err != nil {
			return err
		}
		t.state = s
	}
	return restore(checkpoint.Target{Mesh: t.machine.Mesh, Tensors: t.wanted(exclude), Positions: t.machine.local})
}

func (t *trainer) deliver() checkpoint.Deliver {
	return func(tensor int, positions []int, data []byte) error {
		return t.state.put(t.exe.Devices, t.machine.Client, tensor, positions, data)
	}
}
