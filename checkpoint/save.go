package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"titan/checkpoint/storage"
)

// Saved is the outcome of a save.
type Saved struct {
	Step    int
	Path    string   // of the checkpoint
	Bytes   int64    // written by this process
	Removed []int    // steps that were retired, on process 0
	Notes   []string // what went wrong without harm to the checkpoint
}

// Save writes a checkpoint. When it returns without an error the checkpoint is
// complete and durable. When it fails nothing of it is visible, except that a
// failure after the commit, or of the storage while taking back, may leave a
// complete one; a checkpoint that was there before is still there, too.
//
// In a group all processes call Save with the same step, mesh and tensors, and
// all fail if one does. A checkpoint of the same step is replaced once its
// successor is complete.
func (s *Store) Save(ctx context.Context, snap Snapshot) (*Saved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap.Release != nil {
		defer snap.Release()
	}
	run, err := s.begin(&snap)
	if err != nil {
		return nil, err
	}
	for {
		more, err := run.advance(ctx)
		if err != nil {
			return nil, err
		}
		if !more {
			return run.result, nil
		}
	}
}

// saveRun is one save of one process.
type saveRun struct {
	s       *Store
	p       *protocol
	snap    *Snapshot
	key     string // before the phase in exchanges
	files   []file
	state   map[string]json.RawMessage
	next    int // generation
	partial *partial
	result  *Saved
	retired bool
}

// begin prepares a save. Even if that fails the save must go on to the first
// exchange, for the others wait there.
func (s *Store) begin(snap *Snapshot) (*saveRun, error) {
	if s.closed {
		return nil, fmt.Errorf("checkpoint: saving step %d: the store is closed", snap.Step)
	}
	rank, size := s.o.Group.Rank(), s.o.Group.Size()
	run := &saveRun{s: s, snap: snap, key: fmt.Sprintf("checkpoint/save/%d/", s.saves), result: &Saved{Step: snap.Step}}
	s.saves++
	occupied := false
	content := ""
	err := run.prepare(rank, size)
	if err == nil {
		content = snap.digest()
	}
	if err == nil && rank == 0 {
		occupied, err = run.look()
	}
	final, nonce := stepDir(max(snap.Step, 0)), s.o.nonce()
	run.result.Path = s.fs.Path(final)
	work := func(k nameKind) string { return workDir(max(snap.Step, 0), nonce, k) }
	run.p = newProtocol(rank, size, content, work(tempName), final, work(oldName), work(trashName), occupied)
	if err != nil {
		run.p.fail(err)
	}
	return run, nil
}

// prepare checks the snapshot and divides the work.
func (r *saveRun) prepare(rank, size int) error {
	if r.snap.Step < 0 {
		return fmt.Errorf("step %d is negative", r.snap.Step)
	}
	if rank < 0 || rank >= size {
		return fmt.Errorf("process %d of %d", rank, size)
	}
	parts, err := assign(r.snap, rank, size)
	if err != nil {
		return err
	}
	if r.snap.Shard == nil && len(parts) > 0 {
		return errors.New("the snapshot has no function Shard")
	}
	r.files = divide(r.snap, parts, rank, r.s.o.FileSize, r.s.o.Workers)
	for _, f := range r.files {
		r.result.Bytes += f.bytes()
	}
	r.state, err = r.snap.encodeState()
	return err
}

// look finds out what stands in the folder.
func (r *saveRun) look() (occupied bool, err error) {
	s := r.s
	if s.dirty && s.lock != nil {
		did, err := s.tidy(s.o.nonce())
		s.notes = append(s.notes, did...)
		if err != nil {
			return false, fmt.Errorf("tidying after a failed save: %w", err)
		}
	}
	s.dirty = true // until this save has ended well
	list, err := s.List()
	if err != nil {
		return false, err
	}
	for _, l := range list {
		if l.unreadable { // so is the count of commits
			return false, fmt.Errorf("a checkpoint that is there cannot be read: %w", l.Err)
		}
		r.next = max(r.next, l.generation)
		if l.Step != r.snap.Step {
			continue
		}
		// One that was damaged is replaced: the run may have fallen back behind it.
		if l.Status != Complete && l.Status != Damaged || l.dir != stepDir(l.Step) {
			if l.Err == nil {
				l.Err = fmt.Errorf("%s waits to be brought back", s.fs.Path(l.dir))
			}
			return false, fmt.Errorf("its place is taken; move it away first: %w", l.Err)
		}
		occupied = true
	}
	r.next++
	return occupied, nil
}

// advance does one operation of the protocol. It returns false when the save has
// ended well.
func (r *saveRun) advance(ctx context.Context) (more bool, err error) {
	o, ok := r.p.next()
	if !ok {
		return r.finish()
	}
	if err := r.stop(ctx, o); err != nil {
		r.p.done(err, nil)
		return true, nil
	}
	var replies [][]byte
	switch fsys := r.s.fs; o.kind {
	case opExchange:
		replies, err = r.s.o.Group.Exchange(ctx, r.key+o.name, r.p.message())
	case opMkdir:
		err = fsys.Mkdir(o.name)
	case opShards:
		r.partial, err = writeShards(ctx, fsys, o.name, r.snap, r.files, r.s.o.ChunkSize, r.s.o.Workers)
	case opPartial:
		err = r.writePartial(o.name)
	case opManifest:
		err = r.writeManifest(o.name)
	case opRename:
		err = fsys.Rename(o.name, o.to)
	case opSyncDir:
		err = fsys.SyncDir(o.name)
	case opRemoveAll:
		err = storage.RemoveAll(fsys, o.name)
	}
	r.p.done(err, replies)
	return true, nil
}

