package faultfs

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// file is a file being written.
type file struct {
	f      *FS
	n      *node
	name   string
	closed bool
}

func (w *file) Write(p []byte) (int, error) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.closed {
		return 0, fs.ErrClosed
	}
	k, crash, err := w.f.begin("write", w.name, len(p))
	if err == ErrCrashed {
		return 0, err
	}
	if w.f.free >= 0 && k > w.f.free {
		k = w.f.free
		if err == nil {
			err = &fs.PathError{Op: "write", Path: w.name, Err: syscall.ENOSPC}
		}
	}
	if w.f.free >= 0 {
		w.f.free -= k
		w.n.charged += k
	}
	if k > 0 {
		w.n.writes = append(w.n.writes, write{len(w.n.data), slices.Clone(p[:k])})
		w.n.data = append(w.n.data, p[:k]...)
	}
	if crash {
		w.f.crashed = true
		return 0, ErrCrashed
	}
	return k, err
}

func (w *file) Sync() error {
	if w.closed {
		return fs.ErrClosed
	}
	err := w.f.change("sync", w.name, func() error {
		for _, p := range w.n.writes {
			w.n.onDisk = put(w.n.onDisk, p.off, p.data)
		}
		w.n.writes = nil
		return nil
	})
	if err != nil && err != ErrCrashed {
		// The kernel has given the pages up: a later sync does not bring them back.
		w.f.mu.Lock()
		w.n.writes = nil
		w.f.mu.Unlock()
	}
	return err
}

func (w *file) Close() error {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.closed {
		return fs.ErrClosed
	}
	w.closed = true
	if w.f.crashed {
		return ErrCrashed
	}
	return nil
}

// put stores p at an offset, filling a gap before it with zeros.
func put(data []byte, off int, p []byte) []byte {
	if need := off + len(p); len(data) < need {
		data = append(data, make([]byte, need-len(data))...)
	}
	copy(data[off:], p)
	return data
}

// object is a file being read.
type object struct {
	f    *FS
	n    *node
	name string
	size int64
}

func (o *object) Size() int64  { return o.size }
func (o *object) Close() error { return nil }

func (o *object) ReadAt(p []byte, off int64) (n int, err error) {
	err = o.f.look("read", o.name, func() error {
		if off < 0 {
			return fs.ErrInvalid
		}
		if off < int64(len(o.n.data)) {
			n = copy(p, o.n.data[off:])
		}
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
