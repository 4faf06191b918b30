package houserules

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const dependencyList = "docs/dependencies.md"

var (
	requireLine = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+) v\S+`)
	toolLine    = regexp.MustCompile(`(?m)^(?:tool)?\s+(\S+\.\S+)$`)
	// A row of the table: the module, and why it is there.
	dependencyRow = regexp.MustCompile("(?m)^\\| `(\\S+\\.\\S+/\\S+)` \\|([^|\n]*)\\|")
)

// CheckDependencies compares the modules that the sources import, or go.mod
// lists as tools, with the table of docs/dependencies.md: every one has its
// row, and every row is used.
func CheckDependencies(checkout fs.FS) ([]string, error) {
	mod, err := fs.ReadFile(checkout, "go.mod")
	if err != nil {
		return nil, err
	}
	page, err := fs.ReadFile(checkout, dependencyList)
	if err != nil {
		return nil, err
	}
	var required []string
	for _, m := range requireLine.FindAllSubmatch(mod, -1) {
		required = append(required, string(m[1]))
	}
	used, err := imported(checkout) // package to one file that imports it
	if err != nil {
		return nil, err
	}
	for _, m := range toolLine.FindAllSubmatch(mod, -1) {
		used[string(m[1])] = "go.mod"
	}
	direct := map[string]string{}
	for pkg, file := range used {
		if m := provider(pkg, required); m != "" {
			direct[m] = file
		}
	}
	justified := map[string]bool{}
	var found []string
	for _, m := range dependencyRow.FindAllSubmatch(page, -1) {
		name := string(m[1])
		switch {
		case justified[name]:
			found = append(found, fmt.Sprintf("%s lists %s twice", dependencyList, name))
		case direct[name] == "":
			found = append(found, fmt.Sprintf("%s lists %s, which nothing imports", dependencyList, name))
		case strings.TrimSpace(string(m[2])) == "":
			found = append(found, fmt.Sprintf("%s lists %s without a reason", dependencyList, name))
		}
		justified[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		if !justified[name] {
			found = append(found, fmt.Sprintf("%s uses %s, which has no row in %s", direct[name], name, dependencyList))
		}
	}
	return found, nil
}

// provider returns the required module that pkg belongs to: the longest whose
// path is pkg's or a parent's.
func provider(pkg string, required []string) string {
	best := ""
	for _, m := range required {
		if (pkg == m || strings.HasPrefix(pkg, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// imported maps each imported package to the last file, in order, that imports
// it. Tests count: what they import is fetched as well.
func imported(checkout fs.FS) (map[string]string, error) {
	out := map[string]string{}
	err := fs.WalkDir(checkout, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (skip(name) || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		content, err := fs.ReadFile(checkout, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly)
		if err != nil {
			return nil // Check reports it
		}
		for _, spec := range file.Imports {
			if pkg, err := strconv.Unquote(spec.Path.Value); err == nil {
				out[pkg] = name
			}
		}
		return nil
	})
	return out, err
}
