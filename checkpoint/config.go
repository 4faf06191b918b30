package checkpoint

import (
	"errors"

	"titan/dtype"
	"titan/internal/recipekey"
)

// Config is the recipe's section [checkpoint].
type Config struct {
	Enable    bool   `toml:"enable" doc:"save checkpoints, and go on from the last one when the run starts again"`
	Folder    string `toml:"folder" doc:"where they are, in job.dump_folder unless absolute"`
	Interval  int    `toml:"interval" doc:"steps between two checkpoints"`
	FirstStep bool   `toml:"enable_first_step_checkpoint" doc:"save after the first step too, to find out early whether it can be done"`
	KeepLast  int    `toml:"keep_latest_k" doc:"complete checkpoints that are kept; 0: all"`
	AsyncMode string `toml:"async_mode" doc:"disabled: training waits for the save; async: the save goes on beside training"`

	LoadStep           int      `toml:"load_step" doc:"step of the checkpoint to go on from; -1: the last one"`
	Fallback           bool     `toml:"fallback" doc:"if that checkpoint is damaged, use the complete one before it instead of stopping"`
	Verify             bool     `toml:"verify" doc:"check all of a checkpoint before it is used, not only what is read of it"`
	ExcludeFromLoading []string `toml:"exclude_from_loading" doc:"what is not restored: optimizer (moments begin at 0), train_state (steps, and with them data and learning rate, begin at 0)"`

	InitialLoadPath      string `toml:"initial_load_path" doc:"checkpoint or Hugging Face folder to begin from, where checkpoint.folder has none yet"`
	InitialLoadModelOnly bool   `toml:"initial_load_model_only" doc:"take only the parameters from it"`
	InitialLoadInHF      bool   `toml:"initial_load_in_hf" doc:"it is a Hugging Face folder; without initial_load_path it is model.hf_assets_path"`

	LastSaveModelOnly bool   `toml:"last_save_model_only" doc:"the checkpoint after the last step has the parameters only, so training cannot go on from it"`
	LastSaveInHF      bool   `toml:"last_save_in_hf" doc:"after the last step also write the model in Hugging Face layout"`
	ExportDType       string `toml:"export_dtype" doc:"element type of parameters in a last save of the model only or in Hugging Face layout: float32, bfloat16 or float16"`
}

// DefaultConfig returns the values of [checkpoint] in a recipe that does not set
// them.
func DefaultConfig() Config {
	return Config{
		Folder: "checkpoint", Interval: 500, KeepLast: 10, AsyncMode: "disabled",
		LoadStep: Latest, InitialLoadModelOnly: true, ExportDType: "float32",
	}
}

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	var errs []error
	add := func(key, format string, args ...any) {
		errs = append(errs, recipekey.Errorf("checkpoint."+key, format, args...))
	}
	if c.Folder == "" {
		add("folder", "is empty and must name a folder")
	}
	errs = append(errs,
		recipekey.Positive("checkpoint.interval", c.Interval),
		recipekey.OneOf("checkpoint.async_mode", c.AsyncMode, "disabled", "async"))
	if c.KeepLast < 0 {
		add("keep_latest_k", "is %d and must be positive, or 0 to keep all", c.KeepLast)
	}
	if c.LoadStep < Latest {
		add("load_step", "is %d and must be a step, or -1 for the last checkpoint", c.LoadStep)
	}
	for i, what := range c.ExcludeFromLoading {
		key := recipekey.Index("checkpoint.exclude_from_loading", i)
		if what == "lr_scheduler" || what == "dataloader" {
			errs = append(errs, recipekey.Errorf(key, "%q has no state of its own, it follows from the step; exclude \"train_state\"", what))
			continue
		}
		errs = append(errs, recipekey.OneOf(key, what, "optimizer", "train_state"))
	}
	if d, err := dtype.Parse(c.ExportDType); err != nil || d != dtype.F32 && d != dtype.BF16 && d != dtype.F16 {
		add("export_dtype", "is %q and must be float32, bfloat16 or float16", c.ExportDType)
	}
	if c.InitialLoadInHF && !c.InitialLoadModelOnly {
		add("initial_load_model_only", "is false, but initial_load_in_hf is set and a Hugging Face folder has nothing but the model")
	}
	if !c.Enable {
		// What would be silently without effect.
		for _, k := range []struct {
			key string
			set bool
		}{
			{"load_step", c.LoadStep != Latest}, {"initial_load_path", c.InitialLoadPath != ""}, {"initial_load_in_hf", c.InitialLoadInHF},
			{"last_save_in_hf", c.LastSaveInHF}, {"enable_first_step_checkpoint", c.FirstStep},
		} {
			if k.set {
				add(k.key, "is set, but checkpoints are off; set checkpoint.enable = true or leave it out")
			}
		}
	}
	return errors.Join(errs...)
}
