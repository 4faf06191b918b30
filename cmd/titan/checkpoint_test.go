package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/checkpoint/storage"
	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

const goldenModels = "../../models/decoder/testdata/golden/"

// goldenRepository makes a directory as Transformers writes it.
func goldenRepository(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(goldenModels + name + "/" + f)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), data, 0o644))
	}
	return dir
}

// saveGolden saves a golden model over a mesh of two, as training does, with a
// tensor that is not the model's.
func saveGolden(t *testing.T, repository, to string, state map[string]any, steps ...int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	m, err := hfmodel.Open(repository)
	require.NoError(t, err)
	defer m.Close()
	src, err := m.Tensors(dtype.F32)
	require.NoError(t, err)
	devices, err := mesh.New([]mesh.Axis{{Name: "dp_shard", Size: 2}}, nil)
	require.NoError(t, err)
	var tensors []checkpoint.Tensor
	for _, e := range src.Entries() {
		spec := sharding.P()
		if len(e.Shape) > 1 {
			spec = sharding.P(nil, "dp_shard")
		}
		tensors = append(tensors, checkpoint.Tensor{Name: e.Name, DType: e.DType, Shape: e.Shape, Spec: spec})
	}
	tensors = append(tensors, checkpoint.Tensor{Name: "optim.m.norm", DType: dtype.F32, Shape: []int{64}, Spec: sharding.P()})
	if state == nil {
		state = map[string]any{hfmodel.StateKey: hfmodel.Saved{Family: m.Family, Config: m.Config}}
	}
	fs, err := storage.Local(to)
	require.NoError(t, err)
	store, err := checkpoint.NewStore(fs, checkpoint.Options{})
	require.NoError(t, err)
	defer store.Close()
	for _, step := range steps {
		_, err = store.Save(context.Background(), checkpoint.Snapshot{
			Step: step, Mesh: devices, Tensors: tensors, State: state,
			Shard: func(_ context.Context, i, position int) ([]byte, error) {
				e := tensors[i]
				if i == len(tensors)-1 {
					return make([]byte, 256), nil
				}
				r := sharding.Whole(e.Shape)
				if len(e.Shape) > 1 {
					r.Size[1] /= 2
					r.Offset[1] = position * r.Size[1]
				}
				out := make([]byte, r.Elements()*4)
				return out, src.ReadRegion(e.Name, r, out)
			},
		})
		require.NoError(t, err)
	}
}

func TestCheckpointVerbs(t *testing.T) {
	repository, folder := goldenRepository(t, "qwen3_moe"), filepath.Join(t.TempDir(), "checkpoint")
	saveGolden(t, repository, folder, nil, 10, 20)

	code, out, stderr := titan(t, "checkpoint", "list", folder)
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `(?m)^STEP +STATUS +SIZE +SAVED +MESH +$`, out)
	require.Regexp(t, `(?m)^10 +complete +\d+\.\d kB +20\d\d-.* dp_shard=2 +$`, out)
	require.Regexp(t, `(?m)^20 +complete .* dp_shard=2 +latest$`, out)
	code, out, _ = titan(t, "checkpoint", "list", filepath.Join(folder, "step-00000010"))
	require.Equal(t, 0, code)
	require.NotContains(t, out, "\n20 ")

	for _, args := range [][]string{{folder}, {folder, "--step", "20"}, {filepath.Join(folder, "step-00000020")}} {
		code, out, stderr = titan(t, append([]string{"checkpoint", "verify"}, args...)...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "step 20 is complete and as it was saved\n", out)
	}

	to := filepath.Join(t.TempDir(), "export")
	code, out, stderr = titan(t, "checkpoint", "export", folder, "--step", "10", "--to", to)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "step 10 of "+folder+", a qwen3_moe in float32, is in "+to+"\nwithout a tokenizer; --tokenizer names one\n", out)
	sameWeights(t, repository, to)

	code, _, stderr = titan(t, "checkpoint", "export", folder, "--to", to)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "exists and is not empty")

	to = filepath.Join(t.TempDir(), "export")
	code, out, stderr = titan(t, "checkpoint", "export", folder, "--to", to, "--dtype", "bfloat16", "--max-shard-size", "100kB")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, out, "in bfloat16")
	m, err := hfmodel.Open(to)
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, dtype.BF16, m.DType)
	require.FileExists(t, filepath.Join(to, safetensors.IndexName))
}

