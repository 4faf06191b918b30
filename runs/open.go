package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"titan/configs"
)

// Run is what a run's folder tells. It is a snapshot: open it again to follow a run
// that goes on.
type Run struct {
	Dir    string
	Record Record
	// RecipeText is the resolved recipe of the last attempt, with origins, and Recipe
	// its values by their keys, such as "training.steps" or "data.sources[0].weight".
	// Values are string, int64, float64, bool or []any.
	RecipeText string
	Recipe     map[string]any
	// Train and Validation are the points that count, by ascending step.
	Train, Validation []Point
	// Superseded are points, in the order of the file, of steps that a later attempt
	// did again: a restart had lost them.
	Superseded []Point
	// Summaries are what attempts said at their end, in the order of the file.
	Summaries []Point
}

// Warning is something about a run's folder that is not as it should be, and was
// passed over.
type Warning struct {
	File string // in the folder
	Line int    // 0: the file as a whole
	Text string
}

func (w Warning) String() string {
	if w.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
	}
	return w.File + ": " + w.Text
}

// Open reads a run's folder, whatever state it is in: what is missing or damaged is
// left out and named in a warning. It fails only where there is no run at all: then
// none of the record, the metrics and the recipe is there, or the folder cannot be
// read. The folder may be one that a run is writing to, or a copy.
func Open(dir string) (*Run, []Warning, error) {
	o := &opening{run: &Run{Dir: dir}}
	st, err := os.Stat(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("runs: %w", err)
	}
	if !st.IsDir() {
		return nil, nil, fmt.Errorf("runs: %s is no folder; name the one of a run (its job.dump_folder)", dir)
	}
	record, there := o.read(configs.RunRecord, true)
	if there {
		o.decodeRecord(record)
	}
	o.names()
	files := &o.run.Record.Files
	if text, ok := o.read(files.Recipe, there && files.Recipe != ""); ok {
		o.decodeRecipe(text)
		there = true
	}
	if name, ok := o.run.Recipe["metrics.save_json_file"].(string); ok && files.Metrics == "" && filepath.IsLocal(name) {
		files.Metrics = filepath.ToSlash(name)
	}
	if files.Metrics == "" && len(o.run.Record.Attempts) == 0 {
		files.Metrics = defaultFiles.Metrics
	}
	if o.readPoints(files.Metrics) {
		there = true
	}
	if !there {
		return nil, o.warnings, fmt.Errorf("runs: %s is no run: it has no %s, no %s and no %s; name a job.dump_folder that titan trained in", dir, configs.RunRecord, defaultFiles.Recipe, defaultFiles.Metrics)
	}
	o.finish()
	return o.run, o.warnings, nil
}

// defaultFiles are the names of a folder without a record.
var defaultFiles = Files{Recipe: "recipe.toml", Metrics: "metrics.jsonl"}

// opening is a folder that is being read.
type opening struct {
	run      *Run
	warnings []Warning
	points   []Point // all, in the order of the file
	starts   []start // of the metrics
	noRecord bool    // it is missing or damaged
}

// start is where a process began to write metrics.
type start struct {
	attempt int
	step    int64 // the last before it
	time    time.Time
}

func (o *opening) warn(file string, line int, format string, args ...any) {
	o.warnings = append(o.warnings, Warning{file, line, fmt.Sprintf(format, args...)})
}

// read returns the content of a file of the folder. That it is missing is worth a
// warning if it is expected.
func (o *opening) read(name string, expected bool) ([]byte, bool) {
	if name == "" {
		return nil, false
	}
	raw, err := os.ReadFile(filepath.Join(o.run.Dir, filepath.FromSlash(name)))
	switch {
	case err == nil:
		return raw, true
	case errors.Is(err, fs.ErrNotExist):
		if expected {
			o.warn(name, 0, "is missing")
		}
	default:
		o.warn(name, 0, "cannot be read: %v", err)
	}
	return nil, false
}

