package main

import (
	"fmt"

	"titan/internal/wholefile"
)

// writeOutput writes a file that a flag asked for: all of it, or what was there stays.
func writeOutput(flag, path string, content []byte) error {
	if err := wholefile.Write(path, content); err != nil {
		return fmt.Errorf("%s: nothing is written: %w; name a file in a folder that exists and has room", flag, err)
	}
	return nil
}
