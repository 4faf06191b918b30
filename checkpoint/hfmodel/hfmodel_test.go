package hfmodel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/models/decoder"
	"titan/models/hfconfig"
	"titan/sharding"
)

const golden = "../../models/decoder/testdata/golden"

var ctx = context.Background()

// Written down by hand from the configurations, to check what reads them.
func goldenModels() map[string]struct {
	family string
	config decoder.Config
} {
	llama := decoder.Config{VocabSize: 256, Dim: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, HiddenDim: 128, MaxSeqLen: 128, NormEps: 1e-5, RopeTheta: 500000}
	rope3 := llama
	rope3.MaxSeqLen = 256
	rope3.RopeScaling = &decoder.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxSeqLen: 32}
	qwen := llama
	qwen.NormEps, qwen.RopeTheta, qwen.QKNorm = 1e-6, 1e6, true
	tied, moe := qwen, qwen
	tied.TieEmbeddings = true
	moe.MoE = &decoder.MoE{Experts: 8, TopK: 2, HiddenDim: 32, NormTopK: true, SparseStep: 1, AuxLossCoef: 0.001}
	return map[string]struct {
		family string
		config decoder.Config
	}{
		"llama": {"llama3", llama}, "llama_rope3": {"llama3", rope3}, "qwen3_untied": {"qwen3", qwen},
		"qwen3_tied": {"qwen3", tied}, "qwen3_moe": {"qwen3_moe", moe},
	}
}

// directory makes a repository of a golden case, with a config.json of either style.
func directory(t *testing.T, name, config string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	copyFile(t, filepath.Join(golden, name, config), filepath.Join(dir, "config.json"))
	copyFile(t, filepath.Join(golden, name, "model.safetensors"), filepath.Join(dir, "model.safetensors"))
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o644))
}

// edit changes keys of a config.json; nil removes one.
func edit(t *testing.T, dir string, keys map[string]any) {
	t.Helper()
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var o map[string]any
	require.NoError(t, json.Unmarshal(data, &o))
	for k, v := range keys {
		if o[k] = v; v == nil {
			delete(o, k)
		}
	}
	data, err = json.Marshal(o)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

func open(t *testing.T, dir string) *Model {
	t.Helper()
	m, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func readAll(t *testing.T, src safetensors.Source) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, e := range src.Entries() {
		out[e.Name] = make([]byte, e.Bytes())
		require.NoError(t, src.ReadRegion(e.Name, sharding.Whole(e.Shape), out[e.Name]), e.Name)
	}
	return out
}

// sameFiles requires that two directories have the same tensors under the same
// names, shapes and types, bit for bit.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	x, err := safetensors.OpenModel(a)
	require.NoError(t, err)
	defer x.Close()
	y, err := safetensors.OpenModel(b)
	require.NoError(t, err)
	defer y.Close()
	byName := func(s *safetensors.Set) []safetensors.Entry {
		e := s.Entries()
		for i := range e {
			e[i].Shape = append([]int{}, e[i].Shape...)
		}
		slices.SortFunc(e, func(a, b safetensors.Entry) int { return compareStrings(a.Name, b.Name) })
		return e
	}
	require.Equal(t, byName(x), byName(y))
	require.Equal(t, readAll(t, x), readAll(t, y))
}

func compareStrings(a, b string) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// Both styles of config.json give the model, its weights come out as they went
// in, and so does the description.
func TestGoldenRoundTrip(t *testing.T) {
	for name, want := range goldenModels() {
		for _, config := range []string{"config.json", "config_hub.json"} {
			t.Run(name+"/"+config, func(t *testing.T) {
				dir := directory(t, name, config)
				m := open(t, dir)
				require.Equal(t, want.family, m.Family)
				require.Equal(t, want.config, m.Config)
				require.Equal(t, hfconfig.Tokens{BOS: []int{1}, EOS: []int{2}}, m.Tokens)
				require.Equal(t, dtype.F32, m.DType)
				require.Empty(t, m.Notes)
				require.NoError(t, m.Check(want.family, want.config))
				ours, err := m.Tensors(dtype.F32)
				require.NoError(t, err)
				require.Equal(t, Entries(want.config, dtype.F32), ours.Entries())

				out := filepath.Join(t.TempDir(), "out")
				require.NoError(t, Export(ctx, out, m.Family, m.Config, ours, ExportOptions{DType: dtype.F32, Tokens: m.Tokens}))
				sameFiles(t, dir, out)
				back := open(t, out)
				require.Equal(t, want.config, back.Config)
				require.Equal(t, m.Tokens, back.Tokens)
				require.Empty(t, back.Notes)
				_, _, generation, _, err := ReadConfig(out)
				require.NoError(t, err)
				require.Equal(t, m.Tokens, generation)
			})
		}
	}
}

