// Package storage is what a checkpoint folder stands on: a few file operations
// with their durability spelled out, so that the commit protocol above can be
// tested against every way in which they fail.
//
// Local is a directory of this machine, or one that all hosts mount. Package
// faultfs is a file system in memory that crashes on demand. Object storage can
// be added as a further FS.
package storage

import (
	"errors"
	"io"
)

// FS is a tree of files. Names are slash-separated and relative to its root,
// "." being the root itself. Errors satisfy errors.Is with the values of io/fs
// where those apply.
//
// Nothing is durable before it is synced. After a crash a file may hold any part
// of what was written since its last Sync, and a directory may have taken any
// of the changes (new names, renames, removals) since its last SyncDir, each
// of them whole or not at all.
type FS interface {
	// Mkdir makes a directory; it fails if the name exists.
	Mkdir(name string) error
	// Create makes a file for writing; it fails if the name exists.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (Object, error)
	// ReadDir lists a directory by name.
	ReadDir(name string) ([]Entry, error)
	// Rename moves a file or directory within one directory, replacing a file of
	// the new name.
	Rename(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// SyncDir makes the names in a directory durable, but not the content of
	// its files.
	SyncDir(name string) error
	// Lock takes the lock of this name until it is closed or the process ends.
	// It fails at once: with ErrLocked if somebody else has it, with
	// ErrNoLocks if the storage has no locks.
	Lock(name string) (io.Closer, error)
	// Path returns a name as a user would write it.
	Path(name string) string
}

// File is a file being written.
type File interface {
	io.Writer
	// Sync makes the content durable. If it fails, what was written since the
	// last Sync may be lost even if a later Sync succeeds.
	Sync() error
	Close() error
}

// Object is a file being read, from several goroutines if need be.
type Object interface {
	io.ReaderAt
	Size() int64
	Close() error
}

// Entry is a name in a directory.
type Entry struct {
	Name string
	Dir  bool
	Size int64 // of a file, in bytes
}

// Errors of Lock.
var (
	ErrLocked  = errors.New("in use by another process")
	ErrNoLocks = errors.New("this storage has no locks")
)
