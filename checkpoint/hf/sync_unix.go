//go:build unix

package hf

import (
	"errors"
	"os"
)

// syncPath makes a file, or the names in a directory, durable.
func syncPath(p string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
