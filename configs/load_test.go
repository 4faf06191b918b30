package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// write puts files into an empty folder, which becomes the working directory.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

const small = "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"

func TestInheritance(t *testing.T) {
	write(t, map[string]string{
		"run.toml": `extends = "base/middle.toml"
[training]
steps = 3
[optimizer]
lr = 1e-3
[[optimizer.param_groups]]
pattern = "norm$"
weight_decay = 0
`,
		"base/middle.toml": `extends = "root.toml"
training = { steps = 2, seq_len = 128 }
[[optimizer.param_groups]]
pattern = "embed"
[[optimizer.param_groups]]
pattern = "output"
[activation_checkpoint]
save = ["q"]
`,
		"base/root.toml": small + `override.n_layers = 3
[training]
steps = 1
seq_len = 64
local_batch_size = 2
[activation_checkpoint]
save = ["k", "v"]
`,
	})
	r, o, err := Load("run.toml", []string{"training.steps=4", "optimizer.param_groups[0].lr = 0.5", "training.steps=5"})
	require.NoError(t, err)
	require.Equal(t, []string{"run.toml", "base/middle.toml", "base/root.toml"}, o.Files)
	require.Equal(t, 5, r.Training.Steps, "the last --set counts")
	require.Equal(t, 128, r.Training.SeqLen)
	require.Equal(t, 2, r.Training.LocalBatchSize)
	require.Equal(t, 1.0, r.Training.MaxNorm)
	require.Equal(t, []string{"q"}, r.ActivationCheckpoint.Save, "arrays are replaced")
	require.Len(t, r.Optimizer.ParamGroups, 1, "arrays of tables are replaced")
	require.Equal(t, "norm$", r.Optimizer.ParamGroups[0].Pattern)
	require.Equal(t, 0.5, *r.Optimizer.ParamGroups[0].LR)
	require.Equal(t, 0.0, *r.Optimizer.ParamGroups[0].WeightDecay)
	require.Nil(t, r.Optimizer.ParamGroups[0].Beta1)
	m, err := r.Decoder()
	require.NoError(t, err)
	require.Equal(t, 3, m.Layers)

	for key, want := range map[string]string{
		"training.steps":                         "--set training.steps=5",
		"training.seq_len":                       "base/middle.toml:2",
		"training.local_batch_size":              "base/root.toml:8",
		"training.max_norm":                      "default",
		"optimizer.lr":                           "run.toml:5",
		"optimizer.param_groups[0].pattern":      "run.toml:7",
		"optimizer.param_groups[0].lr":           "--set optimizer.param_groups[0].lr = 0.5",
		"model.override.n_layers":                "base/root.toml:4",
		"activation_checkpoint.save":             "base/middle.toml:8",
		"nothing.like.it":                        "default",
		"optimizer.param_groups[0].weight_decay": "run.toml:8",
	} {
		require.Equal(t, want, o.Of(key).String(), key)
	}
	require.Equal(t, Place{}, (*Origins)(nil).Of("training.steps"))
}

// What is printed is a recipe that says the same.
func TestPrintedRecipeReadsBack(t *testing.T) {
	const text = small + `override = { n_layers = 2, qk_norm = true, rope_theta = 1e4 }
[job]
description = "a \"quoted\" \\ text\nof two lines \u0001 \u007f é 🙂\ttab"
[data]
sources = [{ path = "a", weight = 0.25 }, { path = 'b\c', weight = 3 }]
[optimizer]
eps = 1e-30
[[optimizer.param_groups]]
pattern = "norm"
beta1 = 0.5
[lr_scheduler]
decay_ratio = 0.8
[debug]
seed = 9223372036854775807
[activation_checkpoint]
save = []
`
	write(t, map[string]string{"run.toml": text})
	r, o, err := Load("run.toml", []string{"training.max_norm=3"})
	require.NoError(t, err)
	require.Equal(t, "a \"quoted\" \\ text\nof two lines \x01 \x7f é 🙂\ttab", r.Job.Description)
	for _, origins := range []*Origins{nil, o} {
		require.NoError(t, os.WriteFile("again.toml", []byte(r.TOML(origins)), 0o644))
		again, _, err := Load("again.toml", nil)
		require.NoError(t, err)
		require.Equal(t, r, again)
		require.Equal(t, r.Hash(), again.Hash())
	}
	require.Contains(t, r.TOML(o), "  # --set training.max_norm=3\n")
	require.Contains(t, r.TOML(o), "weight = 0.25  # run.toml:8\n\n[[data.sources]]\n")
	require.NotContains(t, r.TOML(nil), "  #")

	other, _, err := Load("run.toml", []string{"training.max_norm=4"})
	require.NoError(t, err)
	require.NotEqual(t, r.Hash(), other.Hash())
}

