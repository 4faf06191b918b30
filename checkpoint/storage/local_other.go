//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package storage

import (
	"fmt"
	"io"
)

// syncDir does nothing: these systems cannot sync a directory.
func syncDir(string) error { return nil }

func lockFile(path string) (io.Closer, error) { return nil, fmt.Errorf("%s: %w", path, ErrNoLocks) }
