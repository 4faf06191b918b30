package data

import (
	"errors"
	"math"
	"path/filepath"

	"titan/internal/recipekey"
)

// Config is the recipe's section [data]: which datasets are mixed, and how
// document boundaries count.
type Config struct {
	Sources          []SourceConfig `toml:"sources" doc:"datasets that are mixed; instead of training.dataset_path"`
	ResetPositions   bool           `toml:"reset_positions" doc:"positions begin at 0 with every document, not with every row"`
	IsolateDocuments bool           `toml:"isolate_documents" doc:"attention keeps to the document"`
	MaskBoundaries   bool           `toml:"mask_boundaries" doc:"the first token of a document is not predicted from the document before it"`
	Prefetch         int            `toml:"prefetch" doc:"batches read ahead of the device"`
}

// SourceConfig is one table of [[data.sources]].
type SourceConfig struct {
	Path   string  `toml:"path" doc:"dataset made by titan data prepare: PATH.bin and PATH.idx"`
	Weight float64 `toml:"weight" doc:"share of the rows, relative to the other weights; all alike if none has one"`
}

// DefaultConfig returns the values of [data] in a recipe that does not set them.
func DefaultConfig() Config { return Config{Prefetch: 4} }

// maxPrefetch bounds the memory of batches read ahead.
const maxPrefetch = 1024

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	var errs []error
	add := func(key, format string, args ...any) {
		errs = append(errs, recipekey.Errorf(key, format, args...))
	}
	weighted, first := 0, map[string]int{}
	for _, s := range c.Sources {
		if s.Weight != 0 {
			weighted++
		}
	}
	for i, s := range c.Sources {
		path, weight := recipekey.Index("data.sources", i, "path"), recipekey.Index("data.sources", i, "weight")
		if s.Path == "" {
			add(path, "is missing; it is the path of a dataset without .bin or .idx")
		} else if j, ok := first[filepath.Clean(s.Path)]; ok {
			add(path, "%s is also source %d; name it once, with a larger weight", s.Path, j)
		} else {
			first[filepath.Clean(s.Path)] = i
		}
		switch {
		case s.Weight < 0 || math.IsNaN(s.Weight) || math.IsInf(s.Weight, 0):
			add(weight, "is %g and must be positive", s.Weight)
		case s.Weight == 0 && weighted > 0:
			add(weight, "is missing or 0, but other sources have weights; give it one, or leave the source out")
		}
	}
	if c.Prefetch < 1 || c.Prefetch > maxPrefetch {
		add("data.prefetch", "is %d and must be in 1 to %d", c.Prefetch, maxPrefetch)
	}
	return errors.Join(errs...)
}
