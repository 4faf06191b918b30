// Package checkpoint saves the state of a training run so that it is there whole
// or not at all, and brings it back on any mesh.
//
//	store, err := checkpoint.NewStore(fs, checkpoint.Options{KeepLatest: 3})
//	_, err = store.Save(ctx, snapshot)
//
//	folder, err := checkpoint.OpenFolder("outputs/checkpoint")
//	_, err = folder.Load(ctx, checkpoint.LoadOptions{Step: checkpoint.Latest}, func(c *checkpoint.Checkpoint) error {
//		return c.Restore(ctx, target, deliver)
//	})
//
// A checkpoint is a directory step-00000100 of safetensors files, a manifest
// with the place and checksum of every part of every tensor, and the marker
// COMMIT, written last. Every process writes the shards on its own devices;
// what several hold alike is written once. docs/checkpoint.md has the layout, the
// protocol and what is guaranteed.
//
// The package knows neither the trainer nor devices: bytes come from and go to
// functions.
package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

// Latest stands for the checkpoint that was committed last.
const Latest = -1

// Tensor is a named array split over a mesh.
type Tensor struct {
	Name  string
	DType dtype.DType
	Shape []int // of the whole array
	Spec  sharding.Spec
}

// layout checks the tensor against a mesh.
func (t Tensor) layout(m *mesh.Mesh) (*sharding.Layout, error) {
	if t.Name == "" || !t.DType.Valid() {
		return nil, fmt.Errorf("checkpoint: tensor %q of type %v: it needs a name and an element type", t.Name, t.DType)
	}
	l, err := sharding.NewLayout(m, t.Spec, t.Shape)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: tensor %q: %w", t.Name, err)
	}
	return l, nil
}

// checkNames refuses names used twice.
func checkNames(tensors []Tensor) error {
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		if seen[t.Name] {
			return fmt.Errorf("checkpoint: two tensors are named %q", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// Status says what a directory is worth.
type Status int

// The states of a directory that is named like a checkpoint.
const (
	Complete    Status = iota // committed, and every file has its size
	Damaged                   // committed, but files are missing, shortened or changed
	HalfWritten               // a save that never committed
	Foreign                   // not written by titan, or copied in part
	TooNew                    // of a format this version does not know
)

// String returns the status in words.
func (s Status) String() string {
	switch s {
	case Complete:
		return "complete"
	case Damaged:
		return "damaged"
	case HalfWritten:
		return "half-written"
	case Foreign:
		return "foreign"
	case TooNew:
		return "too new"
	}
	return fmt.Sprintf("status %d", int(s))
}

// RefusedError says why a checkpoint cannot be used.
type RefusedError struct {
	Path   string // of the checkpoint
	Status Status
	File   string // in the checkpoint; empty if the fault is not that of one file
	Reason string
	Err    error // the cause, if it was another error
}

// Error names the checkpoint, the file, and the fault.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("checkpoint: %s is %v: ", e.Path, e.Status)
	if e.File != "" {
		s += e.File + ": "
	}
	s += e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// NotFoundError says that a folder does not have a checkpoint.
type NotFoundError struct {
	Folder    string
	Step      int   // or Latest
	Available []int // the complete ones, ascending
}

// Error names the folder and the steps it has.
func (e *NotFoundError) Error() string {
	if e.Step == Latest {
		return fmt.Sprintf("checkpoint: %s has no complete checkpoint", e.Folder)
	}
	return fmt.Sprintf("checkpoint: %s has no step %d; %s", e.Folder, e.Step, describeSteps(e.Available))
}

// describeSteps lists steps, the first and last few if there are many.
func describeSteps(steps []int) string {
	if len(steps) == 0 {
		return "it has no complete checkpoint"
	}
	steps = slices.Clone(steps)
	slices.Sort(steps)
	words := make([]string, 0, len(steps))
	for i, s := range steps {
		switch {
		case len(steps) <= 20 || i < 5 || i >= len(steps)-10:
			words = append(words, fmt.Sprint(s))
		case i == 5:
			words = append(words, "…")
		}
	}
	return "it has " + strings.Join(words, ", ")
}

// isRefused reports whether another checkpoint might do where this one did not.
func isRefused(err error) bool {
	var r *RefusedError
	return errors.As(err, &r)
}
