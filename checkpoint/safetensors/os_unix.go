//go:build unix

package safetensors

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// mapFile maps size bytes of f for reading. It returns nil data where there is
// nothing to map.
func mapFile(f *os.File, size int64) (data []byte, unmap func() error, err error) {
	none := func() error { return nil }
	if size == 0 || int64(int(size)) != size {
		return nil, none, nil
	}
	data, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err == syscall.ENODEV || err == syscall.ENOSYS || err == syscall.EOPNOTSUPP {
		return nil, none, nil // a file system without mmap: read instead
	}
	if err != nil {
		return nil, nil, err
	}
	return data, func() error { return syscall.Munmap(data) }, nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("safetensors: syncing %s: %w", dir, err)
	}
	return nil
}