func sameWeights(t *testing.T, a, b string) {
	t.Helper()
	x, err := safetensors.OpenModel(a)
	require.NoError(t, err)
	defer x.Close()
	y, err := safetensors.OpenModel(b)
	require.NoError(t, err)
	defer y.Close()
	require.Len(t, y.Entries(), len(x.Entries()))
	for _, e := range x.Entries() {
		want, err := x.Bytes(e.Name)
		require.NoError(t, err)
		got, err := y.Bytes(e.Name)
		require.NoError(t, err)
		require.Equal(t, want, got, e.Name)
	}
}

func TestCheckpointTokenizer(t *testing.T) {
	assets := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(assets, "tokenizer.json"), []byte(`{"added_tokens": [{"id": 7, "content": "<|end_of_text|>"}]}`), 0o644))
	repository, folder := goldenRepository(t, "llama"), filepath.Join(t.TempDir(), "checkpoint")
	m, err := hfmodel.Open(repository)
	require.NoError(t, err)
	defer m.Close()
	saveGolden(t, repository, folder, map[string]any{hfmodel.StateKey: hfmodel.Saved{Family: m.Family, Config: m.Config, Tokenizer: assets}}, 1)
	to := filepath.Join(t.TempDir(), "a")
	code, out, stderr := titan(t, "checkpoint", "export", folder, "--to", to)
	require.Equal(t, 0, code, stderr)
	require.NotContains(t, out, "tokenizer")
	require.FileExists(t, filepath.Join(to, "tokenizer.json"))
	raw, err := os.ReadFile(filepath.Join(to, "config.json"))
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, json.Unmarshal(raw, &config))
	require.Equal(t, 7.0, config["eos_token_id"])

	require.NoError(t, os.RemoveAll(assets))
	code, out, stderr = titan(t, "checkpoint", "export", folder, "--to", filepath.Join(t.TempDir(), "b"))
	require.Equal(t, 0, code, stderr)
	require.Contains(t, out, "without a tokenizer: "+assets+", where the run had it, is not there")
}

func TestCheckpointFaults(t *testing.T) {
	repository, folder := goldenRepository(t, "llama"), filepath.Join(t.TempDir(), "checkpoint")
	saveGolden(t, repository, folder, map[string]any{"data": 1}, 5)
	strange, broken := filepath.Join(t.TempDir(), "checkpoint"), filepath.Join(t.TempDir(), "checkpoint")
	saveGolden(t, repository, strange, map[string]any{"model": map[string]any{"later": 1, "family": "llama3", "config": map[string]any{"LoopCount": 3}}}, 5)
	saveGolden(t, repository, broken, map[string]any{"model": map[string]any{"family": "llama3", "config": map[string]any{}}}, 5)
	empty, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{2, []string{"list"}, "needs one folder of checkpoints"},
		{2, []string{"export", folder}, "needs --to"},
		{2, []string{"export", folder, "--to", to, "--dtype", "float23"}, `weights cannot be exported as "float23"; did you mean "float32"?`},
		{2, []string{"export", folder, "--to", to, "--max-shard-size", "0"}, "must be positive"},
		{2, []string{"verify", folder, "--step", "-2"}, "--step is -2"},
		{2, []string{"verify", filepath.Join(folder, "step-00000005"), "--step", "6"}, "but the path names step 5"},
		{1, []string{"list", empty}, "has no checkpoints"},
		{1, []string{"list", filepath.Join(empty, "no")}, "no such file"},
		{1, []string{"verify", folder, "--step", "6"}, "5"},
		{1, []string{"export", folder, "--to", to}, "does not say which model it is of"},
		{1, []string{"export", strange, "--to", to}, `its model is not one this version of titan knows: json: unknown field "LoopCount"`},
		{1, []string{"export", broken, "--to", to}, "its model cannot be: vocab_size is 0"},
	} {
		code, _, stderr := titan(t, append([]string{"checkpoint"}, c.args...)...)
		require.Equal(t, c.code, code, "%q: %s", c.args, stderr)
		require.Contains(t, stderr, c.says)
	}
	require.NoDirExists(t, to)

	// A damaged one is named by list and verify.
	files, err := filepath.Glob(filepath.Join(folder, "step-00000005", "*.safetensors"))
	require.NoError(t, err)
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), 100_000)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	code, _, stderr := titan(t, "checkpoint", "verify", folder)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, filepath.Base(files[0]))
	require.NoError(t, os.Truncate(files[0], 100))
	code, out, _ := titan(t, "checkpoint", "list", folder)
	require.Equal(t, 0, code)
	require.Regexp(t, `(?m)^5 +damaged`, out)
	require.Contains(t, out, filepath.Base(files[0]))
}
