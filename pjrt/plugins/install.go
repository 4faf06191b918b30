package plugins

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// InstallOptions changes how a plugin is installed.
type InstallOptions struct {
	// Wheel is a wheel file on this machine, instead of fetching it. It must
	// still be the pinned one.
	Wheel string
	// Force installs again what is installed.
	Force bool
	// Log gets progress lines and pip's output; nil is silent. On a terminal
	// pip shows its progress bar.
	Log io.Writer
	// Python is the interpreter whose pip fetches wheels; "" means python3.
	Python string
}

const lockName = ".lock"

// Install puts the pinned version of a plugin into the cache and returns the
// library's path. The cache changes in one step: an interrupted or failed
// installation leaves what was there. Installations of one plugin wait for each
// other.
func Install(ctx context.Context, name string, o InstallOptions) (string, error) {
	w, err := Pinned(name)
	if err != nil {
		return "", err
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := supported(runtime.GOOS, runtime.GOARCH); err != nil {
		return "", err
	}
	path := ""
	if err = checkGlibc(w, GlibcVersion()); err == nil {
		path, err = install(ctx, w, o)
	}
	if err != nil {
		return "", fmt.Errorf("installing the %s plugin: %w", name, explain(err))
	}
	return path, nil
}

func install(ctx context.Context, w Wheel, o InstallOptions) (string, error) {
	dir, err := pluginDir(w.Plugin)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir, o.Log)
	if err != nil {
		return "", err
	}
	defer unlock()
	final := filepath.Join(dir, w.dirName())
	if path, err := check(w, final); err == nil && !o.Force {
		fmt.Fprintf(o.Log, "%s %s is installed: %s\n", w.Package, w.Version, path)
		return path, nil
	}
	// With the lock held, temporary folders are left from installations that died.
	if err := removeLeftovers(dir); err != nil {
		return "", err
	}
	if err := checkSpace(dir, w, o.Wheel == ""); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, tmpPrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)

	wheel := o.Wheel
	if wheel == "" {
		if wheel, err = download(ctx, w, o, tmp); err != nil {
			return "", err
		}
	}
	if err := checkWheel(ctx, w, wheel); err != nil {
		return "", err
	}
	fresh := filepath.Join(tmp, "new")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return "", err
	}
	fmt.Fprintf(o.Log, "unpacking %s (%d MB)\n", w.Member, w.LibrarySize/1e6)
	if err := unpack(ctx, w, wheel, fresh); err != nil {
		return "", err
	}
	if err := commit(fresh, final, tmp); err != nil {
		return "", err
	}
	if w.Note != "" {
		fmt.Fprintln(o.Log, w.Note)
	}
	return filepath.Join(final, w.library()), nil
}

const tmpPrefix = ".tmp-"

func removeLeftovers(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*"))
	if err != nil {
		return err
	}
	for _, l := range left {
		if err := os.RemoveAll(l); err != nil {
			return err
		}
	}
	return nil
}

// lock waits for the plugin's lock file; the kernel releases it when a process
// dies. It asks again and again because a blocked flock cannot be interrupted.
func lock(ctx context.Context, dir string, log io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for said := false; ; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		if !said {
			fmt.Fprintln(log, "waiting for another process that is changing this plugin")
			said = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// checkSpace refuses early what would fill the disk.
func checkSpace(dir string, w Wheel, fetch bool) error {
	need := w.LibrarySize
	if fetch {
		need += 2 * w.Size // pip keeps a second copy while it moves the file
	}
	if free, err := FreeSpace(dir); err == nil && free < need {
		return fmt.Errorf("%s has %d MB free and %d MB are needed: %w", dir, free/1e6, need/1e6, syscall.ENOSPC)
	}
	return nil
}

// FreeSpace is the number of bytes a user may still write in dir.
func FreeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// errWheel marks failures to read the wheel.
var errWheel = errors.New("the wheel cannot be read")

func checkWheel(ctx context.Context, w Wheel, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errWheel, err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(io.Discard, &reader{ctx, f, h}); err != nil {
		return fmt.Errorf("%w: %w", errWheel, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != w.SHA256 {
		return fmt.Errorf("the wheel %s has sha256 %s, pinned for %s %s is %s; it was not installed", filepath.Base(path), got, w.Package, w.Version, w.SHA256)
	}
	return nil
}

// unpack writes the library and its manifest to dir, flushed to disk.
func unpack(ctx context.Context, w Wheel, wheel, dir string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("reading %s: %w", wheel, err)
	}
	defer z.Close()
	src, err := z.Open(w.Member)
	if err != nil {
		return fmt.Errorf("%s has no %s", wheel, w.Member)
	}
	defer src.Close()
	h := sha256.New()
	path := filepath.Join(dir, w.library())
	n, err := writeFile(path, &reader{ctx, src, h})
	if err != nil {
		return err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if n != w.LibrarySize || sum != w.LibrarySHA256 {
		return fmt.Errorf("%s unpacks to %d bytes with sha256 %s, expected %d bytes with %s", w.Member, n, sum, w.LibrarySize, w.LibrarySHA256)
	}
	raw, err := json.MarshalIndent(manifest{w.Package, w.Version, w.library(), sum, n}, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeFile(filepath.Join(dir, manifestName), strings.NewReader(string(raw)+"\n"))
	return err
}

// reader hashes what it reads and stops when the context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
	h   hash.Hash
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	r.h.Write(p[:n])
	return n, err
}

func writeFile(path string, r io.Reader) (int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, r)
	return n, errors.Join(err, f.Sync(), f.Close())
}

// commit makes fresh the installed version. One that is there, damaged or
// installed again by force, changes places with it and goes with tmp.
func commit(fresh, final, tmp string) error {
	if err := syncDir(fresh); err != nil {
		return err
	}
	_, err := os.Lstat(final)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.Rename(fresh, final)
	case err == nil:
		err = exchange(fresh, final)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) { // not on this file system or kernel
			err = replace(fresh, final, filepath.Join(tmp, "old"))
		}
	}
	if err != nil {
		return fmt.Errorf("moving the new version to %s: %w", final, err)
	}
	return syncDir(filepath.Dir(final))
}

// replace moves final aside and fresh into its place, or puts final back.
func replace(fresh, final, aside string) error {
	if err := os.Rename(final, aside); err != nil {
		return err
	}
	if err := os.Rename(fresh, final); err != nil {
		return errors.Join(err, os.Rename(aside, final))
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// explain adds what to do about the failures of the machine.
func explain(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; nothing was installed")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("took too long; nothing was installed")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w; nothing was installed. Free some space (or raise the quota) or point XDG_CACHE_HOME elsewhere", err)
	case errors.Is(err, errWheel): // the user's file, not the cache
		return err
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w; the cache must be a folder that can be written: mend it or point XDG_CACHE_HOME elsewhere", err)
	}
	return err
}