// stop gives up before an operation if ctx is done, but not once the manifest is
// written: from there it is as quick to finish.
func (r *saveRun) stop(ctx context.Context, o op) error {
	if r.p.undoing || r.p.committed || o.kind != opMkdir && o.kind != opShards && o.kind != opPartial && o.kind != opManifest {
		return nil
	}
	return ctx.Err()
}

// finish ends a save that has nothing left to do.
func (r *saveRun) finish() (more bool, err error) {
	if r.p.err != nil {
		return false, fmt.Errorf("checkpoint: saving step %d to %s: %w", r.snap.Step, r.result.Path, r.p.err)
	}
	if r.p.warn != nil {
		r.result.Notes = append(r.result.Notes, r.p.warn.Error())
	} else if r.p.leads() {
		r.s.dirty = false
	}
	if r.p.leads() && !r.retired {
		r.retired = true
		if err := r.retire(); err != nil {
			r.s.dirty = true
			r.result.Notes = append(r.result.Notes, fmt.Sprintf("removing older checkpoints: %v", err))
		}
	}
	return false, nil
}

// retire removes the checkpoints beyond those to keep. Each is first renamed, and
// that made durable, so that none is ever seen in part.
func (r *saveRun) retire() error {
	s := r.s
	if s.o.KeepLatest == 0 {
		return nil
	}
	list, err := s.List()
	if err != nil {
		return err
	}
	nonce := s.o.nonce()
	for _, l := range planRetention(list, r.snap.Step, s.o.KeepLatest) {
		trash := workDir(l.Step, nonce, trashName)
		if err := s.fs.Rename(l.dir, trash); err != nil {
			return err
		}
		if err := s.fs.SyncDir("."); err != nil {
			return err
		}
		r.result.Removed = append(r.result.Removed, l.Step)
		if err := storage.RemoveAll(s.fs, trash); err != nil {
			return err
		}
	}
	return nil
}

// writePartial writes what this process did for the leader to merge.
func (r *saveRun) writePartial(dir string) error {
	raw, err := json.Marshal(r.partial)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	r.p.partial = hex.EncodeToString(sum[:])
	return storage.WriteFile(r.s.fs, path.Join(dir, partialName(r.p.rank)), raw)
}

// readPartials returns what every process wrote.
func (r *saveRun) readPartials(dir string) ([]*partial, error) {
	if r.p.size == 1 {
		return []*partial{r.partial}, nil
	}
	out := make([]*partial, r.p.size)
	for i := range out {
		name := path.Join(dir, partialName(i))
		raw, err := storage.ReadFile(r.s.fs, name, maxManifest)
		if err != nil {
			return nil, fmt.Errorf("what process %d wrote cannot be seen; the folder must be on storage that all hosts share: %w", i, err)
		}
		sum := sha256.Sum256(raw)
		if hex.EncodeToString(sum[:]) != r.p.partials[i] {
			return nil, fmt.Errorf("%s is not what process %d wrote", r.s.fs.Path(name), i)
		}
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", r.s.fs.Path(name), err)
		}
		if err := r.s.fs.Remove(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// writeManifest merges what all processes wrote, checks that it is there and
// complete, and writes the manifest and the marker that will become COMMIT.
func (r *saveRun) writeManifest(dir string) error {
	parts, err := r.readPartials(dir)
	if err != nil {
		return err
	}
	m := r.manifest()
	for _, p := range parts {
		first := len(m.Files)
		m.Files = append(m.Files, p.Files...)
		for _, piece := range p.Pieces {
			if piece.Tensor < 0 || piece.Tensor >= len(m.Tensors) {
				return fmt.Errorf("a process wrote a part of tensor %d of %d", piece.Tensor, len(m.Tensors))
			}
			t := &m.Tensors[piece.Tensor]
			piece.File += first
			t.Pieces = append(t.Pieces, piece.Piece)
		}
	}
	if err := m.check(); err != nil {
		return fmt.Errorf("the processes did not write every part once: %w", err)
	}
	entries, err := r.s.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	sizes := map[string]int64{}
	for _, e := range entries {
		sizes[e.Name] = e.Size
	}
	for _, f := range m.Files {
		if size, ok := sizes[f.Name]; !ok || size != f.Size {
			return fmt.Errorf("%s has %d bytes of %d as seen by process 0; the folder must be on storage that all hosts share", r.s.fs.Path(path.Join(dir, f.Name)), size, f.Size)
		}
	}
	raw, err := m.encode()
	if err != nil {
		return err
	}
	if err := storage.WriteFile(r.s.fs, path.Join(dir, manifestName), raw); err != nil {
		return err
	}
	mark, err := json.Marshal(newMarker(m, raw))
	if err != nil {
		return err
	}
	return storage.WriteFile(r.s.fs, path.Join(dir, pendingName), append(mark, '\n'))
}

// manifest returns the manifest without files and pieces.
func (r *saveRun) manifest() *Manifest {
	m := &Manifest{
		Format: formatName, Version: formatVersion, Step: r.snap.Step, Generation: r.next,
		Created: r.s.o.now().UTC().Round(0), Creator: r.s.o.Creator, Recipe: r.s.o.Recipe,
		Processes: r.p.size, State: r.state, ChunkSize: r.s.o.ChunkSize,
	}
	for _, a := range r.snap.Mesh.Axes() {
		m.Mesh = append(m.Mesh, Axis(a))
	}
	for _, t := range r.snap.Tensors {
		info := TensorInfo{Name: t.Name, DType: t.DType.Safetensors(), Shape: append([]int{}, t.Shape...), Spec: make([][]string, len(t.Shape))}
		for d := range info.Spec {
			info.Spec[d] = append([]string{}, t.Spec.Dim(d)...)
		}
		m.Tensors = append(m.Tensors, info)
	}
	return m
}
