//go:build !unix

package safetensors

import "os"

// mapFile maps nothing: the file is read instead.
func mapFile(*os.File, int64) ([]byte, func() error, error) {
	return nil, func() error { return nil }, nil
}

// syncDir does nothing: these systems cannot sync a directory.
func syncDir(string) error { return nil }
