//go:build !unix

package indexed

import (
	"io"
	"os"
)

// Without flock two writers of one dataset are not kept apart.
func lock(*os.File) error { return nil }

// mapFile reads the file: slower to open, and it must fit into memory.
func mapFile(f *os.File, size int64) ([]byte, error) {
	b := make([]byte, size)
	_, err := io.ReadFull(f, b)
	return b, err
}

func unmapFile([]byte) error { return nil }
