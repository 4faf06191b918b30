package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/configs"
	"titan/pjrt"
	"titan/pjrt/plugins"
)

// What is wrong is found before anything is compiled, and named.
func TestMistakes(t *testing.T) {
	docs := documents(1, 40, 5, 60)
	data := dataset(t, docs...)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	for name, c := range map[string]struct {
		set  []string
		says []string
	}{
		"plugin":             {[]string{"mesh.platform=" + file + "/none.so"}, []string{"mesh.platform", "none.so"}},
		"not a plugin":       {[]string{"mesh.platform=" + file}, []string{file}},
		"dataset":            {[]string{"training.dataset_path=" + file + "s"}, []string{"dataset " + file + "s", "no such file"}},
		"validation dataset": {[]string{"validation.enable=true", "validation.dataset_path=" + file + "s"}, []string{"validation.dataset_path: ", "no such file"}},
		"no data":            {[]string{"training.dataset_path="}, []string{"training.dataset_path: is missing"}},
		"batch too large":    {[]string{"training.local_batch_size=100"}, []string{"is smaller than a batch"}},
		"dump folder":        {[]string{"job.dump_folder=" + file + "/out"}, []string{"job.dump_folder: ", "not a directory"}},
		"checkpoint folder":  {[]string{"checkpoint.folder=" + file}, []string{"checkpoint.folder: ", "not a directory"}},
		"initial load":       {[]string{"checkpoint.initial_load_path=" + file + "/none"}, []string{"checkpoint.initial_load_path: ", "not a directory"}},
		"initial load in HF": {[]string{"checkpoint.initial_load_path=" + filepath.Dir(file), "checkpoint.initial_load_in_hf=true"},
			[]string{"checkpoint.initial_load_in_hf: ", "has no config.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := recipe(t, data, c.set...)
			err, log := fails(t, r)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			require.NotContains(t, log, "train_step:", "it is found before compiling")
		})
	}
	t.Run("metrics", func(t *testing.T) {
		r := recipe(t, data)
		require.NoError(t, os.MkdirAll(r.Job.DumpFolder, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(r.Job.DumpFolder, r.Metrics.SaveJSONFile), []byte("mine"), 0o666))
		err, log := fails(t, r)
		require.ErrorContains(t, err, "this is no file of JSON lines")
		require.NotContains(t, log, "train_step:")
	})
	t.Run("devices", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "r.toml")
		require.NoError(t, os.WriteFile(file, []byte("extends = \"llama3_debug\"\n[mesh]\ndevices = 3\n[parallelism]\ndata_parallel_shard_degree = 2\n"), 0o666))
		_, _, err := configs.Load(file, nil)
		require.ErrorContains(t, err, "is 2, but there are 3 devices; the nearest that works is 3")
	})
	t.Run("devices there are", func(t *testing.T) {
		path, err := plugins.Find("cpu")
		require.NoError(t, err)
		err, _ = fails(t, recipe(t, data, "mesh.platform="+path, "mesh.devices=7"))
		require.ErrorContains(t, err, "train: the recipe is for 7 devices, cpu has ")
		require.ErrorContains(t, err, ": change mesh.devices")
	})
	t.Run("no plugin", func(t *testing.T) {
		t.Setenv("TITAN_PLUGIN_CPU", file+"s")
		err, _ := fails(t, recipe(t, data))
		require.ErrorContains(t, err, "TITAN_PLUGIN_CPU")
	})
	t.Run("a folder in use", func(t *testing.T) {
		for _, sub := range []struct{ dir, lock, says string }{{"", configs.RunLock, "job.dump_folder: another run writes there"}, {"checkpoint", ".titan-lock", "checkpoint.folder: "}} {
			r := recipe(t, data)
			fs, err := storage.Local(filepath.Join(r.Job.DumpFolder, sub.dir))
			require.NoError(t, err)
			lock, err := fs.Lock(sub.lock)
			require.NoError(t, err)
			err, _ = fails(t, r)
			require.ErrorContains(t, err, sub.says)
			require.ErrorContains(t, err, "in use by another process")
			require.NoError(t, lock.Close())
		}
	})
}

// A token that the vocabulary does not have is found when its batch is read:
// the steps before it are kept.
func TestTokenBeyondVocabulary(t *testing.T) {
	quickly(t)
	docs := documents(1, 40, 5, 60)
	good := dataset(t, docs...)
	bad := slices.Clone(docs)
	// The place is that of a row of step 4, and of none before.
	r := recipe(t, good)
	tr, _, done := ready(t, r)
	b, err := tr.loader.Batch(3, firstRows(tr.options.Rows*tr.options.Passes))
	require.NoError(t, err)
	at := b.Sources[2].Sample*16 + 5
	done()
	for i := range bad {
		if n := int64(len(bad[i])); at >= n {
			at -= n
			continue
		}
		bad[i] = slices.Clone(bad[i])
		bad[i][at] = vocab
		break
	}
	prefix := dataset(t, bad...)
	r = recipe(t, prefix, "checkpoint.interval=1000")
	err, log := fails(t, r)
	require.ErrorContains(t, err, "train: batch of step 4: ")
	require.ErrorContains(t, err, "has id 64, outside the vocabulary of 64")
	require.Contains(t, log, "step:  3 ")
	require.Equal(t, []int{3}, steps(t, r))
	for _, ext := range []string{".bin", ".idx"} {
		raw, err := os.ReadFile(good + ext)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(prefix+ext, raw, 0o666))
	}
	_, log = run(t, r)
	require.Contains(t, log, "resumed from ")

	// Likewise in the data that is held out.
	unfit := dataset(t, []int32{1, 2, 3}, []int32{4, vocab})
	r = recipe(t, good, "validation.enable=true", "validation.freq=3", "validation.dataset_path="+unfit, "checkpoint.interval=1000")
	err, _ = fails(t, r)
	require.ErrorContains(t, err, "train: batch of validation, number 1: ")
	require.ErrorContains(t, err, "has id 64")
	require.Equal(t, []int{3}, steps(t, r))
}

// What does not fit into a device's memory is told with what takes less of it.
func TestLessMemory(t *testing.T) {
	oom := &pjrt.OutOfMemory{Err: &pjrt.Error{Op: "Execute", Message: "Out of memory allocating 100 bytes."}}
	err := lessMemory(fmt.Errorf("step 3: %w", oom), "validation")
	require.ErrorIs(t, err, oom)
	require.ErrorContains(t, err, "Out of memory allocating 100 bytes.; a smaller validation.local_batch_size or validation.seq_len takes less memory")
	other := errors.New("other")
	require.Equal(t, other, lessMemory(other, "training"))
}
