package train

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint"
	"titan/configs"
)

// obstructed trains while somebody puts something where a checkpoint is due,
// and takes it away in the end.
func obstructed(t *testing.T, r *configs.Recipe, step string) (string, error) {
	t.Helper()
	dir := filepath.Join(r.Job.DumpFolder, r.Checkpoint.Folder, step)
	out := &at{text: "step:  1 ", do: func() {
		require.NoError(t, os.MkdirAll(dir, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o666))
	}}
	_, err := Run(ctx, RunOptions{Recipe: r, Version: "test", Out: out})
	require.FileExists(t, filepath.Join(dir, "mine"), "it is not titan's")
	require.NoError(t, os.RemoveAll(dir))
	return out.String(), err
}

// A save that fails does not end the run; if the last one fails the run has
// failed, and says what there is.
func TestSaveFails(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	straight := recipe(t, data)
	run(t, straight)
	want := saved(t, straight, 6)
	for _, mode := range []string{"disabled", "async"} {
		r := recipe(t, data, "checkpoint.async_mode="+mode)
		log, err := obstructed(t, r, "step-00000004")
		require.NoError(t, err)
		require.Contains(t, log, "WARNING: a checkpoint was not saved, training goes on without: checkpoint: saving step 4 ")
		require.Equal(t, []int{2, 6}, steps(t, r))
		sameState(t, want, saved(t, r, 6), mode)

		r = recipe(t, data, "checkpoint.async_mode="+mode)
		log, err = obstructed(t, r, "step-00000006")
		require.ErrorContains(t, err, "the steps up to 6 are not saved, the last checkpoint is that of step 4: ")
		require.Contains(t, log, "skipped steps", "the summary comes nevertheless")
		require.Equal(t, []int{2, 4}, steps(t, r))
		run(t, r)
		sameState(t, want, saved(t, r, 6), mode+", after the mistake was mended")
	}
}

// The disk fills up while a run saves, and has room again for the next one.
func TestDiskFull(t *testing.T) {
	quickly(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=900k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	data := dataset(t, documents(1, 40, 5, 60)...)
	r := recipe(t, data, "checkpoint.interval=1", "checkpoint.folder="+dir)
	err, log := fails(t, r)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Contains(t, log, "WARNING: a checkpoint was not saved, training goes on without")
	folder, err := checkpoint.OpenFolder(dir)
	require.NoError(t, err)
	list, err := folder.List()
	require.NoError(t, err)
	require.Greater(t, len(list), 1)
	for _, l := range list {
		_, err := folder.Verify(context.Background(), l.Step)
		require.NoError(t, err)
	}
	require.NoError(t, os.RemoveAll(list[0].Path))
	res, log := run(t, again(r, func(r *configs.Recipe) { r.Checkpoint.Interval = 1000 }))
	require.EqualValues(t, 6, res.Step)
	require.Contains(t, log, "resumed from "+list[len(list)-1].Path)
}

// What the recipe says of which checkpoints are kept, and of the last one.
func TestKeptAndLast(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	r := recipe(t, data, "checkpoint.keep_latest_k=1", "checkpoint.enable_first_step_checkpoint=true",
		"checkpoint.last_save_model_only=true", "checkpoint.last_save_in_hf=true", "checkpoint.export_dtype=bfloat16")
	_, log := run(t, r)
	for _, step := range []string{"step-00000001 ", "step-00000002 ", "step-00000004 ", "step-00000006 "} {
		require.Contains(t, log, step)
	}
	require.Equal(t, []int{6}, steps(t, r))
	last := saved(t, r, 6)
	require.Contains(t, last, "embed")
	require.Len(t, last["embed"], 64*32*2, "in bfloat16")
	require.NotContains(t, last, "optim.step")
	require.NotContains(t, last, "state train")
	exported := filepath.Join(r.Job.DumpFolder, "hf-step-00000006")
	require.FileExists(t, filepath.Join(exported, "config.json"))
	require.FileExists(t, filepath.Join(exported, "model.safetensors"))

	// Again: all is done. An export that is missing is made.
	require.NoError(t, os.Rename(exported, exported+".moved"))
	_, log = run(t, r)
	require.Contains(t, log, "nothing to do")
	require.Contains(t, log, "exported ")
	for _, name := range []string{"config.json", "model.safetensors"} {
		a, err := os.ReadFile(filepath.Join(exported, name))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(exported+".moved", name))
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
	_, log = run(t, r)
	require.NotContains(t, log, "exported ")

	// Training cannot go on from it, but begin.
	err, log := fails(t, again(r, func(r *configs.Recipe) { r.Training.Steps = 8 }))
	require.ErrorContains(t, err, "step-00000006 has the parameters only")
	require.ErrorContains(t, err, "checkpoint.initial_load_path")
	require.NotContains(t, log, "train_step:", "it is found before compiling")
	next := recipe(t, data, "checkpoint.initial_load_path="+filepath.Join(r.Job.DumpFolder, "checkpoint"), "training.steps=1")
	_, log = run(t, next)
	require.Contains(t, log, "parameters: from ")
	full := recipe(t, data)
	run(t, full)
	require.Less(t, curve(t, next, loss, 1)[0], curve(t, full, loss, 1)[0]-0.1, "it begins with what was learnt")
	err, _ = fails(t, again(next, func(r *configs.Recipe) {
		r.Checkpoint.InitialLoadModelOnly = false
		r.Job.DumpFolder = t.TempDir()
	}))
	require.ErrorContains(t, err, "has the parameters only; set checkpoint.initial_load_model_only = true")

	// A run that trains again replaces the export.
	run(t, again(full, func(r *configs.Recipe) { r.Checkpoint.LastSaveInHF = true }))
	before, err := os.ReadFile(filepath.Join(full.Job.DumpFolder, "hf-step-00000006", "model.safetensors"))
	require.NoError(t, err)
	_, log = run(t, again(full, func(r *configs.Recipe) {
		r.Checkpoint.LastSaveInHF, r.Checkpoint.LoadStep, r.Optimizer.LR = true, 4, 1e-3
	}))
	require.Contains(t, log, "exported ")
	after, err := os.ReadFile(filepath.Join(full.Job.DumpFolder, "hf-step-00000006", "model.safetensors"))
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	left, err := filepath.Glob(filepath.Join(full.Job.DumpFolder, "hf-step-*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
