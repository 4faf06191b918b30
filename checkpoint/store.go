package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"titan/checkpoint/storage"
)

// Options say how a Store saves. The zero value is a single process that keeps
// everything.
type Options struct {
	KeepLatest int               // complete checkpoints to keep; 0 keeps all
	Group      Group             // nil: a single process
	Creator    map[string]string // versions, for the manifest
	Recipe     string            // hash of the recipe, for the manifest
	ChunkSize  int64             // bytes that share a checksum; 0: 4 MiB
	FileSize   int64             // most bytes of a file, if its parts are smaller; 0: 4 GiB
	Workers    int               // files written at once; 0: 4

	now   func() time.Time // for tests
	nonce func() string
}

const (
	defaultChunk    = 4 << 20
	defaultFileSize = 4 << 30
	defaultWorkers  = 4
)

// Store saves checkpoints into a folder. Only one run can have a folder open as
// a Store. Its methods may be called from several goroutines; saves happen one
// after the other.
type Store struct {
	*Folder
	o    Options
	lock io.Closer

	mu     sync.Mutex
	saves  int  // so that keys of exchanges are never used twice
	dirty  bool // a save left something behind
	closed bool
	notes  []string
}

// NewStore opens a folder for saving. Process 0 takes the folder's lock, removes
// what a crashed run left half-written there, and brings back a checkpoint whose
// replacement did not complete. It fails if another run has the folder open, or
// if that cannot be done.
//
// On storage without locks nothing is removed, since it may belong to a run that
// is alive; Notes says so.
func NewStore(fsys storage.FS, o Options) (*Store, error) {
	if o.Group == nil {
		o.Group = Alone()
	}
	if o.KeepLatest < 0 || o.ChunkSize < 0 || o.FileSize < 0 || o.Workers < 0 {
		return nil, fmt.Errorf("checkpoint: options KeepLatest %d, ChunkSize %d, FileSize %d, Workers %d: none can be negative", o.KeepLatest, o.ChunkSize, o.FileSize, o.Workers)
	}
	if o.ChunkSize == 0 {
		o.ChunkSize = defaultChunk
	}
	if o.FileSize == 0 {
		o.FileSize = defaultFileSize
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.nonce == nil {
		o.nonce = randomNonce
	}
	s := &Store{Folder: NewFolder(fsys), o: o}
	if o.Group.Rank() != 0 {
		return s, nil
	}
	lock, err := fsys.Lock(lockName)
	switch {
	case errors.Is(err, storage.ErrNoLocks):
		s.note("the storage has no locks: left-overs of crashed saves are not removed")
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("checkpoint: opening %s for saving: %w", fsys.Path("."), err)
	}
	s.lock = lock
	did, err := s.tidy(o.nonce())
	s.notes = append(s.notes, did...)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("checkpoint: tidying %s after an earlier run: %w", fsys.Path("."), err)
	}
	return s, nil
}

func randomNonce() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (s *Store) note(text string) { s.notes = append(s.notes, text) }

// Notes returns what was found and tidied since the last call, for the log.
func (s *Store) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.notes
	s.notes = nil
	return out
}

// Close gives the folder's lock back.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}
