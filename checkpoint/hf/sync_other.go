//go:build !unix

package hf

// syncPath does nothing: here a file cannot be synced once it is closed, and a
// directory not at all.
func syncPath(string) error { return nil }
