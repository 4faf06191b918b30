package configs

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"titan/internal/plural"
	"titan/internal/recipekey"
	"titan/metrics"
	"titan/models"
)

// checking finds what is impossible in a decoded recipe.
type checking struct {
	recipe   *Recipe
	decoding *decoding
	file     string // the recipe itself
	problems []Problem
}

// all checks every section by itself, and then what concerns several.
func (c *checking) all() {
	r := c.recipe
	for _, err := range []error{
		r.Job.validate(), r.Mesh.Validate(), r.Model.Validate(), r.Training.validate(), r.Data.Validate(),
		r.Parallelism.Validate(), r.MoE.Validate(), r.ActivationCheckpoint.Validate(), r.Kernels.Validate(), r.Quantize.Validate(), r.Optimizer.Validate(), r.LRScheduler.Validate(),
		r.Checkpoint.Validate(), r.Metrics.Validate(), r.Validation.validate(), r.Debug.validate(), r.Comm.validate(), r.Profiling.validate(),
		r.Cost.Validate(),
	} {
		for _, e := range recipekey.Flatten(err) {
			c.add(e)
		}
	}
	c.outputs()
	c.devices()
	c.data()
	c.model()
	c.quantize()
	c.experts()
	c.remat()
	c.kernels()
	c.optimizer()
	c.memory()
}

// add records an error of a key, unless its value could not be read: it is then
// not what the recipe says.
func (c *checking) add(err error) {
	var k *recipekey.Error
	if !errors.As(err, &k) {
		k = &recipekey.Error{Msg: err.Error()}
	}
	for _, p := range c.decoding.problems {
		if k.Key != "" && (within(k.Key, p.Key) || within(p.Key, k.Key)) {
			return
		}
	}
	place := c.decoding.placeOf(k.Key)
	if place == (Place{}) {
		place = Place{File: c.file}
	}
	c.problems = append(c.problems, Problem{place, k.Key, k.Msg})
}

// clean reports whether no mistake was found in these keys or sections.
func (c *checking) clean(keys ...string) bool {
	for _, p := range c.problems {
		for _, k := range keys {
			if within(p.Key, k) || within(k, p.Key) {
				return false
			}
		}
	}
	return true
}

