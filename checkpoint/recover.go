package checkpoint

import (
	"fmt"

	"titan/checkpoint/storage"
)

// cleanup is what must be done in a folder after a run that did not end well.
type cleanup struct {
	sync    []string    // directories of committed checkpoints
	rename  [][2]string // one after the other
	discard []string    // to remove once the renames are durable
}

// planCleanup decides, from what was found, how to tidy a folder of which this
// process holds the lock. It touches only what this package wrote and never
// committed, or replaced or discarded after a commit.
func planCleanup(found []foundDir, nonce string) cleanup {
	var c cleanup
	standing := map[int]Listed{}
	for _, d := range found {
		if d.kind == stepName {
			standing[d.step] = d.probed
		}
	}
	trash := func(dir string, step, i int) {
		to := workDir(step, fmt.Sprintf("%s%02x", nonce, i), trashName)
		c.rename = append(c.rename, [2]string{dir, to})
		c.discard = append(c.discard, to)
	}
	for i, d := range found {
		switch d.kind {
		case stepName:
			switch d.probed.Status {
			case Complete:
				c.sync = append(c.sync, d.name)
			case HalfWritten:
				trash(d.name, d.step, i)
				delete(standing, d.step)
			}
		case tempName, trashName:
			c.discard = append(c.discard, d.name)
		}
	}
	for i, d := range found {
		if d.kind != oldName {
			continue
		}
		now, ok := standing[d.step]
		switch {
		case ok && now.Status == Complete:
			trash(d.name, d.step, i)
		case !ok: // its successor never got there
			c.rename = append(c.rename, [2]string{d.name, stepDir(d.step)})
			c.sync = append(c.sync, d.name)
			standing[d.step] = d.probed
		}
	}
	return c
}

// foundDir is a directory of the folder whose name this package gives.
type foundDir struct {
	name   string
	kind   nameKind
	step   int
	probed Listed // of checkpoints
}

// tidy finds what a crash left behind and removes it. The caller holds the lock,
// so none of it belongs to a process that is alive. It returns what it removed
// or brought back, for the log.
func (f *Folder) tidy(nonce string) ([]string, error) {
	entries, err := f.fs.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var found []foundDir
	for _, e := range entries {
		d := foundDir{name: e.Name}
		d.kind, d.step = parseName(e.Name)
		switch d.kind {
		case otherName:
			continue
		case stepName, oldName:
			if d.probed, err = f.probe(e.Name, d.step); err != nil {
				return nil, err
			}
		}
		found = append(found, d)
	}
	c := planCleanup(found, nonce)
	var did []string
	// What is only seen, not yet durable, must not be a reason to remove anything.
	for _, dir := range append(c.sync, ".") {
		if err := f.fs.SyncDir(dir); err != nil {
			return did, err
		}
	}
	for _, r := range c.rename {
		if err := f.fs.Rename(r[0], r[1]); err != nil {
			return did, err
		}
		if kind, _ := parseName(r[1]); kind == stepName {
			did = append(did, "brought back "+r[1])
		} else {
			did = append(did, "removed "+r[0])
		}
	}
	if len(c.rename) > 0 {
		if err := f.fs.SyncDir("."); err != nil {
			return did, err
		}
	}
	for _, dir := range c.discard {
		if err := storage.RemoveAll(f.fs, dir); err != nil {
			return did, err
		}
		if kind, _ := parseName(dir); kind == tempName {
			did = append(did, "removed "+dir)
		}
	}
	return did, nil
}

// planRetention returns which of the listed checkpoints may go when keep
// complete ones are to stay: those committed before the keep latest complete
// ones. just, the one committed a moment ago, is the latest. keep 0 keeps all.
func planRetention(list []Listed, just, keep int) []Listed {
	if keep < 1 {
		return nil
	}
	var out []Listed
	kept := 0
	order := byCommit(list)
	for i := len(order) - 1; i >= 0; i-- {
		switch l := order[i]; {
		case kept < keep:
			if l.Status == Complete {
				kept++
			}
		case l.Status == Complete && l.Step != just:
			out = append(out, l)
		}
	}
	return out
}