// The same recipe, however it is written down.
func TestSpellings(t *testing.T) {
	write(t, map[string]string{"plain.toml": small + "[training]\nsteps = 1000\nmax_norm = 2\n"})
	want, _, err := Load("plain.toml", nil)
	require.NoError(t, err)
	plain := small + "[training]\nsteps = 1_000\nmax_norm = 2.0\n"
	for name, text := range map[string]string{
		"crlf":   strings.ReplaceAll(plain, "\n", "\r\n"),
		"bom":    "\ufeff" + plain,
		"dotted": "model.name = 'llama3'\nmodel.flavor = \"debugmodel\"\ntraining.steps = 0x3e8\ntraining.max_norm = 0.2e1",
		"inline": "model = { name = \"llama3\", flavor = \"\"\"debugmodel\"\"\" }\n\"training\" = { 'steps' = +1000, max_norm = 2 } # end",
		"spaces": "  [ model ]\n\tname=\"llama3\"\n flavor =\t'debugmodel'\n\n[ training ] # x\nmax_norm=2 \nsteps=0b1111101000",
	} {
		require.NoError(t, os.WriteFile("x.toml", []byte(text), 0o644))
		got, _, err := Load("x.toml", nil)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	// Lines are counted in all of them.
	for name, text := range map[string]string{
		"crlf": "\r\n\r\n[training]\r\nstep = 1\r\n",
		"bom":  "\ufeff\n\n[training]\nstep = 1\n",
		"long": "job.description = \"\"\"\n\n\"\"\"\ntraining.step = 1\n",
		"deep": "training = { seq_len = 1,\n\n\n step = 1 }\n",
	} {
		require.NoError(t, os.WriteFile("x.toml", []byte(text), 0o644))
		_, _, err := Load("x.toml", nil)
		require.ErrorContains(t, err, "x.toml:4: training.step: unknown key", name)
	}
}

func TestWhichRecipe(t *testing.T) {
	write(t, map[string]string{
		"llama3_debug.toml":       "extends = \"llama3_debug\"\n[training]\nsteps = 7\n",
		"own.toml":                "extends = \"builtin:llama3_debug.toml\"\n",
		"sub/qwen3_debug/x":       "",
		"sub/of.toml":             "extends = \"qwen3_debug\"\n",
		"qwen3_moe_debug.toml/x":  "",
		"part.toml":               "extends = \"_debug\"\n" + small,
		"mine/run.toml":           "extends = \"../own.toml\"\n",
		"self/llama3_8b.toml":     "extends = \"llama3_8b.toml\"\n",
		"link/a.toml":             "extends = \"b.toml\"\n",
		"many/0.toml":             small,
		"un*usual[]/recepie.toml": small,
	})
	require.NoError(t, os.Symlink("a.toml", "link/b.toml"))
	long := ""
	for i := range maxChain + 1 {
		long = strings.Repeat("x", i+1)
		next := "extends = \"" + long + "x.toml\"\n"
		require.NoError(t, os.WriteFile("many/"+long+".toml", []byte(next), 0o644))
	}
	require.NoError(t, os.WriteFile("big.toml", make([]byte, maxRecipe+1), 0o644))
	for name, steps := range map[string]int{
		"llama3_debug":              400, // no such file
		"llama3_debug.toml":         7,   // a file
		"./llama3_debug.toml":       7,
		"builtin:llama3_debug":      400,
		"builtin:llama3_debug.toml": 400,
		"own.toml":                  400,
		"mine/run.toml":             400,
		"sub/of.toml":               400, // the folder of that name is no recipe
		"qwen3_moe_debug.toml":      400, // nor is this
		"part.toml":                 400,
	} {
		r, o, err := Load(name, nil)
		require.NoError(t, err, name)
		require.Equal(t, steps, r.Training.Steps, name)
		require.NotEmpty(t, o.Files)
	}
	for name, says := range map[string]string{
		"qwen3_moe_debg":         `--config: there is no file and no built-in recipe "qwen3_moe_debg"; did you mean "qwen3_moe_debug"?`,
		"qwen3_moe_debg.toml":    `did you mean "qwen3_moe_debug"?`,
		"./qwen3_moe_debg.toml":  `--config: qwen3_moe_debg.toml: no such file or directory; did you mean "qwen3_moe_debug.toml"?`,
		"sub/off.toml":           `--config: sub/off.toml: no such file or directory; did you mean "sub/of.toml"?`,
		"builtin:own":            `--config: there is no built-in recipe "own"; `,
		"builtin:../own":         `--config: there is no built-in recipe "../own"; `,
		"sub/qwen3_debug":        `--config: sub/qwen3_debug: is a directory, not a recipe`,
		"sub/":                   `is a directory`,
		".":                      `there is no file and no built-in recipe "."; known are "llama3_405b"`,
		"":                       `--config: is empty`,
		"self/llama3_8b.toml":    `self/llama3_8b.toml:1: extends: the recipe extends itself: self/llama3_8b.toml → self/llama3_8b.toml`,
		"link/a.toml":            `the recipe extends itself: link/a.toml → link/b.toml`,
		"many/x.toml":            `extends: more than 32 recipes build on each other`,
		"big.toml":               `big.toml: has more than 1048576 bytes and cannot be a recipe`,
		"un*usual[]/recipe.toml": `did you mean "un*usual[]/recepie.toml"?`,
		"nul\x00.toml":           `invalid argument`,
		"xyzzyxyzzy":             `known are "llama3_405b"`,
	} {
		_, _, err := Load(name, nil)
		require.ErrorContains(t, err, says, name)
	}
}

// Parents that are TOML's own mistakes are reported together with those of
// --set; mistakes of meaning with mistakes of meaning.
func TestAllAtOnce(t *testing.T) {
	write(t, map[string]string{
		"a.toml": "extends = \"b.toml\"\n[training]\nstepz = 1\nseq_len = 0\n",
		"b.toml": "[model]\nname = \"llama3\"\nflavour = \"8B\"\n[checkpoint]\ninterval = 0\n",
	})
	_, _, err := Load("a.toml", []string{"optimizer.lr=x", "training.steps = 0", "nonsense", "model.flavor=debugmodel"})
	var all *Error
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Problems, 7)
	require.EqualError(t, err, `the recipe has 7 mistakes:
  a.toml:3: training.stepz: unknown key; did you mean "steps"?
  a.toml:4: training.seq_len: is 0 and must be positive
  b.toml:3: model.flavour: unknown key; did you mean "flavor"?
  b.toml:5: checkpoint.interval: is 0 and must be positive
  --set nonsense: there is no =; write --set section.key=value
  --set optimizer.lr=x: optimizer.lr: expected a number; x is none
  --set training.steps = 0: training.steps: is 0 and must be positive`)
}
