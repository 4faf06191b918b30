package checkpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"titan/checkpoint/storage"
)

// Folder reads the checkpoints of a folder. It changes nothing, and may be used
// while a run writes there.
type Folder struct {
	fs storage.FS
}

// OpenFolder returns the folder at a directory, which must exist.
func OpenFolder(dir string) (*Folder, error) {
	fsys, err := storage.ExistingLocal(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: opening the folder: %w", err)
	}
	return &Folder{fsys}, nil
}

// NewFolder returns the folder at the root of a storage.
func NewFolder(fsys storage.FS) *Folder { return &Folder{fsys} }

// Listed is a checkpoint found in a folder.
type Listed struct {
	Step     int
	Path     string // for users
	Status   Status
	Err      error     // why it is not Complete
	Manifest *Manifest // nil unless Complete
	Bytes    int64     // of all its files, if Complete

	dir        string // its name in the folder
	generation int    // 0 if unknown
	unreadable bool   // the generation is unknown because reading failed
}

// List returns the checkpoints by ascending step, those that cannot be used with
// their fault. It reads manifests and sizes, not the data: see Verify.
//
// A run that writes here moves things while they are looked at, one at a time:
// a single pass may see the new checkpoint before its commit and the old one
// after its removal. So passes are repeated until they agree, once more where
// something is missing or half-done.
func (f *Folder) List() ([]Listed, error) {
	var last string
	agreed := 0
	for range 50 {
		list, err := f.list()
		if errors.Is(err, errVanished) {
			last, agreed = "", 0
			continue
		}
		if err != nil {
			return nil, err
		}
		seen, whole := "", len(list) > 0
		for _, l := range list {
			seen += fmt.Sprintln(l.dir, l.generation, l.Status, l.Err)
			whole = whole && l.Status == Complete
		}
		if agreed++; seen != last {
			last, agreed = seen, 1
		}
		if agreed == 3 || whole && agreed == 2 {
			return list, nil
		}
	}
	return nil, fmt.Errorf("checkpoint: %s changes faster than it can be listed", f.fs.Path("."))
}

var errVanished = errors.New("the directory was moved while it was read")

func (f *Folder) list() ([]Listed, error) {
	entries, err := f.fs.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("checkpoint: listing %s: %w", f.fs.Path("."), err)
	}
	at := map[int]Listed{}
	var aside []Listed
	for _, e := range entries {
		kind, step := parseName(e.Name)
		if kind != stepName && kind != oldName {
			continue
		}
		l, err := f.probe(e.Name, step)
		if err == nil && l.Status != Complete {
			// A run that writes here may have been moving it: look twice.
			var again Listed
			if again, err = f.probe(e.Name, step); err == nil && (again.Status != l.Status || again.Err.Error() != l.Err.Error()) {
				err = errVanished
			}
		}
		if err != nil {
			return nil, err
		}
		if kind == stepName {
			at[step] = l
		} else {
			aside = append(aside, l)
		}
	}
	// What was moved aside counts until its successor is committed.
	for _, l := range aside {
		if now, ok := at[l.Step]; l.Status == Complete && (!ok || now.Status == HalfWritten) {
			at[l.Step] = l
		}
	}
	out := make([]Listed, 0, len(at))
	for _, l := range at {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return cmp.Compare(a.Step, b.Step) })
	return out, nil
}

// probe finds out what a directory is worth. It fails only if that cannot be
// found out.
func (f *Folder) probe(dir string, step int) (Listed, error) {
	l := Listed{Step: step, Path: f.fs.Path(dir), dir: dir}
	entries, err := f.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l, errVanished
	}
	if err != nil {
		l.unreadable = true
		l.Status, l.Err = Foreign, &RefusedError{Path: l.Path, Status: Foreign, Reason: "it cannot be listed", Err: err}
		return l, nil
	}
	sizes := make(map[string]int64, len(entries))
	for _, e := range entries {
		if !e.Dir {
			sizes[e.Name] = e.Size
		}
	}
	refuse := func(s Status, file, reason string, err error) (Listed, error) {
		l.Status, l.Err = s, &RefusedError{Path: l.Path, Status: s, File: file, Reason: reason, Err: err}
		l.Manifest = nil
		return l, nil
	}
	_, committed := sizes[commitName]
	_, pending := sizes[pendingName]
	_, manifest := sizes[manifestName]
	switch {
	case committed:
	case pending:
		return refuse(HalfWritten, "", "the save was interrupted before it was committed", nil)
	case manifest:
		return refuse(Foreign, commitName, "the file is missing; was the checkpoint copied only in part?", nil)
	default:
		return refuse(Foreign, "", "it has no "+manifestName+"; titan did not write it", nil)
	}
	if sizes[commitName] > maxMarker {
		return refuse(Damaged, commitName, fmt.Sprintf("%d bytes are too many for it", sizes[commitName]), nil)
	}
	raw, err := storage.ReadFile(f.fs, path.Join(dir, commitName), maxMarker)
	if errors.Is(err, fs.ErrNotExist) {
		return l, errVanished
	}
	if err != nil {
		l.unreadable = true
		return refuse(Damaged, commitName, "it cannot be read", err)
	}
	mark, status, err := decodeMarker(raw)
	if err != nil {
		return refuse(status, commitName, "it cannot be used", err)
	}
	l.generation = mark.Generation
	if mark.Step != step {
		return refuse(Damaged, commitName, fmt.Sprintf("it is that of step %d; was the directory renamed?", mark.Step), nil)
	}
	m, err := f.readManifest(dir, mark)
	if errors.Is(err, fs.ErrNotExist) && manifest {
		return l, errVanished
	}
	if err != nil {
		return refuse(Damaged, manifestName, "it cannot be used", err)
	}
	for _, file := range m.Files {
		size, ok := sizes[file.Name]
		switch {
		case !ok:
			return refuse(Damaged, file.Name, "the file is missing", nil)
		case size < file.Size:
			return refuse(Damaged, file.Name, fmt.Sprintf("truncated: it has %d of %d bytes", size, file.Size), nil)
		case size != file.Size:
			return refuse(Damaged, file.Name, fmt.Sprintf("it has %d bytes instead of %d", size, file.Size), nil)
		}
		l.Bytes += size
	}
	l.Manifest = m
	return l, nil
}

