package configs

import (
	"strconv"
	"strings"
)

// node is a value of a TOML document with its place.
type node struct {
	kind kind
	at   Place

	text  string  // stringKind, bareKind
	i     int64   // integerKind
	f     float64 // floatKind
	b     bool    // boolKind
	elems []*node // arrayKind
	// Of a table, keys in the order of the document.
	keys  []string
	table map[string]*node

	raw string // the text of a --set that is a number, a date or true or false
}

type kind int

const (
	tableKind kind = iota
	arrayKind
	stringKind
	integerKind
	floatKind
	boolKind
	dateKind
	bareKind // text of a --set that is no TOML value
)

func newTable(at Place) *node { return &node{kind: tableKind, at: at, table: map[string]*node{}} }

func (n *node) put(key string, v *node) {
	if _, ok := n.table[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.table[key] = v
}

// describe names what a value is, for "expected …, got …".
func (n *node) describe() string {
	switch n.kind {
	case tableKind:
		return "a table"
	case arrayKind:
		if n.ofTables() {
			return "an array of tables"
		}
		return "an array"
	case stringKind:
		return "the string " + strconv.Quote(shorten(n.text))
	case integerKind:
		return "the integer " + strconv.FormatInt(n.i, 10)
	case floatKind:
		return "the number " + formatFloat(n.f)
	case boolKind:
		return strconv.FormatBool(n.b)
	case dateKind:
		return "a date or time"
	}
	return "nothing" // bareKind: other text is quoted by itself
}

func (n *node) ofTables() bool {
	if n.kind != arrayKind || len(n.elems) == 0 {
		return false
	}
	for _, e := range n.elems {
		if e.kind != tableKind {
			return false
		}
	}
	return true
}

// merge returns base with what over says put over it: tables key by key, any
// other value as a whole. Neither argument is used afterwards.
func merge(base, over *node) *node {
	if base == nil || base.kind != tableKind || over.kind != tableKind {
		return over
	}
	for _, k := range over.keys {
		base.put(k, merge(base.table[k], over.table[k]))
	}
	base.at = over.at
	return base
}

// formatFloat writes a number as TOML does: never as an integer.
func formatFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	switch s {
	case "NaN":
		return "nan"
	case "+Inf":
		return "inf"
	case "-Inf":
		return "-inf"
	}
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
