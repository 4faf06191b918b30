package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// LoadOptions say what to load.
type LoadOptions struct {
	Step int // or Latest
	// Fallback goes on to the checkpoint committed before the one asked for, and
	// so on, if that cannot be used. Without it such a checkpoint is refused.
	Fallback bool
	// Verify reads and verifies all of a checkpoint before it is used, not only
	// what is restored of it. Process 0 does that for all.
	Verify bool
	// Group makes all processes load the same checkpoint; nil for one process.
	Group Group
	// Attempt tells loads of one run apart in exchanges; they must not repeat.
	Attempt int
}

// Loaded says what was loaded.
type Loaded struct {
	Step    int
	Path    string
	Skipped []error // why later checkpoints were not used, latest first
}

// offer is what process 0 tells the others: which checkpoints to try.
type offer struct {
	Dirs  []string `json:"dirs"`
	Error string   `json:"error,omitempty"`
	// None: there is no such checkpoint, but those of these steps.
	None  bool  `json:"none,omitempty"`
	Steps []int `json:"steps,omitempty"`
}

// maxSteps bounds how many steps an offer lists.
const maxSteps = 100

// maxOffer bounds how many checkpoints are tried.
const maxOffer = 16

// verdict is how using a checkpoint went at one process.
type verdict struct {
	Refused string `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Load opens a checkpoint and calls use with it. If use (or opening, or
// verifying) fails because the checkpoint is damaged, and the options say so,
// Load goes on to the previous complete one and calls use again, so that use
// must be able to start over. In a group all processes agree on the checkpoint:
// one is used only if it is good for all of them.
//
// It fails with a NotFoundError if there is no such checkpoint, which lists
// those there are; with a RefusedError if it cannot be used; and with the error
// of use as it is.
func (f *Folder) Load(ctx context.Context, o LoadOptions, use func(*Checkpoint) error) (*Loaded, error) {
	if o.Group == nil {
		o.Group = Alone()
	}
	key := fmt.Sprintf("checkpoint/load/%d/", o.Attempt)
	list, err := f.offer(ctx, o, key+"offer")
	if err != nil {
		return nil, err
	}
	out := &Loaded{}
	for i, l := range list {
		err := f.try(ctx, l, o, use)
		err, refused := agree(ctx, o.Group, fmt.Sprintf("%s%d", key, i), l, err)
		switch {
		case err == nil:
			out.Step, out.Path = l.Step, l.Path
			return out, nil
		case !refused:
			return nil, err
		case !o.Fallback:
			return nil, fmt.Errorf("%w; %s", err, alternatives(list[i+1:]))
		}
		out.Skipped = append(out.Skipped, err)
	}
	return nil, fmt.Errorf("checkpoint: no checkpoint of %s can be used: %w", f.fs.Path("."), errors.Join(out.Skipped...))
}

// alternatives says what could be loaded instead.
func alternatives(list []Listed) string {
	var steps []int
	for _, l := range list {
		if l.Status == Complete {
			steps = append(steps, l.Step)
		}
	}
	if len(steps) == 0 {
		return "no earlier checkpoint is complete"
	}
	slices.Sort(steps)
	return fmt.Sprintf("the complete one before it is step %d: load that (checkpoint.load_step), or allow falling back to it (checkpoint.fallback)", steps[len(steps)-1])
}

// offer returns the checkpoints to try, the same to all processes.
func (f *Folder) offer(ctx context.Context, o LoadOptions, key string) ([]Listed, error) {
	var mine offer
	var list []Listed
	var err error
	if o.Group.Rank() == 0 {
		if list, err = f.candidates(o.Step); err != nil {
			mine.Error = truncate(err.Error())
			if none := (*NotFoundError)(nil); errors.As(err, &none) {
				mine.None, mine.Steps = true, none.Available[max(0, len(none.Available)-maxSteps):]
			}
		}
		list = list[:min(len(list), maxOffer)]
		for _, l := range list {
			mine.Dirs = append(mine.Dirs, l.dir)
		}
	}
	raw, encodeErr := json.Marshal(mine)
	if encodeErr != nil {
		return nil, encodeErr
	}
	replies, exchangeErr := o.Group.Exchange(ctx, key, raw)
	switch {
	case err != nil:
		return nil, err
	case exchangeErr != nil:
		return nil, fmt.Errorf("checkpoint: agreeing on what to load: %w", exchangeErr)
	case o.Group.Rank() == 0:
		return list, nil
	}
	var theirs offer
	if err := json.Unmarshal(replies[0], &theirs); err != nil {
		return nil, fmt.Errorf("checkpoint: agreeing on what to load: %w", err)
	}
	if theirs.None {
		return nil, &NotFoundError{Folder: f.fs.Path("."), Step: o.Step, Available: theirs.Steps}
	}
	if theirs.Error != "" {
		return nil, errors.New(theirs.Error)
	}
	for _, dir := range theirs.Dirs {
		kind, step := parseName(dir)
		if kind != stepName && kind != oldName {
			return nil, fmt.Errorf("checkpoint: process 0 offers to load %q", dir)
		}
		l, err := f.probe(dir, step)
		if err != nil {
			l.Status = Damaged
			l.Err = &RefusedError{Path: f.fs.Path(dir), Status: Damaged, Reason: "process 0 sees it, this process does not; the folder must be on storage that all hosts share", Err: err}
		}
		list = append(list, l)
	}
	return list, nil
}

// try uses one checkpoint.
func (f *Folder) try(ctx context.Context, l Listed, o LoadOptions, use func(*Checkpoint) error) error {
	c, err := f.open(l)
	if err != nil {
		return err
	}
	defer c.Close()
	if o.Verify && o.Group.Rank() == 0 {
		if err := c.Verify(ctx); err != nil {
			return err
		}
	}
	return use(c)
}

// agree makes the outcome the same for all processes: any error but a refusal
// ends the load, any refusal refuses the checkpoint.
func agree(ctx context.Context, g Group, key string, l Listed, err error) (_ error, refused bool) {
	refused = isRefused(err)
	var mine verdict
	switch {
	case refused:
		mine.Refused = truncate(err.Error())
	case err != nil:
		mine.Error = truncate(err.Error())
	}
	raw, encodeErr := json.Marshal(mine)
	if encodeErr != nil {
		return encodeErr, false
	}
	replies, exchangeErr := g.Exchange(ctx, key, raw)
	switch {
	case err != nil && !refused:
		return err, false
	case exchangeErr != nil:
		return fmt.Errorf("checkpoint: agreeing on %s: %w", l.Path, exchangeErr), false
	}
	var other error
	for i, r := range replies {
		var v verdict
		if e := json.Unmarshal(r, &v); e != nil {
			return fmt.Errorf("checkpoint: the message of process %d: %w", i, e), false
		}
		switch {
		case v.Error != "":
			return fmt.Errorf("checkpoint: loading %s failed at process %d: %s", l.Path, i, v.Error), false
		case v.Refused != "" && other == nil:
			other = &RefusedError{Path: l.Path, Status: Damaged, Reason: fmt.Sprintf("refused by process %d: %s", i, v.Refused)}
		}
	}
	if err == nil && other != nil {
		return other, true
	}
	return err, refused
}
