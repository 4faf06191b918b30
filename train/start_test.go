package train

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/configs"
	"titan/dtype"
	"titan/optim"
	"titan/sharding"
)

func stepOf(t *testing.T, state map[string][]byte) (updates int, p progress) {
	t.Helper()
	require.NoError(t, json.Unmarshal(state["state train"], &p))
	return int(binary.LittleEndian.Uint32(state[optim.StepName])), p
}

// Which checkpoint a run goes on from, and with what of it.
func TestWhereToStart(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	first := recipe(t, data)
	run(t, first)
	want, losses := saved(t, first, 6), curve(t, first, loss, 6)
	at := filepath.Join(first.Job.DumpFolder, "checkpoint")
	// like returns a recipe whose folder has the checkpoints of first.
	like := func(t *testing.T, set ...string) *configs.Recipe {
		r := recipe(t, data, set...)
		for _, s := range []int{2, 4, 6} {
			copyCheckpoint(t, first, r, s)
		}
		return r
	}
	t.Run("load_step", func(t *testing.T) {
		r := like(t, "checkpoint.load_step=2")
		_, log := run(t, r)
		require.Contains(t, log, "WARNING: checkpoint.load_step is set: if this run starts again, it is from step 2 again")
		require.Equal(t, losses[2:], curve2(t, r, loss, 2, 6))
		sameState(t, want, saved(t, r, 6), "from step 2")
		err, _ := fails(t, again(r, func(r *configs.Recipe) { r.Checkpoint.LoadStep = 3 }))
		require.ErrorContains(t, err, "has no step 3; it has 2, 4, 6")
	})
	t.Run("another run's state", func(t *testing.T) {
		r := recipe(t, data, "checkpoint.initial_load_path="+filepath.Join(at, "step-00000004"), "checkpoint.initial_load_model_only=false")
		_, log := run(t, r)
		require.Contains(t, log, "state: from ")
		require.Equal(t, losses[4:], curve2(t, r, loss, 4, 6))
		sameState(t, want, saved(t, r, 6), "from another folder")
	})
	t.Run("another run's parameters", func(t *testing.T) {
		r := recipe(t, data, "checkpoint.initial_load_path="+at, "training.steps=2")
		runUntil(t, r, "step:  1 ")
		_, log := run(t, r)
		require.Contains(t, log, "resumed from ", "of its own checkpoint, not the other's")
		updates, p := stepOf(t, saved(t, r, 2))
		require.Equal(t, 2, updates)
		require.EqualValues(t, 2, p.Step)
	})
	t.Run("the folder of a run", func(t *testing.T) {
		err, log := fails(t, recipe(t, data, "checkpoint.initial_load_path="+first.Job.DumpFolder))
		require.ErrorContains(t, err, "checkpoint.initial_load_path: ")
		require.ErrorContains(t, err, "has no complete checkpoint; it is the folder of a run: its checkpoints are in "+at)
		require.NotContains(t, log, "train_step:", "it is found before compiling")
		weights := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(weights, "config.json"), nil, 0o666))
		err, _ = fails(t, recipe(t, data, "checkpoint.initial_load_path="+weights))
		require.ErrorContains(t, err, "set checkpoint.initial_load_in_hf = true")
	})
	t.Run("without the optimizer", func(t *testing.T) {
		r := like(t, "checkpoint.load_step=4", "checkpoint.exclude_from_loading=[\"optimizer\"]")
		_, log := run(t, r)
		require.Contains(t, log, "not restored: optimizer (checkpoint.exclude_from_loading)")
		updates, p := stepOf(t, saved(t, r, 6))
		require.Equal(t, 2, updates)
		require.EqualValues(t, 6, p.Step)
		require.Equal(t, losses[4], curve2(t, r, loss, 4, 5)[0], "the parameters are the same")
		require.NotEqual(t, losses[5], curve2(t, r, loss, 5, 6)[0], "the update is not")
	})
	t.Run("without the state of training", func(t *testing.T) {
		r := like(t, "checkpoint.exclude_from_loading=[\"train_state\"]", "checkpoint.keep_latest_k=3")
		res, _ := runUntil(t, r, "step:  3 ")
		require.Less(t, int(res.Step), 6)
		// The same command goes on; it does not begin again.
		_, log := run(t, r)
		require.NotContains(t, log, "not restored")
		updates, p := stepOf(t, saved(t, r, 6))
		require.Equal(t, 12, updates)
		require.EqualValues(t, 6, p.Step)
	})
	t.Run("damaged", func(t *testing.T) {
		r := like(t)
		shards, err := filepath.Glob(filepath.Join(r.Job.DumpFolder, "checkpoint", "step-00000006", "shard-*"))
		require.NoError(t, err)
		raw, err := os.ReadFile(shards[0])
		require.NoError(t, err)
		raw[len(raw)-9] ^= 1
		require.NoError(t, os.WriteFile(shards[0], raw, 0o666))
		err, _ = fails(t, r)
		require.ErrorContains(t, err, filepath.Base(shards[0]))
		require.ErrorContains(t, err, "the complete one before it is step 4: load that (checkpoint.load_step), or allow falling back to it (checkpoint.fallback)")
		_, log := run(t, again(r, func(r *configs.Recipe) { r.Checkpoint.Fallback = true }))
		require.Contains(t, log, "step-00000006 is damaged")
		require.Contains(t, log, "resumed from "+filepath.Join(r.Job.DumpFolder, "checkpoint", "step-00000004"))
		sameState(t, want, saved(t, r, 6), "fallen back")
	})
	t.Run("other data", func(t *testing.T) {
		r := recipe(t, dataset(t, documents(8, 40, 5, 60)...))
		copyCheckpoint(t, first, r, 4)
		_, log := run(t, r)
		require.Contains(t, log, "WARNING: the data, its order or the batch is not that of ")
	})
	t.Run("another model", func(t *testing.T) {
		for set, says := range map[string]string{
			"model.override.dim=40":           "hidden_size 32, dim 40",
			"model.override.n_layers=3":       "num_hidden_layers 2, n_layers 3",
			"model.override.rope_theta=10000": "rope_theta 500000, rope_theta 10000",
			"model.name=qwen3":                "of the family llama3, the recipe's is qwen3",
		} {
			err, log := fails(t, like(t, set))
			require.ErrorContains(t, err, says)
			require.NotContains(t, log, "train_step:", "it is found before compiling")
			if set == "model.override.rope_theta=10000" {
				continue
			}
			err, _ = fails(t, recipe(t, data, set, "checkpoint.initial_load_path="+at))
			require.ErrorContains(t, err, "checkpoint.initial_load_path: ")
			require.ErrorContains(t, err, says)
		}
		err, _ := fails(t, like(t, "optimizer.state_dtype=bfloat16"))
		require.ErrorContains(t, err, "optim.m.embed")
		require.ErrorContains(t, err, `checkpoint.exclude_from_loading = ["optimizer"]`)
	})
}

