package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"titan/checkpoint/storage"
)

const (
	pointsDir  = "points" // each in a folder of its ID
	recipeFile = "recipe.toml"
	planFile   = "plan.json"
	logFile    = "log.txt"
	runDir     = "run"
	lockName   = "sweep"
)

// folder is a sweep's folder, held by one process at a time.
type folder struct {
	dir  string
	fs   storage.FS
	lock interface{ Close() error }
}

// openFolder makes and locks a folder.
func openFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(filepath.Join(dir, pointsDir), 0o777); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	f := &folder{dir: dir}
	var err error
	if f.fs, err = storage.Local(dir); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	switch f.lock, err = f.fs.Lock(lockName); {
	case errors.Is(err, storage.ErrLocked):
		return nil, fmt.Errorf("sweep: %s: another titan sweep is at work there; wait for it, or give this one another name", dir)
	case errors.Is(err, storage.ErrNoLocks):
		f.lock = nil
	case err != nil:
		return nil, fmt.Errorf("sweep: %w", err)
	}
	return f, nil
}

func (f *folder) close() {
	if f.lock != nil {
		_ = f.lock.Close() // the lock ends with the process at the latest
	}
}

// save writes the sweep: all of it, or what was there stays.
func (f *folder) save(s *Sweep) error {
	s.Updated = time.Now().UTC()
	s.rate()
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if err := storage.Replace(f.fs, FileName, append(text, '\n')); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// begin empties the folder of a point.
func (f *folder) begin(p *Point) (string, error) {
	dir := filepath.Join(f.dir, pointsDir, p.ID)
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("sweep: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("sweep: %w", err)
	}
	return dir, nil
}

// Repeat says which points of an earlier sweep are tried again.
type Repeat int

// Points that are tried again. Points that were not done always are.
const (
	Unfinished   Repeat = iota // no others
	FailedPoints               // those that failed, too
	All
)

// resume takes over what an earlier sweep of the same folder has done. Points that
// only the earlier one has stay. It returns warnings, and an error if the folder
// holds another sweep.
func (f *folder) resume(s *Sweep, again Repeat) ([]string, error) {
	old, warnings, err := Open(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return warnings, fmt.Errorf("%w; move it away, or give this sweep another name", err)
	}
	if other := s.differs(old); other != "" {
		return warnings, fmt.Errorf("sweep: %s holds a sweep with %s; give this one another name", f.dir, other)
	}
	s.Started = old.Started
	var rest []Point
	for _, p := range old.Points {
		k := slices.IndexFunc(s.Points, func(q Point) bool { return q.ID == p.ID && slices.Equal(q.Set, p.Set) })
		if k < 0 {
			if p.Status == OK || p.Status == Failed {
				rest = append(rest, p)
			}
			continue
		}
		if again != All && s.keeps(&s.Points[k], &p, again) {
			s.Points[k] = p
		}
	}
	for _, p := range rest {
		p.ID = s.freeID(p.ID)
		s.Points = append(s.Points, p)
	}
	for _, key := range old.Keys {
		if !slices.Contains(s.Keys, key) {
			s.Keys = append(s.Keys, key)
		}
	}
	return warnings, nil
}

// keeps says whether what an earlier sweep has of a point is taken over.
func (s *Sweep) keeps(now, old *Point, again Repeat) bool {
	switch {
	case old.Status == Failed:
		return again == Unfinished && now.Status == Pending && now.Source != Extrapolated
	case old.Status != OK:
		return false
	case old.Source == Extrapolated && old.Failure == TimedOut:
		return again == Unfinished && s.Extrapolate
	}
	return old.Source == s.Source || old.Source == now.Source
}

// differs says in what another sweep is of something else, "" if it is not.
func (s *Sweep) differs(old *Sweep) string {
	for _, c := range []struct{ what, old, now string }{
		{"the recipe", old.Recipe, s.Recipe},
		{"the resolved recipe", fmt.Sprintf("%.12s", old.Hash), fmt.Sprintf("%.12s", s.Hash)},
		{"mode", string(old.Mode), string(s.Mode)},
		{"figures from", string(old.Source), string(s.Source)},
		{"chips of kind", old.Kind, s.Kind},
		{"quick compilation", fmt.Sprint(old.Quick), fmt.Sprint(s.Quick)},
		{"steps", fmt.Sprint(old.Steps), fmt.Sprint(s.Steps)},
		{"steps of warm-up", fmt.Sprint(old.Warmup), fmt.Sprint(s.Warmup)},
	} {
		if c.old != c.now {
			return fmt.Sprintf("%s %q instead of %q", c.what, c.old, c.now)
		}
	}
	return ""
}

// oneLine puts what an error says on one line.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}
