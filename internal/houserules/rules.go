package houserules

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxLines is the length of the longest Go file allowed.
const MaxLines = 500

const (
	module    = "titan"
	houseList = "docs/architecture.md"
)

// strangers are pairs whose import points down the house list, but which the
// list's last column keeps apart: the first knows nothing of the second.
var strangers = map[[2]string]bool{
	{"launch", "models"}: true,
	{"report", "pjrt"}:   true,
	{"plan", "data"}:     true,
	{"data", "pjrt"}:     true,
	{"models", "pjrt"}:   true,
	{"graph", "pjrt"}:    true,
}

// outside are folders beside the product: they may import all of it, and none
// of it imports them.
var outside = []string{"bench", "examples"}

// forTests says whether a package under internal is for tests, by its name: it
// counts as outside. The others there are helpers below everything.
func forTests(p string) bool {
	name, ok := strings.CutPrefix(p, "internal/")
	return ok && (strings.HasSuffix(top(name), "test") || top(name) == "houserules")
}

// Check returns the violations in a checkout, each with its place, in order.
func Check(checkout fs.FS) ([]string, error) {
	house, err := readHouse(checkout)
	if err != nil {
		return nil, err
	}
	var found []string
	err = fs.WalkDir(checkout, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skip(name):
			return fs.SkipDir
		case !d.Type().IsRegular() || name == ".git": // a file in a linked worktree
			return nil
		}
		content, err := fs.ReadFile(checkout, name)
		if err != nil {
			return err
		}
		found = append(found, checkText(name, content)...)
		switch {
		case name == "go.mod":
			found = append(found, checkMod(content)...)
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			found = append(found, checkLength(name, content)...)
			found = append(found, checkImports(name, content, house)...)
		}
		return nil
	})
	return found, err
}

// skip says which folders are no part of the sources.
func skip(name string) bool {
	base := path.Base(name)
	return name == "bin" || name == "outputs" || strings.HasPrefix(base, ".") && name != "." && name != ".ci"
}

var houseRow = regexp.MustCompile("(?m)^\\| `([^`]+)`")

// readHouse returns the top-level folders from top to bottom.
func readHouse(checkout fs.FS) ([]string, error) {
	text, err := fs.ReadFile(checkout, houseList)
	if err != nil {
		return nil, err
	}
	var house []string
	for _, m := range houseRow.FindAllSubmatch(text, -1) {
		folder := top(string(m[1]))
		if slices.Contains(house, folder) {
			return nil, fmt.Errorf("%s lists %s twice", houseList, folder)
		}
		house = append(house, folder)
	}
	if len(house) == 0 {
		return nil, fmt.Errorf("%s has no table of folders", houseList)
	}
	return house, nil
}

func top(p string) string {
	folder, _, _ := strings.Cut(p, "/")
	return folder
}

func checkImports(name string, content []byte, house []string) []string {
	from := top(name)
	if slices.Contains(outside, from) || forTests(name) {
		return nil
	}
	level := slices.Index(house, from)
	if from == "internal" {
		level = len(house)
	} else if level < 0 {
		return []string{fmt.Sprintf("%s: the folder %s is not in the table of %s", name, from, houseList)}
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ImportsOnly)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, spec := range file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !strings.HasPrefix(p, module+"/") {
			continue
		}
		p = strings.TrimPrefix(p, module+"/")
		to := top(p)
		says := ""
		switch {
		case slices.Contains(outside, to) || forTests(p):
			says = "which is no part of the product"
		case to == from || to == "internal":
		case slices.Index(house, to) < level: // or not in the house at all
			says = fmt.Sprintf("which is not below %s in the table of %s", from, houseList)
		case strangers[[2]string{from, to}]:
			says = fmt.Sprintf("of which %s knows nothing", from)
		}
		if says != "" {
			found = append(found, fmt.Sprintf("%s imports %s/%s, %s", set.Position(spec.Pos()), module, p, says))
		}
	}
	return found
}

func checkLength(name string, content []byte) []string {
	if n := bytes.Count(content, []byte("\n")); n > MaxLines {
		return []string{fmt.Sprintf("%s has %d lines, more than %d: split it by its jobs", name, n, MaxLines)}
	}
	return nil
}

// Spelled in pieces, so that this file passes its own rule.
var (
	machinePath = regexp.MustCompile(`(^|[^\w./-])/(work|opt|root|farm|home|Users)/\w|\.\./sha` + `red/`)
	registry    = regexp.MustCompile(`\bpy` + `pi\.org|python` + `hosted\.org|\b(proxy|sum)\.go` + `lang\.org|\bGO` + `PROXY=|\bindex-` + `url\b`)
)

func checkText(name string, content []byte) []string {
	var found []string
	for i, line := range bytes.Split(content, []byte("\n")) {
		if m := machinePath.Find(line); m != nil {
			found = append(found, fmt.Sprintf("%s:%d names a path of a developer's machine (%q)", name, i+1, m))
		}
		if m := registry.Find(line); m != nil {
			found = append(found, fmt.Sprintf("%s:%d names a package registry (%q); pip and go know theirs", name, i+1, m))
		}
	}
	return found
}

var replaceLine = regexp.MustCompile(`(?m)^\s*replace\b`)

func checkMod(content []byte) []string {
	var found []string
	for _, at := range replaceLine.FindAllIndex(content, -1) {
		line := bytes.Count(content[:at[1]], []byte("\n")) + 1
		found = append(found, fmt.Sprintf("go.mod:%d replaces a module; users of go install would not get it", line))
	}
	return found
}