func (o *opening) decodeRecord(raw []byte) {
	r := &o.run.Record
	if err := json.Unmarshal(raw, r); err != nil {
		o.warn(configs.RunRecord, 0, "is damaged and left out: %v", err)
		*r, o.noRecord = Record{}, true
		return
	}
	if r.Schema != Schema {
		o.warn(configs.RunRecord, 0, "has schema %d, this titan knows %d; what it does not know is left out", r.Schema, Schema)
	}
	attempts := r.Attempts[:0]
	for _, a := range r.Attempts {
		if a == nil {
			o.warn(configs.RunRecord, 0, "has an empty attempt, which is left out")
			continue
		}
		attempts = append(attempts, a)
	}
	r.Attempts = attempts
	for i, a := range r.Attempts {
		if a.Number != i+1 {
			o.warn(configs.RunRecord, 0, "attempt %d has the number %d", i+1, a.Number)
			a.Number = i + 1
		}
		if a.ResumedFrom < 0 {
			o.warn(configs.RunRecord, 0, "attempt %d says that it began after step %d; 0 is assumed", a.Number, a.ResumedFrom)
			a.ResumedFrom = 0
		}
	}
}

// names makes sure that the names of files are in the folder.
func (o *opening) names() {
	f := &o.run.Record.Files
	for _, name := range []*string{&f.Recipe, &f.Metrics, &f.Log, &f.TensorBoard, &f.Traces} {
		if *name != "" && !filepath.IsLocal(filepath.FromSlash(*name)) {
			o.warn(configs.RunRecord, 0, "names the file %q, which is not in the folder; it is not read", *name)
			*name = ""
		}
	}
	if f.Recipe == "" && len(o.run.Record.Attempts) == 0 {
		f.Recipe = defaultFiles.Recipe
	}
}

func (o *opening) decodeRecipe(raw []byte) {
	o.run.RecipeText = string(raw)
	values, err := configs.Values(raw)
	if err != nil {
		o.warn(o.run.Record.Files.Recipe, 0, "is damaged, its values are left out: %v", err)
		return
	}
	o.run.Recipe = values
}

// finish makes what is read agree: attempts that only the metrics know, and which
// points count.
func (o *opening) finish() {
	r := &o.run.Record
	if len(r.Attempts) == 0 {
		for _, s := range o.starts {
			r.Attempts = append(r.Attempts, &Attempt{Number: len(r.Attempts) + 1, Start: s.time, LastSeen: s.time, Began: true, ResumedFrom: s.step})
		}
		if o.noRecord && len(r.Attempts) > 0 {
			o.warn(configs.RunRecord, 0, "attempts are known from %s alone", r.Files.Metrics)
		}
	}
	for i := range o.points {
		p := &o.points[i]
		if p.Attempt > len(r.Attempts) {
			o.warn(r.Files.Metrics, 0, "has an attempt %d, which %s does not have", p.Attempt, configs.RunRecord)
			for n := len(r.Attempts) + 1; n <= p.Attempt; n++ {
				r.Attempts = append(r.Attempts, &Attempt{Number: n, Start: p.Time, LastSeen: p.Time, Began: true})
			}
			for _, s := range o.starts {
				if a := r.Attempts[min(s.attempt, len(r.Attempts))-1]; a.Titan == "" {
					a.ResumedFrom = s.step
				}
			}
		}
		if a := r.Attempts[p.Attempt-1]; p.Time.After(a.LastSeen) && a.Exit == nil {
			a.LastSeen = p.Time
		}
	}
	for _, a := range r.Attempts {
		if a.Exit == nil {
			o.catchUp(a)
		}
	}
	var hash string
	for _, a := range r.Attempts {
		if hash != "" && a.RecipeSHA256 != "" && a.RecipeSHA256 != hash {
			o.warn(configs.RunRecord, 0, "attempt %d has another recipe than the one before; %s is the last", a.Number, r.Files.Recipe)
		}
		if a.RecipeSHA256 != "" {
			hash = a.RecipeSHA256
		}
	}
	o.sortPoints()
}

// Trained is the last attempt that did steps, or the last where none did; nil if none
// is known.
func (r *Run) Trained() *Attempt {
	for i := len(r.Record.Attempts) - 1; i >= 0; i-- {
		if a := r.Record.Attempts[i]; a.Figures.Steps > 0 {
			return a
		}
	}
	return r.Last()
}

// Last is the last attempt, nil if none is known.
func (r *Run) Last() *Attempt {
	if n := len(r.Record.Attempts); n > 0 {
		return r.Record.Attempts[n-1]
	}
	return nil
}

// Name is the name of the folder.
func (r *Run) Name() string {
	abs, err := filepath.Abs(r.Dir)
	if err != nil {
		return strings.TrimRight(r.Dir, "/")
	}
	return filepath.Base(abs)
}