// within reports whether a key is table or in it.
func within(key, table string) bool {
	rest, ok := strings.CutPrefix(key, table)
	return ok && table != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// data checks that training has one description of its data.
func (c *checking) data() {
	r := c.recipe
	if r.Training.DatasetPath != "" && len(r.Data.Sources) > 0 {
		c.add(recipekey.Errorf("training.dataset_path", "is set, and so is data.sources; use one of them (an inherited path is unset by \"\")"))
	}
	if r.Checkpoint.InitialLoadInHF && r.Checkpoint.InitialLoadPath == "" && r.Model.HFAssetsPath == "" {
		c.add(recipekey.Errorf("checkpoint.initial_load_in_hf", "is true, but neither checkpoint.initial_load_path nor model.hf_assets_path says where the Hugging Face folder is"))
	}
}

// outputs checks that what a run writes does not overwrite something else of it.
func (c *checking) outputs() {
	r := c.recipe
	if !c.clean("job", "metrics", "checkpoint.folder") {
		return
	}
	type output struct {
		key, path string
		file      bool
	}
	all := []output{{"the run's lock", RunLock, true}, {"the run's record", RunRecord, true}, {"the run's log", RunLog, true}}
	for _, o := range []struct {
		output
		written bool
	}{
		{output{"job.save_config_file", r.Job.SaveConfigFile, true}, r.Job.SaveConfigFile != ""},
		{output{"metrics.save_json_file", r.Metrics.SaveJSONFile, true}, r.Metrics.EnableJSON},
		{output{"metrics.save_tb_folder", r.Metrics.SaveTBFolder, false}, r.Metrics.EnableTensorboard},
		{output{"profiling.save_traces_folder", r.Profiling.TracesFolder, false}, r.Profiling.Enable},
		{output{"checkpoint.folder", r.Checkpoint.Folder, false}, r.Checkpoint.Enable},
	} {
		if !o.written {
			continue
		}
		o.path = filepath.Clean(o.path)
		for _, other := range all {
			under := other.file && strings.HasPrefix(o.path, other.path+"/")
			over := o.file && strings.HasPrefix(other.path, o.path+"/")
			if under || over || o.path == other.path && (o.file || other.file) {
				c.add(recipekey.Errorf(o.key, "is %q, and %s is %q: one would overwrite the other; name another", o.path, other.key, other.path))
				break
			}
		}
		all = append(all, o.output)
	}
}

// Files of job.dump_folder whose names are no recipe's choice.
const (
	RunLock   = ".titan-run" // by which runs find out about each other
	RunRecord = "run.json"   // what a run tells about itself
	RunLog    = "log.txt"    // what the terminal showed
)

// model checks that the parameters are of a size that can be counted, and that
// the class for a last export has what the model has.
func (c *checking) model() {
	if !c.clean("model") {
		return
	}
	m, err := c.recipe.Decoder()
	if err != nil {
		c.add(err)
		return
	}
	if layout, err := models.HF(c.recipe.Model.Name); c.recipe.Checkpoint.LastSaveInHF {
		if err == nil {
			err = layout.Fits(m)
		}
		if err != nil {
			c.add(recipekey.Errorf("checkpoint.last_save_in_hf", "is true, but %v", err))
		}
	}
	if c.recipe.Debug.ForceBalance && m.MoE == nil {
		c.add(recipekey.Errorf("debug.moe_force_load_balance", "is for models with experts, and %s %s has none", c.recipe.Model.Name, c.recipe.Model.Flavor))
	}
	total := 0.0
	for _, p := range m.Params() {
		n := 1.0
		for _, d := range p.Shape {
			n *= float64(d)
		}
		if n > math.MaxInt64/1024 {
			c.add(recipekey.Errorf("model.override", "parameter %s of shape %v has %.1g elements", p.Name, p.Shape, n))
			return
		}
		total += n
	}
	if total > maxParameters {
		c.add(recipekey.Errorf("model.override", "the model has %.2g parameters; more than %.0g are taken for a mistake", total, float64(maxParameters)))
	}
}

// optimizer checks that the parameter groups fit the model.
func (c *checking) optimizer() {
	if !c.clean("model", "optimizer", "lr_scheduler", "training") {
		return
	}
	_, err := c.recipe.NewOptimizer()
	for _, e := range recipekey.Flatten(err) {
		c.add(e)
	}
}

// maxDevices is far beyond any machine, and small enough to list.
const maxDevices = 1 << 20

// maxParameters keeps sums of bytes far from the limits of int64.
const maxParameters = 1e15

// Warnings returns what is possible and yet seldom meant, one sentence each.
func (r *Recipe) Warnings() []string {
	var out []string
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m, err := r.Decoder(); err == nil {
		if r.Training.SeqLen > m.MaxSeqLen {
			warn("training.seq_len is %d, more than the model's max_seq_len of %d", r.Training.SeqLen, m.MaxSeqLen)
		}
		if r.Validation.Enable && r.Validation.SeqLen > m.MaxSeqLen {
			warn("validation.seq_len is %d, more than the model's max_seq_len of %d", r.Validation.SeqLen, m.MaxSeqLen)
		}
	}
	out = append(out, r.parallelWarnings()...)
	out = append(out, r.quantizeWarnings()...)
	out = append(out, r.kernelWarnings()...)
	out = append(out, r.unusedWarnings()...)
	_, notes := r.LRScheduler.Curve(r.Training.Steps)
	out = append(out, notes...)
	steps := plural.Of(r.Training.Steps, "step")
	if total := r.LRScheduler.TotalSteps; total > 0 && total < r.Training.Steps {
		warn("lr_scheduler.total_steps is %d, but training has %s: the last %d have the lowest learning rate", total, steps, r.Training.Steps-total)
	}
	if r.Checkpoint.Enable && r.Checkpoint.Interval > r.Training.Steps {
		warn("checkpoint.interval is %d, but training has %s: there is only the checkpoint after the last step", r.Checkpoint.Interval, steps)
	}
	if r.Profiling.Enable && r.Profiling.Freq > r.Training.Steps {
		warn("profiling.profile_freq is %d, but training has %s: nothing is traced", r.Profiling.Freq, steps)
	}
	if c := r.Metrics.Cold; c >= r.Training.Steps && c != metrics.DefaultConfig().Cold {
		warn("metrics.cold_steps is %d, but training has %s: none is left for the warm throughput and the distribution of step times", c, steps)
	}
	return out
}