func decodeMarker(raw []byte) (m marker, s Status, err error) {
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, Damaged, err
	}
	switch {
	case m.Format != formatName:
		return m, Foreign, fmt.Errorf("its format is %q", m.Format)
	case m.Version > formatVersion:
		return m, TooNew, fmt.Errorf("it has format version %d, this titan reads up to %d: use the newer titan that wrote it", m.Version, formatVersion)
	case m.Version < 1 || m.Generation < 1:
		return m, Damaged, fmt.Errorf("version %d, generation %d", m.Version, m.Generation)
	}
	return m, Complete, nil
}

func (f *Folder) readManifest(dir string, mark marker) (*Manifest, error) {
	raw, err := storage.ReadFile(f.fs, path.Join(dir, manifestName), maxManifest)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	if int64(len(raw)) != mark.ManifestSize || hex.EncodeToString(sum[:]) != mark.ManifestSHA256 {
		return nil, errors.New("its checksum is not the one in " + commitName)
	}
	m, err := decodeManifest(raw)
	if err != nil {
		return nil, err
	}
	if m.Step != mark.Step || m.Generation != mark.Generation {
		return nil, fmt.Errorf("it is that of step %d, generation %d", m.Step, m.Generation)
	}
	return m, nil
}

// byCommit orders what was listed by step the way it was committed, oldest
// first. What does not tell its generation is taken to follow the steps below.
func byCommit(list []Listed) []Listed {
	var out, unknown []Listed
	for _, l := range list {
		if l.generation > 0 {
			out = append(out, l)
		} else {
			unknown = append(unknown, l)
		}
	}
	slices.SortStableFunc(out, func(a, b Listed) int { return cmp.Compare(a.generation, b.generation) })
	for _, u := range unknown {
		i := len(out)
		for i > 0 && out[i-1].Step > u.Step {
			i--
		}
		out = slices.Insert(out, i, u)
	}
	return out
}

// candidates returns what may be loaded for a step or Latest, best first: the
// one asked for and those committed before it.
func (f *Folder) candidates(step int) ([]Listed, error) {
	list, err := f.List()
	if err != nil {
		return nil, err
	}
	notFound := &NotFoundError{Folder: f.fs.Path("."), Step: step}
	for _, l := range list {
		if l.Status == Complete {
			notFound.Available = append(notFound.Available, l.Step)
		}
	}
	order := byCommit(list)
	slices.Reverse(order)
	if step == Latest {
		// An interrupted save is as if it had never begun.
		order = slices.DeleteFunc(order, func(l Listed) bool { return l.Status == HalfWritten })
		if len(order) == 0 {
			return nil, notFound
		}
		return order, nil
	}
	i := slices.IndexFunc(order, func(l Listed) bool { return l.Step == step })
	if i < 0 {
		return nil, notFound
	}
	return order[i:], nil
}

// Open opens the checkpoint of a step, or Latest. It fails with a NotFoundError
// that lists the steps there are, or with a RefusedError.
func (f *Folder) Open(step int) (*Checkpoint, error) {
	list, err := f.candidates(step)
	if err != nil {
		return nil, err
	}
	return f.open(list[0])
}

func (f *Folder) open(l Listed) (*Checkpoint, error) {
	if l.Status != Complete {
		return nil, l.Err
	}
	return newCheckpoint(f.fs, l), nil
}
