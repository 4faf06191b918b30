package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"titan/configs"
	"titan/internal/nearest"
	"titan/plan"
	"titan/runs"
	"titan/sweep"
)

// Load opens a run's folder, a sweep's folder or file, a plan as titan plan --json
// writes it, or a published series: a TOML file, or the name of one in the binary.
// What is damaged is left out and named in a warning; only where nothing can be read
// is that an error.
func Load(path string) (*Input, []string, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return loadNamed(path)
	case err != nil:
		return nil, nil, fmt.Errorf("compare: %w", err)
	case st.IsDir() && exists(filepath.Join(path, sweep.FileName)):
		return loadSweep(path)
	case st.IsDir():
		return loadRun(path)
	case strings.HasSuffix(path, ".toml"):
		return loadSeries(path)
	}
	head, err := readHead(path)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("compare: %w", err)
	case filepath.Base(path) == configs.RunRecord, filepath.Base(path) == "metrics.jsonl":
		return loadRun(filepath.Dir(path))
	case filepath.Base(path) == sweep.FileName || bytes.Contains(head, []byte(`"points"`)):
		return loadSweep(path)
	}
	return loadPlan(path)
}

// loadNamed takes what is no file for the name of a series.
func loadNamed(name string) (*Input, []string, error) {
	if !strings.ContainsAny(name, `/\`) {
		if in, warnings, err := loadSeries(name); err == nil {
			return in, warnings, nil
		}
	}
	return nil, nil, fmt.Errorf("compare: there is no %s: name a run's or a sweep's folder, the JSON of a plan, or a published series%s", name, nearest.Hint(name, sweep.References()))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readHead returns the first kilobyte of a file.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 1024)
	n, err := f.Read(head)
	if n == 0 && err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return head[:n], nil
}

func loadRun(dir string) (*Input, []string, error) {
	run, found, err := runs.Open(dir)
	var warnings []string
	for _, w := range found {
		warnings = append(warnings, filepath.Join(dir, w.String()))
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("compare: %w", err)
	}
	return &Input{Path: dir, Run: run, Results: []*Result{fromRun(run)}}, warnings, nil
}

func loadPlan(path string) (*Input, []string, error) {
	p, err := readPlan(path)
	if err != nil {
		return nil, nil, fmt.Errorf("compare: %w", err)
	}
	r := FromPlan(p)
	r.Path, r.Name = path, strings.TrimSuffix(filepath.Base(path), ".json")
	return &Input{Path: path, Plan: p, Results: []*Result{r}}, nil, nil
}

func readPlan(path string) (*plan.Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &plan.Report{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: this is no plan of titan plan --json, or it is damaged: %w", path, err)
	}
	if p.Model == "" || p.Devices < 1 || p.Chips < 1 || p.Tokens < 1 {
		return nil, fmt.Errorf("%s: this is no plan of titan plan --json: it has no model, devices or tokens", path)
	}
	return p, nil
}

func loadSeries(nameOrPath string) (*Input, []string, error) {
	s, err := sweep.Reference(nameOrPath)
	if err != nil {
		if _, _, bad := configs.Load(nameOrPath, nil); bad == nil {
			return nil, nil, fmt.Errorf("compare: %s is a recipe, which has no figures yet: give the folder of its run, or plan it with titan plan --config %s --json FILE and give that file", nameOrPath, nameOrPath)
		}
		return nil, nil, err
	}
	return &Input{Path: nameOrPath, Series: s, Results: fromSeries(s, nameOrPath)}, nil, nil
}

func loadSweep(path string) (*Input, []string, error) {
	s, warnings, err := sweep.Open(path)
	if err != nil {
		return nil, warnings, fmt.Errorf("compare: %w", err)
	}
	dir := path
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		dir = filepath.Dir(path)
	}
	in := &Input{Path: path, Sweep: s}
	var failed []*Result // they stay in the table, behind those that others are compared with
	for i := range s.Points {
		p := &s.Points[i]
		switch p.Status {
		case sweep.OK:
		case sweep.Failed, sweep.Impossible:
			failed = append(failed, failedPoint(s, p, path))
			continue
		default:
			continue
		}
		r, more := fromPoint(s, p, dir)
		warnings = append(warnings, more...)
		r.Path = path
		in.Results = append(in.Results, r)
	}
	if len(in.Results) > 0 {
		in.Results = append(in.Results, failed...)
	}
	return in, warnings, nil
}
