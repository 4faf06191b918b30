package configs

import (
	"errors"
	"math"
	"path/filepath"
	"regexp"
	"strings"

	"titan/dtype"
	"titan/internal/recipekey"
)

// Job is the section [job].
type Job struct {
	DumpFolder     string `toml:"dump_folder" doc:"folder for all that a run writes"`
	Description    string `toml:"description" doc:"for people; shown when the run starts"`
	PrintConfig    bool   `toml:"print_config" doc:"show the resolved recipe when the run starts"`
	SaveConfigFile string `toml:"save_config_file" doc:"file in dump_folder that receives the resolved recipe; empty: none"`
}

func (j Job) validate() error {
	var errs []error
	if j.DumpFolder == "" {
		errs = append(errs, recipekey.Errorf("job.dump_folder", "is empty and must name a folder"))
	}
	if f := j.SaveConfigFile; f != "" && (!filepath.IsLocal(f) || filepath.Clean(f) == ".") {
		errs = append(errs, recipekey.Errorf("job.save_config_file", "is %q and must name a file below job.dump_folder", f))
	}
	return errors.Join(errs...)
}

// Training is the section [training].
type Training struct {
	Dataset     string `toml:"dataset" doc:"name of the data, for people"`
	DatasetPath string `toml:"dataset_path" doc:"dataset made by titan data prepare: PATH.bin and PATH.idx; a mixture of several is in [[data.sources]]"`

	LocalBatchSize  int     `toml:"local_batch_size" doc:"sequences that a device works on at a time"`
	GlobalBatchSize int     `toml:"global_batch_size" doc:"sequences of a step over all devices, a multiple of local_batch_size times the data-parallel devices: gradients of several passes are added up; -1: one pass"`
	SeqLen          int     `toml:"seq_len" doc:"tokens of a sequence"`
	MaxNorm         float64 `toml:"max_norm" doc:"the gradient is scaled down to this global norm; 0: it is not"`
	Steps           int     `toml:"steps" doc:"steps of the whole run, counted from its very beginning"`

	DType                string `toml:"dtype" doc:"element type of parameters and of what is kept for them: float32"`
	MixedPrecisionParam  string `toml:"mixed_precision_param" doc:"element type that parameters are gathered and multiplied in: bfloat16 or float32"`
	MixedPrecisionReduce string `toml:"mixed_precision_reduce" doc:"element type that gradients are added up in across devices: float32, or bfloat16 for half the traffic"`
	UnrollLayers         bool   `toml:"unroll_layers" doc:"write out every layer instead of one loop over them: longer compilation, at times a faster step"`
}

func (t Training) validate() error {
	errs := []error{
		limited("training.local_batch_size", t.LocalBatchSize),
		limited("training.seq_len", t.SeqLen),
		limited("training.steps", t.Steps),
		floatType("training.dtype", t.DType, "float32"),
		floatType("training.mixed_precision_param", t.MixedPrecisionParam, "bfloat16", "float32"),
		floatType("training.mixed_precision_reduce", t.MixedPrecisionReduce, "float32", "bfloat16"),
	}
	if t.GlobalBatchSize != -1 {
		errs = append(errs, limited("training.global_batch_size", t.GlobalBatchSize))
	}
	if !(t.MaxNorm >= 0) || math.IsInf(t.MaxNorm, 0) {
		errs = append(errs, recipekey.Errorf("training.max_norm", "is %g and must be positive, or 0 for no clipping", t.MaxNorm))
	}
	return errors.Join(errs...)
}

// Validation is the section [validation].
type Validation struct {
	Enable         bool   `toml:"enable" doc:"measure the loss on held-out data"`
	Dataset        string `toml:"dataset" doc:"name of the held-out data, for people"`
	DatasetPath    string `toml:"dataset_path" doc:"held-out dataset: PATH.bin and PATH.idx"`
	LocalBatchSize int    `toml:"local_batch_size" doc:"sequences that a device works on at a time; 0: as in training"`
	SeqLen         int    `toml:"seq_len" doc:"tokens of a sequence; 0: as in training"`
	Freq           int    `toml:"freq" doc:"training steps between two validations"`
	Steps          int    `toml:"steps" doc:"batches of a validation; -1: all of the data once"`
}