// Hugging Face weights in, the model out again: with a learning rate of next to
// nothing they are the same.
func TestHuggingFace(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	first := recipe(t, data, "checkpoint.last_save_in_hf=true")
	run(t, first)
	dirs := map[string]string{"own": filepath.Join(first.Job.DumpFolder, "hf-step-00000006")}
	if long {
		dirs["published"] = goldens + "/qwen3_tied"
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			m, err := hfmodel.Open(dir)
			require.NoError(t, err)
			c := m.Config
			require.NoError(t, m.Close())
			override := func(r *configs.Recipe) *configs.Recipe {
				o := &r.Model.Override
				o.VocabSize, o.Dim, o.Layers, o.Heads, o.KVHeads, o.HeadDim, o.HiddenDim = &c.VocabSize, &c.Dim, &c.Layers, &c.Heads, &c.KVHeads, &c.HeadDim, &c.HiddenDim
				o.NormEps, o.RopeTheta, o.TieEmbeddings, o.QKNorm = &c.NormEps, &c.RopeTheta, &c.TieEmbeddings, &c.QKNorm
				return r
			}
			set := []string{"model.name=" + m.Family, "training.steps=2", "checkpoint.initial_load_in_hf=true"}
			r := override(recipe(t, data, append(set, "optimizer.lr=1e-9", "optimizer.weight_decay=0.1",
				"checkpoint.initial_load_path="+dir, "checkpoint.last_save_in_hf=true")...))
			err, log := fails(t, again(r, func(r *configs.Recipe) {
				dim := c.Dim + 2
				r.Model.Override.Dim = &dim
			}))
			require.ErrorContains(t, err, "checkpoint.initial_load_in_hf: ")
			require.ErrorContains(t, err, "hidden_size ")
			require.NotContains(t, log, "train_step:")
			_, log = run(t, r)
			require.Contains(t, log, "parameters: from "+dir+" (Hugging Face layout)")
			out := filepath.Join(r.Job.DumpFolder, "hf-step-00000002")
			require.Contains(t, log, "exported "+out)

			theirs, err := safetensors.OpenModel(dir)
			require.NoError(t, err)
			defer theirs.Close()
			ours, err := safetensors.OpenModel(out)
			require.NoError(t, err)
			defer ours.Close()
			require.Len(t, ours.Entries(), len(theirs.Entries()))
			for _, e := range theirs.Entries() {
				read := func(s *safetensors.Set) []float32 {
					got, err := s.Tensor(e.Name)
					require.NoError(t, err)
					require.Equal(t, dtype.F32, got.DType)
					raw := make([]byte, got.Bytes())
					require.NoError(t, s.ReadRegion(e.Name, sharding.Whole(e.Shape), raw))
					return floats(raw)
				}
				requireNear(t, read(theirs), read(ours), 2e-7, e.Name)
			}
			// The export begins a run in turn.
			next := override(recipe(t, data, append(set, "model.hf_assets_path="+out)...))
			run(t, next)
			require.InDelta(t, curve(t, r, loss, 1)[0], curve(t, next, loss, 1)[0], 1e-5)
		})
	}
}
