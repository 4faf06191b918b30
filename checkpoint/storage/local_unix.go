//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lockFile takes an advisory lock that the kernel gives back when the process
// ends, however it ends. The file stays; it says who had the lock last.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		host, _ := os.Hostname()
		if err = f.Truncate(0); err == nil {
			_, err = fmt.Fprintf(f, "process %d on %s\n", os.Getpid(), host)
		}
		if err == nil {
			return f, nil
		}
		f.Close()
		return nil, err
	}
	defer f.Close()
	switch err {
	case syscall.EWOULDBLOCK:
		who, _ := io.ReadAll(io.LimitReader(f, 300))
		if s := strings.TrimSpace(string(who)); s != "" {
			return nil, fmt.Errorf("%s: %w (%s)", path, ErrLocked, s)
		}
		return nil, fmt.Errorf("%s: %w", path, ErrLocked)
	case syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EINVAL:
		return nil, fmt.Errorf("%s: %w (%v)", path, ErrNoLocks, err)
	}
	return nil, fmt.Errorf("%s: locking: %w", path, err)
}