func (v Validation) validate() error {
	errs := []error{limited("validation.freq", v.Freq)}
	if v.Enable && v.DatasetPath == "" {
		errs = append(errs, recipekey.Errorf("validation.dataset_path", "is missing, but validation.enable is true; name a dataset (titan data prepare splits one off) or disable validation"))
	}
	if v.LocalBatchSize != 0 {
		errs = append(errs, limited("validation.local_batch_size", v.LocalBatchSize))
	}
	if v.SeqLen != 0 {
		errs = append(errs, limited("validation.seq_len", v.SeqLen))
	}
	if v.Steps != -1 {
		errs = append(errs, limited("validation.steps", v.Steps))
	}
	return errors.Join(errs...)
}

// Debug is the section [debug].
type Debug struct {
	Seed          uint64 `toml:"seed" doc:"seed of initial parameters and of the order of data"`
	Deterministic bool   `toml:"deterministic" doc:"the same recipe gives the same bits on the same machine; on cpu and tpu always so, elsewhere not supported yet"`
	ForceBalance  bool   `toml:"moe_force_load_balance" doc:"tokens go round the experts, whatever the router says: for measuring speed, not for training"`
	DetectAnomaly bool   `toml:"detect_anomaly" doc:"not supported; steps with non-finite gradients are always counted and shown"`

	XLAOptions []string `toml:"xla_options" doc:"options of XLA, NAME=VALUE, beyond those that titan gives for a chip; NAME= takes one of these away (see docs/plan.md)"`
}

// xlaOption is what an element of xla_options looks like.
var xlaOption = regexp.MustCompile(`^[a-z][a-z0-9_]*=`)

func (d Debug) validate() error {
	var errs []error
	for i, o := range d.XLAOptions {
		if !xlaOption.MatchString(o) {
			errs = append(errs, recipekey.Errorf(recipekey.Index("debug.xla_options", i), "is %q and must be NAME=VALUE, such as xla_enable_async_all_gather=false, without dashes", o))
		}
	}
	if d.DetectAnomaly {
		errs = append(errs, recipekey.Errorf("debug.detect_anomaly", "is not supported; leave it out, non-finite steps are always counted and shown"))
	}
	return errors.Join(errs...)
}

// Comm is the section [comm].
type Comm struct {
	InitTimeout  int `toml:"init_timeout_seconds" doc:"time limit for hosts that wait for each other when a run starts, and for the first step; one host waits for nobody"`
	TrainTimeout int `toml:"train_timeout_seconds" doc:"time limit for hosts that wait for each other after the first step"`
	SaveTimeout  int `toml:"save_timeout_seconds" doc:"time limit for hosts that wait for each other in a save or a restore"`
}

func (c Comm) validate() error {
	return errors.Join(limited("comm.init_timeout_seconds", c.InitTimeout), limited("comm.train_timeout_seconds", c.TrainTimeout),
		limited("comm.save_timeout_seconds", c.SaveTimeout))
}

// Profiling is the section [profiling].
type Profiling struct {
	Enable       bool   `toml:"enable_profiling" doc:"trace some steps: a timeline of the trainer, and of the devices where the plugin has a profiler"`
	TracesFolder string `toml:"save_traces_folder" doc:"folder of the traces, in job.dump_folder"`
	Freq         int    `toml:"profile_freq" doc:"steps between the ends of two traces"`
	Active       int    `toml:"profiler_active" doc:"steps of a trace"`
}

func (p Profiling) validate() error {
	errs := []error{limited("profiling.profile_freq", p.Freq)}
	errs = append(errs, limited("profiling.profiler_active", p.Active))
	if p.Active > p.Freq && p.Freq > 0 {
		errs = append(errs, recipekey.Errorf("profiling.profiler_active", "is %d and must be at most profiling.profile_freq, %d", p.Active, p.Freq))
	}
	if f := p.TracesFolder; p.Enable && (!filepath.IsLocal(f) || filepath.Clean(f) == ".") {
		errs = append(errs, recipekey.Errorf("profiling.save_traces_folder", "is %q and must name a folder below job.dump_folder", f))
	}
	return errors.Join(errs...)
}

// limited refuses what is not positive, and what would overflow sooner or later:
// token datasets and programs count in 32 bits.
func limited(key string, value int) error {
	if value > math.MaxInt32 {
		return recipekey.Errorf(key, "is %d and must be at most %d", value, math.MaxInt32)
	}
	return recipekey.Positive(key, value)
}

// floatType refuses an element type that is not among those possible for key.
func floatType(key, name string, possible ...string) error {
	d, err := dtype.Parse(name)
	for _, p := range possible {
		if q, _ := dtype.Parse(p); err == nil && d == q {
			return nil
		}
	}
	return recipekey.Errorf(key, "is %q and must be %s", name, strings.Join(possible, " or "))
}
