package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSet(t *testing.T) {
	write(t, map[string]string{"run.toml": small + "[data]\nsources = [{ path = \"a\" }, { path = \"b\" }]\n"})
	for set, want := range map[string]string{ // a line of the printed recipe
		"model.flavor=8B":                                          `flavor = "8B"`,
		" model.flavor = '8B' ":                                    `flavor = "8B"`,
		`model.flavor="8B"`:                                        `flavor = "8B"`,
		"job.description=8":                                        `description = "8"`,
		"job.description=1_0":                                      `description = "1_0"`,
		"job.description=true":                                     `description = "true"`,
		"job.description=2026-08-01":                               `description = "2026-08-01"`,
		"job.description=a = b # c":                                `description = "a = b # c"`,
		"job.description=":                                         `description = ""`,
		"job.description=1\nsteps = 3":                             `description = "1\nsteps = 3"`,
		"training={ steps = 3 }":                                   "steps = 3",
		"training.steps=5 # five":                                  "steps = 5",
		"data.sources=[{path='c'}]":                                `path = "c"`,
		"data.sources[1].path=c":                                   `path = "c"`,
		"data.sources[1]={path='c'}":                               `path = "c"`,
		"optimizer.lr=1":                                           "lr = 1.0",
		"activation_checkpoint.selective_ac_option=4":              `selective_ac_option = "4"`,
		"checkpoint.exclude_from_loading=[\"optimizer\"]":          `exclude_from_loading = ["optimizer"]`,
		"model={name=\"qwen3_moe\",override={mlp_only_layers=[]}}": "mlp_only_layers = []",
	} {
		r, _, err := Load("run.toml", []string{set})
		require.NoError(t, err, set)
		require.Contains(t, "\n"+r.TOML(nil), "\n"+want+"\n", set)
	}
	for set, says := range map[string]string{
		"":                       `--set "": there is no =`,
		"training.steps":         "--set training.steps: there is no =; write --set section.key=value",
		"=5":                     `"" is no key`,
		"training..steps=5":      `"training..steps" is no key`,
		"training.steps.=5":      `is no key`,
		"training steps=5":       `is no key`,
		"training.steps[x]=5":    `is no key`,
		"training.steps=":        "training.steps: expected an integer, got nothing",
		"training.steps=abc":     "training.steps: expected an integer; abc is none",
		"training.steps=1.5":     "training.steps: expected an integer, got the number 1.5",
		"training.steps=1e3":     "training.steps: expected an integer, got the number 1000.0; write 1000",
		"training.steps=\"5\"":   "training.steps: expected an integer, got the string \"5\"",
		"training.steps={a=1}":   "training.steps: expected an integer, got a table",
		"training.steps.x=1":     "training.steps: expected an integer, got a table",
		"training=5":             "training: expected a table, got the integer 5",
		"steps=5":                "--set steps=5: steps: unknown key here; it belongs in [training] or [validation]",
		"training.stepz=5":       `--set training.stepz=5: training.stepz: unknown key; did you mean "steps"?`,
		"trainin.steps=5":        `trainin: unknown section; did you mean "training"?`,
		"extends=x":              "--set extends=x: extends: cannot be set here; name the other recipe with --config",
		"data.sources[2].path=c": "data.sources[2]: the recipe has 2 of data.sources, counted from 0",
		"data.sources[0][1]=c":   "is no key",
		"data.sources.path=c":    "data.sources: is an array: say which element, data.sources[0] to data.sources[1]",
		"data.sources[0]=5":      "data.sources[0]: expected a table, got the integer 5",
		"training.steps[0]=5":    "training.steps[0]: the recipe has 0 of training.steps, counted from 0",
		"data.sources=a":         "data.sources: expected an array of tables; a is none",
		"checkpoint.exclude_from_loading=optimizer": `expected an array of strings; optimizer is none; write ["optimizer"]`,
		"optimizer.lr=\xff":                         "is not UTF-8",
		"training.unroll_layers=yes":                "expected true or false; yes is none",
		"training.steps=99999999999999999999":       "expected an integer; 99999999999999999999 is none",
		"optimizer.lr=nan":                          "optimizer.lr: is nan and must be a finite number",
		"optimizer.lr=1e39":                         "optimizer.lr: is 1e+39, beyond what float32 holds",
		"training.steps=five, and much more than would fit into a line of the terminal": "--set training.steps=five, and much more than would fit into a lin…: ",
	} {
		_, _, err := Load("run.toml", []string{set, "checkpoint.interval=0"})
		require.ErrorContains(t, err, says, set)
		require.ErrorContains(t, err, "checkpoint.interval: is 0", "the other mistakes are reported too")
	}
}
