// Package faultfs is a file system in memory for tests. It fails and crashes
// where it is told to, and after a crash keeps as little as storage.FS promises:
//
//	fs := faultfs.New()
//	fs.CrashAfter(17)        // the 17th change is the last
//	err := save(fs)          // fails with ErrCrashed
//	after := fs.Crashed(rng) // one of the states the disk may be in
//
// What was written since a file's last Sync survives in any part: each write
// whole, torn, or not at all, later ones without earlier ones. What changed in a
// directory since its last SyncDir survives in any subset.
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"titan/checkpoint/storage"
)

// ErrCrashed is returned by every operation after the crash.
var ErrCrashed = errors.New("faultfs: crashed")

// Op is an operation as seen by a Fault.
type Op struct {
	N    int    // counted from 1 over all operations that change something
	Kind string // mkdir, create, write, sync, rename, remove, syncdir; and open, read, readdir, which do not count
	Name string
	Size int // of a write
}

// Fault decides what goes wrong: a non-nil error is returned instead of doing
// the operation. A write stores the first short bytes before it fails; with
// short < Size and a nil error it claims success, as no writer should.
type Fault func(op Op) (short int, err error)

// FS is a file system in memory. It may be used from several goroutines.
type FS struct {
	mu      sync.Mutex
	root    *node
	n       int
	crashAt int // 0: never
	crashed bool
	fault   Fault
	free    int // bytes until the disk is full; negative: never
	locks   map[string]bool
	noLocks bool
	trace   []Op
}

// node is a file or a directory. What is durable and what is pending on top
// of it are kept apart until a sync.
type node struct {
	dir      bool
	children map[string]*node // as seen by the running program
	durable  map[string]*node
	changes  []change

	data    []byte
	onDisk  []byte
	writes  []write
	charged int // bytes counted against the free space
}

// change sets names of a directory; a nil node removes the name.
type change map[string]*node

type write struct {
	off  int
	data []byte
}

func newDir() *node {
	return &node{dir: true, children: map[string]*node{}, durable: map[string]*node{}}
}

// New returns an empty file system.
func New() *FS {
	return &FS{root: newDir(), free: -1, locks: map[string]bool{}}
}

// CrashAfter makes the n-th change, counted from 1, the last one. 0 means never.
func (f *FS) CrashAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashAt = n
}

// SetFault sets what goes wrong; nil for nothing.
func (f *FS) SetFault(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// SetFree sets the bytes that fit before the disk is full; negative for no limit.
func (f *FS) SetFree(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = n
}

// SetNoLocks makes Lock fail as on storage without locks.
func (f *FS) SetNoLocks() { f.noLocks = true }

// Count returns the number of changes so far.
func (f *FS) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Trace returns the changes so far.
func (f *FS) Trace() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.trace)
}

// begin counts a change and asks for a fault. crash is true if this change is
// the last.
func (f *FS) begin(kind, name string, size int) (short int, crash bool, err error) {
	if f.crashed {
		return 0, false, ErrCrashed
	}
	op := Op{Kind: kind, Name: name, Size: size}
	short = size
	counts := kind != "open" && kind != "read" && kind != "readdir"
	if counts {
		f.n++
		f.trace = append(f.trace, Op{f.n, kind, name, size})
		crash = f.n == f.crashAt
	}
	op.N = f.n
	if f.fault != nil {
		short, err = f.fault(op)
		if err != nil {
			err = &fs.PathError{Op: kind, Path: name, Err: err}
		}
	}
	return short, crash, err
}

// change does one counted operation.
func (f *FS) change(kind, name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, crash, err := f.begin(kind, name, 0)
	if err == nil {
		if err = do(); err != nil {
			err = &fs.PathError{Op: kind, Path: name, Err: err}
		}
	}
	if crash {
		f.crashed = true
		return ErrCrashed
	}
	return err
}

// look does one operation that changes nothing.
func (f *FS) look(kind, name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, err := f.begin(kind, name, 0)
	if err == nil {
		if err = do(); err != nil {
			err = &fs.PathError{Op: kind, Path: name, Err: err}
		}
	}
	return err
}

