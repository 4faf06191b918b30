package metrics

import (
	"errors"
	"math"
	"path/filepath"

	"titan/internal/recipekey"
)

// Config is the recipe's section [metrics]: what is shown and recorded of a run.
type Config struct {
	LogFreq           int     `toml:"log_freq" doc:"steps between two lines of the log; step 1 has one always"`
	EnableTensorboard bool    `toml:"enable_tensorboard" doc:"write TensorBoard event files"`
	SaveTBFolder      string  `toml:"save_tb_folder" doc:"folder of the event files, in job.dump_folder"`
	EnableJSON        bool    `toml:"enable_json" doc:"write the metrics as JSON, one line for each line of the log"`
	SaveJSONFile      string  `toml:"save_json_file" doc:"file of the JSON lines, in job.dump_folder"`
	DisableColor      bool    `toml:"disable_color_printing" doc:"no colours in the log; there are none outside a terminal"`
	Cold              int     `toml:"cold_steps" doc:"first steps after a start that the warm throughput and the distribution of step times leave out"`
	Prometheus        string  `toml:"prometheus" doc:"host:port at which a Prometheus server may read the figures, at /metrics; empty: nowhere"`
	PeakTFLOPs        float64 `toml:"peak_tflops" doc:"dense bf16 rate of one device in TFLOP/s, for the MFU; 0: that of the device kind if titan knows it, else no MFU is shown"`
}

// DefaultConfig returns the values of [metrics] in a recipe that does not set
// them.
func DefaultConfig() Config {
	return Config{LogFreq: 10, SaveTBFolder: "tb", EnableJSON: true, SaveJSONFile: "metrics.jsonl", Cold: 3}
}

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	errs := []error{recipekey.Positive("metrics.log_freq", c.LogFreq)}
	if c.EnableTensorboard && !filepath.IsLocal(c.SaveTBFolder) {
		errs = append(errs, recipekey.Errorf("metrics.save_tb_folder", "is %q and must name a folder below job.dump_folder", c.SaveTBFolder))
	}
	if c.EnableJSON && (!filepath.IsLocal(c.SaveJSONFile) || filepath.Clean(c.SaveJSONFile) == ".") {
		errs = append(errs, recipekey.Errorf("metrics.save_json_file", "is %q and must name a file below job.dump_folder", c.SaveJSONFile))
	}
	if c.Cold < 0 {
		errs = append(errs, recipekey.Errorf("metrics.cold_steps", "is %d and must be positive, or 0 to measure all steps", c.Cold))
	}
	if err := validAddress(c.Prometheus); err != nil {
		errs = append(errs, recipekey.Errorf("metrics.prometheus", "is %q and must be host:port, such as \"127.0.0.1:9464\", or empty: %v", c.Prometheus, err))
	}
	if !(c.PeakTFLOPs >= 0) || math.IsInf(c.PeakTFLOPs, 0) {
		errs = append(errs, recipekey.Errorf("metrics.peak_tflops", "is %g and must be positive, or 0 for the rate that titan knows", c.PeakTFLOPs))
	}
	return errors.Join(errs...)
}