// The elements end up where the model wants them: [in, out], heads apart, and
// stacked. Checked element by element without the table.
func TestLayout(t *testing.T) {
	m := open(t, directory(t, "qwen3_moe", "config.json"))
	src, err := m.Tensors(dtype.F32)
	require.NoError(t, err)
	ours, theirs := readAll(t, src), readAll(t, m.set)
	at := func(data []byte, shape []int, index ...int) float32 {
		i := 0
		for d, s := range shape {
			i = i*s + index[d]
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	same := func(theirs, ours float32) {
		if theirs != ours {
			require.Equal(t, theirs, ours)
		}
	}
	const D, H, K, h, F, E, V = 64, 4, 2, 16, 32, 8, 256
	layer := func(l int, name string) []byte {
		data, ok := theirs[fmt.Sprintf("model.layers.%d.%s.weight", l, name)]
		require.True(t, ok, name)
		return data
	}
	for l := range 2 {
		for d := range D {
			same(at(layer(l, "input_layernorm"), []int{D}, d), at(ours["layers.attn_norm"], []int{2, D}, l, d))
			same(at(layer(l, "post_attention_layernorm"), []int{D}, d), at(ours["layers.ffn_norm"], []int{2, D}, l, d))
			for k := range h {
				for n := range H {
					same(at(layer(l, "self_attn.q_proj"), []int{H * h, D}, n*h+k, d), at(ours["layers.wq"], []int{2, D, H, h}, l, d, n, k))
					same(at(layer(l, "self_attn.o_proj"), []int{D, H * h}, d, n*h+k), at(ours["layers.wo"], []int{2, H, h, D}, l, n, k, d))
				}
				for n := range K {
					same(at(layer(l, "self_attn.k_proj"), []int{K * h, D}, n*h+k, d), at(ours["layers.wk"], []int{2, D, K, h}, l, d, n, k))
					same(at(layer(l, "self_attn.v_proj"), []int{K * h, D}, n*h+k, d), at(ours["layers.wv"], []int{2, D, K, h}, l, d, n, k))
				}
			}
			for e := range E {
				same(at(layer(l, "mlp.gate"), []int{E, D}, e, d), at(ours["layers.router"], []int{2, D, E}, l, d, e))
				for f := range F {
					expert := func(name string) []byte { return layer(l, fmt.Sprintf("mlp.experts.%d.%s", e, name)) }
					same(at(expert("gate_proj"), []int{F, D}, f, d), at(ours["layers.experts.w_gate"], []int{2, E, D, F}, l, e, d, f))
					same(at(expert("up_proj"), []int{F, D}, f, d), at(ours["layers.experts.w_up"], []int{2, E, D, F}, l, e, d, f))
					same(at(expert("down_proj"), []int{D, F}, d, f), at(ours["layers.experts.w_down"], []int{2, E, F, D}, l, e, f, d))
				}
			}
		}
		for k := range h {
			same(at(layer(l, "self_attn.q_norm"), []int{h}, k), at(ours["layers.q_norm"], []int{2, h}, l, k))
			same(at(layer(l, "self_attn.k_norm"), []int{h}, k), at(ours["layers.k_norm"], []int{2, h}, l, k))
		}
	}
	require.Equal(t, theirs["model.embed_tokens.weight"], ours["embed"])
	require.Equal(t, theirs["model.norm.weight"], ours["norm"])
	for v := range V {
		same(at(theirs["lm_head.weight"], []int{V, D}, v, 7), at(ours["output"], []int{D, V}, 7, v))
	}
}

// Gradients and final weights of the reference are seen the same way.
func TestView(t *testing.T) {
	for name, want := range goldenModels() {
		for _, file := range []string{"grads.safetensors", "final.safetensors"} {
			f, err := safetensors.Open(filepath.Join(golden, name, file))
			require.NoError(t, err)
			src, err := View(want.family, want.config, f.Name(), f, dtype.F32)
			require.NoError(t, err)
			require.Equal(t, Entries(want.config, dtype.F32), src.Entries())
			require.NoError(t, f.Close())
		}
	}
	_, err := View("lama3", decoder.Config{}, "x", nil, dtype.F32)
	require.ErrorContains(t, err, `there is no model "lama3"; did you mean "llama3"?`)
	_, err = View("llama3", goldenModels()["llama"].config, "x", nil, dtype.S32)
	require.ErrorContains(t, err, "not a floating point type")
}

// synthetic makes the parameters of a model, every element another.
type synthetic struct {
	entries []safetensors.Entry
	data    map[string][]byte
}

func newSynthetic(c decoder.Config) *synthetic {
	s := &synthetic{entries: Entries(c, dtype.F32), data: map[string][]byte{}}
	n := 0
	for _, e := range s.entries {
		var out []byte
		for range e.Bytes() / 4 {
			out = dtype.AppendFloat(out, dtype.F32, float64(n))
			n++
		}
		s.data[e.Name] = out
	}
	return s
}

func (s *synthetic) Entries() []safetensors.Entry {
	return append(slices.Clone(s.entries), safetensors.Entry{Name: "optim.m.embed", DType: dtype.F32, Shape: []int{3}})
}

func (s *synthetic) ReadRegion(name string, r sharding.Region, dst []byte) error {
	for _, e := range s.entries {
		if e.Name == name {
			return sharding.CopyRegion(dst, r, s.data[name], sharding.Whole(e.Shape), 4)
		}
	}
	return fmt.Errorf("no %q", name)
}

// Layers with and without experts are stacked apart, and go to their own numbers.
func TestMixedLayers(t *testing.T) {
	for name, c := range map[string]struct {
		only   []int
		step   int
		sparse []int
	}{
		"every": {nil, 1, []int{0, 1, 2, 3, 4, 5}}, "step": {nil, 2, []int{1, 3, 5}},
		"only": {[]int{0, 4}, 1, []int{1, 2, 3, 5}}, "both": {[]int{3}, 2, []int{1, 5}}, "step 3": {nil, 3, []int{2, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			m := goldenModels()["qwen3_moe"].config
			m.Layers = 6
			e := *m.MoE
			e.MLPOnlyLayers, e.SparseStep, e.Experts, e.NormTopK = c.only, c.step, 3, false
			m.MoE = &e
			ours := newSynthetic(m)
			dir := filepath.Join(t.TempDir(), "out")
			require.NoError(t, Export(ctx, dir, "qwen3_moe", m, ours, ExportOptions{}))
			back := open(t, dir)
			require.Equal(t, m, back.Config)
			require.Equal(t, dtype.F32, back.DType)
			src, err := back.Tensors(dtype.F32)
			require.NoError(t, err)
			require.Equal(t, ours.data, readAll(t, src))
			var sparse []int
			for l := range 6 {
				_, gate := back.set.Tensor(fmt.Sprintf("model.layers.%d.mlp.gate.weight", l))
				_, expert := back.set.Tensor(fmt.Sprintf("model.layers.%d.mlp.experts.2.down_proj.weight", l))
				_, dense := back.set.Tensor(fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", l))
				require.Equal(t, gate == nil, expert == nil)
				require.NotEqual(t, gate == nil, dense == nil)
				if gate == nil {
					sparse = append(sparse, l)
				}
			}
			require.Equal(t, c.sparse, sparse)
		})
	}
}

func TestShardedAndRounded(t *testing.T) {
	dir := directory(t, "qwen3_moe", "config_hub.json")
	m := open(t, dir)
	ours, err := m.Tensors(dtype.F32)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "sharded")
	require.NoError(t, Export(ctx, out, m.Family, m.Config, ours, ExportOptions{DType: dtype.F32, MaxShardSize: 200_000}))
	require.FileExists(t, filepath.Join(out, safetensors.IndexName))
	require.FileExists(t, filepath.Join(out, safetensors.ShardName(0, 4)))
	sameFiles(t, dir, out)
	// Read in shards: the same weights.
	again, err := open(t, out).Tensors(dtype.F32)
	require.NoError(t, err)
	require.Equal(t, readAll(t, ours), readAll(t, again))

	half := filepath.Join(t.TempDir(), "bf16")
	require.NoError(t, Export(ctx, half, m.Family, m.Config, ours, ExportOptions{DType: dtype.BF16}))
	b := open(t, half)
	require.Equal(t, dtype.BF16, b.DType)
	raw, err := os.ReadFile(filepath.Join(half, "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(raw), `"torch_dtype": "bfloat16"`)
	rounded, err := b.Tensors(dtype.F32)
	require.NoError(t, err)
	want, got := readAll(t, ours), readAll(t, rounded)
	for name, data := range want {
		for i := range len(data) / 4 {
			x := float32(dtype.Float(dtype.F32, data, i))
			r := dtype.Float(dtype.BF16, dtype.AppendFloat(nil, dtype.BF16, float64(x)), 0)
			require.Equal(t, r, dtype.Float(dtype.F32, got[name], i), "%s %d", name, i)
		}
	}
	require.Error(t, Export(ctx, filepath.Join(t.TempDir(), "x"), m.Family, m.Config, ours, ExportOptions{DType: dtype.F64}))
}

func TestTied(t *testing.T) {
	// One that stores its output layer nevertheless.
	with := func(t *testing.T, change bool) string {
		dir := directory(t, "qwen3_tied", "config.json")
		path := filepath.Join(dir, "model.safetensors")
		f, err := safetensors.Open(filepath.Join(golden, "qwen3_tied", "model.safetensors"))
		require.NoError(t, err)
		defer f.Close()
		embed, err := f.Tensor(embedName)
		require.NoError(t, err)
		head := embed.Entry
		head.Name = headName
		entries := append(f.Entries(), head)
		require.NoError(t, safetensors.WriteFile(path, entries, nil, func(name string, r sharding.Region, dst []byte) error {
			if name != headName {
				return f.ReadRegion(name, r, dst)
			}
			err := f.ReadRegion(embedName, r, dst)
			if change && r.Offset[0]+r.Size[0] == embed.Shape[0] {
				dst[len(dst)-1] ^= 1
			}
			return err
		}))
		return dir
	}
	m := open(t, with(t, false))
	src, err := m.Tensors(dtype.F32)
	require.NoError(t, err)
	require.NotContains(t, readAll(t, src), "output")
	out := filepath.Join(t.TempDir(), "out")
	require.NoError(t, Export(ctx, out, m.Family, m.Config, src, ExportOptions{DType: dtype.F32}))
	sameFiles(t, filepath.Join(golden, "qwen3_tied"), out)

	dir := with(t, true)
	_, err = open(t, dir).Tensors(dtype.F32)
	require.ErrorContains(t, err, "says tie_word_embeddings true, but lm_head.weight is not model.embed_tokens.weight")
	edit(t, dir, map[string]any{"tie_word_embeddings": false}) // as the error says
	_, err = open(t, dir).Tensors(dtype.F32)
	require.NoError(t, err)

	dir = directory(t, "qwen3_tied", "config.json")
	edit(t, dir, map[string]any{"tie_word_embeddings": nil})
	_, err = Open(dir)
	require.ErrorContains(t, err, `"lm_head.weight" is missing`)
	require.ErrorContains(t, err, "it must say true")
}

func TestOpenFaults(t *testing.T) {
	for name, c := range map[string]struct {
		keys map[string]any
		says string
	}{
		"shape":      {map[string]any{"intermediate_size": 127}, `"model.layers.0.mlp.gate_proj.weight" has shape [128 64], the model wants [127 64]`},
		"layers":     {map[string]any{"num_hidden_layers": 3}, `"model.layers.2.input_layernorm.weight" is missing`},
		"too many":   {map[string]any{"num_hidden_layers": 1}, `the model has no place for "model.layers.1.`},
		"other kind": {map[string]any{"model_type": "qwen3", "architectures": nil}, `"model.layers.0.self_attn.q_norm.weight" is missing`},
		"unknown":    {map[string]any{"model_type": "qwen2"}, `model_type: is "qwen2", which titan does not have; did you mean "qwen3"?`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, "llama", "config.json")
			edit(t, dir, c.keys)
			_, err := Open(dir)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, dir)
		})
	}
	_, err := Open(t.TempDir())
	require.ErrorContains(t, err, "has no config.json")
	dir := directory(t, "llama", "config.json")
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	_, err = Open(dir)
	require.ErrorContains(t, err, "model.safetensors")

	dir = directory(t, "llama", "config.json")
	edit(t, dir, map[string]any{"logit_scale": 3, "_name_or_path": "x"})
	require.Len(t, open(t, dir).Notes, 1)
	require.Contains(t, open(t, dir).Notes[0], "not used: logit_scale")
}

func TestCheck(t *testing.T) {
	m := open(t, directory(t, "qwen3_moe", "config.json"))
	require.ErrorContains(t, m.Check("qwen3", m.Config), "has a model of the family qwen3_moe, the recipe's is qwen3")
	c := m.Config
	e := *c.MoE
	c.MoE = &e
	c.MaxSeqLen, e.AuxLossCoef, e.ZLossCoef, c.HiddenDim = 1, 2, 3, 4 // nothing depends on these
	require.NoError(t, m.Check("qwen3_moe", c))

	c.VocabSize, c.Dim, c.Layers, c.Heads, c.KVHeads, c.HeadDim = 512, 32, 3, 8, 8, 8
	c.NormEps, c.RopeTheta, c.TieEmbeddings, c.QKNorm = 1e-5, 10000, true, false
	c.RopeScaling = &decoder.RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxSeqLen: 32}
	e.Experts, e.TopK, e.HiddenDim, e.NormTopK = 16, 4, 8, false
	err := m.Check("qwen3_moe", c)
	for _, says := range []string{
		"vocab_size 256, vocab_size 512", "hidden_size 64, dim 32", "num_hidden_layers 2, n_layers 3", "num_attention_heads 4, n_heads 8",
		"num_key_value_heads 2, n_kv_heads 8", "head_dim 16, head_dim 8", "rms_norm_eps 1e-06, norm_eps 1e-05", "rope_theta 1e+06, rope_theta 10000",
		"rope_scaling none, rope_scaling llama3 (factor 8", "tie_word_embeddings false, tie_embeddings true", "qk_norm false",
		"num_experts 8, n_experts 16", "num_experts_per_tok 2, top_k 4", "moe_intermediate_size 32, moe_hidden_dim 8", "norm_topk_prob true, norm_topk_prob false",
	} {
		require.ErrorContains(t, err, says)
	}
	c = m.Config
	e = *m.Config.MoE
	c.MoE = &e
	e.MLPOnlyLayers = []int{1}
	err = m.Check("qwen3_moe", c)
	require.ErrorContains(t, err, "layers without experts [], mlp_only_layers and decoder_sparse_step leave [1]")
}

// What fails leaves nothing behind.
func TestExportFaults(t *testing.T) {
	c := goldenModels()["llama"].config
	for name, f := range map[string]func(dir string) error{
		"family": func(dir string) error { return Export(ctx, dir, "gpt", c, newSynthetic(c), ExportOptions{}) },
		"no such class": func(dir string) error {
			c := c
			c.QKNorm = true
			return Export(ctx, dir, "llama3", c, newSynthetic(c), ExportOptions{})
		},
		"missing tensor": func(dir string) error {
			s := newSynthetic(c)
			s.entries = s.entries[:5]
			return Export(ctx, dir, "llama3", c, s, ExportOptions{})
		},
		"no tokenizer": func(dir string) error {
			return Export(ctx, dir, "llama3", c, newSynthetic(c), ExportOptions{Tokenizer: t.TempDir()})
		},
		"token": func(dir string) error {
			return Export(ctx, dir, "llama3", c, newSynthetic(c), ExportOptions{Tokens: hfconfig.Tokens{EOS: []int{256}}})
		},
		"cancelled": func(dir string) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return Export(ctx, dir, "llama3", c, newSynthetic(c), ExportOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			require.Error(t, f(filepath.Join(parent, "out")))
			list, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Empty(t, list)
		})
	}
}
