package configs

import (
	"fmt"
	"slices"
	"strings"
)

// extendsKey is the key by which a recipe builds on another.
const extendsKey = "extends"

// maxChain bounds how many recipes build on each other.
const maxChain = 32

// readChain reads a recipe and what it extends, and returns them merged.
func readChain(name string) (*node, []string, []Problem) {
	var (
		problems []Problem
		docs     []*node // the recipe first
		seen     []*source
		files    []string
	)
	src, err := find(name, "", false)
	if err != nil {
		return nil, nil, []Problem{{Place{File: "--config"}, "", err.Error()}}
	}
	for src != nil {
		seen, files = append(seen, src), append(files, src.name)
		doc, bad := parse(src.content, src.name, len(seen)-1)
		problems = append(problems, bad...)
		if doc == nil {
			break // nothing is known of what it extends
		}
		docs = append(docs, doc)
		next, bad := extended(doc, seen)
		problems = append(problems, bad...)
		src = next
	}
	if len(problems) > 0 {
		return nil, files, problems
	}
	var merged *node
	for _, doc := range slices.Backward(docs) {
		merged = merge(merged, doc)
	}
	return merged, files, nil
}

// extended takes the key "extends" out of a document and finds what it names,
// nil if there is no such key.
func extended(doc *node, seen []*source) (*source, []Problem) {
	v := doc.table[extendsKey]
	if v == nil {
		return nil, nil
	}
	delete(doc.table, extendsKey)
	doc.keys = slices.DeleteFunc(doc.keys, func(k string) bool { return k == extendsKey })
	bad := func(format string, args ...any) (*source, []Problem) {
		return nil, []Problem{{v.at, extendsKey, fmt.Sprintf(format, args...)}}
	}
	if v.kind != stringKind {
		return bad("expected a string, the path of a recipe or the name of a built-in one, got %s", v.describe())
	}
	from := seen[len(seen)-1]
	src, err := find(v.text, from.dir, from.builtin)
	if err != nil {
		return bad("%v", err)
	}
	for i, s := range seen {
		if s.id != src.id {
			continue
		}
		var chain []string
		for _, s := range seen[i:] {
			chain = append(chain, s.name)
		}
		what := "recipes extend each other in a circle"
		if len(chain) == 1 {
			what = "the recipe extends itself"
		}
		return bad("%s: %s → %s", what, strings.Join(chain, " → "), src.name)
	}
	if len(seen) >= maxChain {
		return bad("more than %d recipes build on each other", maxChain)
	}
	return src, nil
}