func (f *FS) find(name string) (*node, error) {
	n := f.root
	if name = path.Clean(name); name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.children[part]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

func (f *FS) parent(name string) (dir *node, base string, err error) {
	d, err := f.find(path.Dir(path.Clean(name)))
	if err == nil && !d.dir {
		err = syscall.ENOTDIR
	}
	return d, path.Base(name), err
}

// apply makes a change visible and remembers it as pending.
func (n *node) apply(c change) {
	n.changes = append(n.changes, c)
	for name, child := range c {
		set(n.children, name, child)
	}
}

func set(m map[string]*node, name string, n *node) {
	if n == nil {
		delete(m, name)
	} else {
		m[name] = n
	}
}

func (f *FS) add(name string, n *node) error {
	d, base, err := f.parent(name)
	if err != nil {
		return err
	}
	if d.children[base] != nil {
		return fs.ErrExist
	}
	d.apply(change{base: n})
	return nil
}

// Mkdir implements storage.FS.
func (f *FS) Mkdir(name string) error {
	return f.change("mkdir", name, func() error { return f.add(name, newDir()) })
}

// Create implements storage.FS.
func (f *FS) Create(name string) (storage.File, error) {
	n := &node{}
	err := f.change("create", name, func() error { return f.add(name, n) })
	if err != nil {
		return nil, err
	}
	return &file{f: f, n: n, name: name}, nil
}

// Remove implements storage.FS.
func (f *FS) Remove(name string) error {
	return f.change("remove", name, func() error {
		d, base, err := f.parent(name)
		if err != nil {
			return err
		}
		n := d.children[base]
		switch {
		case n == nil:
			return fs.ErrNotExist
		case n.dir && len(n.children) > 0:
			return syscall.ENOTEMPTY
		}
		if f.free >= 0 {
			f.free += n.charged
		}
		d.apply(change{base: nil})
		return nil
	})
}

// Rename implements storage.FS.
func (f *FS) Rename(from, to string) error {
	return f.change("rename", from+" → "+to, func() error {
		if path.Dir(from) != path.Dir(to) {
			return errors.New("faultfs: renaming from one directory into another is not supported")
		}
		d, a, err := f.parent(from)
		if err != nil {
			return err
		}
		b := path.Base(to)
		n := d.children[a]
		switch old := d.children[b]; {
		case n == nil:
			return fs.ErrNotExist
		case old != nil && (old.dir || n.dir):
			return fs.ErrExist
		}
		d.apply(change{a: nil, b: n})
		return nil
	})
}

// SyncDir implements storage.FS.
func (f *FS) SyncDir(name string) error {
	return f.change("syncdir", name, func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		if !n.dir {
			return syscall.ENOTDIR
		}
		n.durable = maps.Clone(n.children)
		n.changes = nil
		return nil
	})
}

// ReadDir implements storage.FS.
func (f *FS) ReadDir(name string) (out []storage.Entry, err error) {
	err = f.look("readdir", name, func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		if !n.dir {
			return syscall.ENOTDIR
		}
		for _, base := range slices.Sorted(maps.Keys(n.children)) {
			c := n.children[base]
			out = append(out, storage.Entry{Name: base, Dir: c.dir, Size: int64(len(c.data))})
		}
		return nil
	})
	return out, err
}

// Open implements storage.FS.
func (f *FS) Open(name string) (storage.Object, error) {
	var o *object
	err := f.look("open", name, func() error {
		n, err := f.find(name)
		if err != nil {
			return err
		}
		if n.dir {
			return syscall.EISDIR
		}
		o = &object{f, n, name, int64(len(n.data))}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Path implements storage.FS.
func (f *FS) Path(name string) string { return path.Join("faultfs", name) }

// Lock implements storage.FS. The lock is gone after a crash.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.crashed:
		return nil, ErrCrashed
	case f.noLocks:
		return nil, fmt.Errorf("%s: %w", name, storage.ErrNoLocks)
	case f.locks[name]:
		return nil, fmt.Errorf("%s: %w", name, storage.ErrLocked)
	}
	f.locks[name] = true
	return unlock(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.locks, name)
	}), nil
}

type unlock func()

func (u unlock) Close() error {
	u()
	return nil
}
