package configs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"titan/internal/recipekey"
)

// override puts "section.key=value" into a document. The value is TOML; where a
// string is expected, also bare text.
func override(doc *node, text string) []Problem {
	at := Place{Set: text, order: setOrder}
	bad := func(key, format string, args ...any) []Problem {
		return []Problem{{at, key, fmt.Sprintf(format, args...)}}
	}
	if text == "" {
		at.Set = `""`
	}
	if !utf8.ValidString(text) {
		return bad("", "is not UTF-8")
	}
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return bad("", "there is no =; write --set section.key=value")
	}
	path, err := splitKey(strings.TrimSpace(key))
	if err != nil {
		return bad("", "%v", err)
	}
	if len(path) == 1 && path[0].name == extendsKey {
		return bad(extendsKey, "cannot be set here; name the other recipe with --config")
	}
	return setPath(doc, path, "", bareOrTOML(strings.TrimSpace(value), at), bad)
}

// step is one part of a key: a name and, of an array's element, its index.
type step struct {
	name  string
	index int // -1: none
}

var stepPattern = regexp.MustCompile(`^([A-Za-z0-9_-]+)(?:\[(\d{1,6})\])?$`)

func splitKey(key string) ([]step, error) {
	var path []step
	for part := range strings.SplitSeq(key, ".") {
		m := stepPattern.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, fmt.Errorf("%q is no key; write --set section.key=value", shorten(key))
		}
		s := step{m[1], -1}
		if m[2] != "" {
			s.index, _ = strconv.Atoi(m[2]) // six digits at most
		}
		path = append(path, s)
	}
	return path, nil
}

// setPath puts a value into a document, in tables that are made where they are
// missing.
func setPath(t *node, path []step, table string, value *node, bad func(string, string, ...any) []Problem) []Problem {
	s, last := path[0], len(path) == 1
	key := joinKey(table, s.name)
	old := t.table[s.name]
	if s.index >= 0 {
		if old == nil || old.kind != arrayKind || s.index >= len(old.elems) {
			has := 0
			if old != nil && old.kind == arrayKind {
				has = len(old.elems)
			}
			return bad(recipekey.Index(key, s.index), "the recipe has %d of %s, counted from 0", has, key)
		}
		key = recipekey.Index(key, s.index)
		if last {
			old.elems[s.index] = merge(old.elems[s.index], value)
			return nil
		}
		if old.elems[s.index].kind != tableKind {
			return bad(key, "is no table")
		}
		return setPath(old.elems[s.index], path[1:], key, value, bad)
	}
	if last {
		t.put(s.name, merge(old, value))
		return nil
	}
	switch {
	case old == nil:
		old = newTable(value.at)
		t.put(s.name, old)
	case old.kind == arrayKind:
		return bad(key, "is an array: say which element, %s[0] to %s[%d]", key, key, len(old.elems)-1)
	case old.kind != tableKind:
		old = newTable(value.at)
		t.put(s.name, old)
	}
	return setPath(old, path[1:], key, value, bad)
}

// bareOrTOML reads a value as TOML, or takes its text as it is.
func bareOrTOML(text string, at Place) *node {
	bare := &node{kind: bareKind, at: at, text: text}
	doc, problems := parse([]byte("v = "+text), "", 0)
	if len(problems) > 0 || len(doc.keys) != 1 || doc.table["v"] == nil {
		return bare
	}
	v := doc.table["v"]
	v.move(at)
	if v.kind != stringKind && v.kind != arrayKind && v.kind != tableKind {
		v.raw = text
	}
	return v
}

// move gives a value and all in it another place.
func (n *node) move(at Place) {
	n.at = at
	for _, e := range n.elems {
		e.move(at)
	}
	for _, e := range n.table {
		e.move(at)
	}
}
