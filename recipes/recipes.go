// Package recipes has the recipes that are built into the binary.
//
// A name that begins with an underscore is a part that others extend, and no
// recipe of its own.
package recipes

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names returns the recipes, sorted, without ".toml" and without parts.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil // an embedded folder can be read
	}
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".toml"); !strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Read returns the text of a recipe or part, given without ".toml". The error
// is an fs.ErrNotExist if there is none.
func Read(name string) ([]byte, error) {
	if strings.ContainsAny(name, `/\`) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return files.ReadFile(name + ".toml")
}
