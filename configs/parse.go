package configs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// parse reads a TOML document. file and order are the Place of its values. The
// problems are all keys given twice, or else the first breach of TOML's syntax:
// behind one, nothing can be told for sure.
func parse(content []byte, file string, order int) (*node, []Problem) {
	at := func(line int) Place { return Place{File: file, Line: line, order: order} }
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if line := notUTF8(content); line > 0 {
		return nil, []Problem{{at(line), "", "the file is not UTF-8 here; save it as UTF-8 text"}}
	}
	b := &builder{at: at, root: newTable(at(0))}
	b.parser.Reset(content)
	for b.parser.NextExpression() {
		b.expression(b.parser.Expression())
	}
	var all map[string]any
	err := toml.Unmarshal(content, &all)
	switch {
	case b.parser.Error() == nil && len(b.problems) > 0:
		return nil, b.problems
	case err != nil:
		return nil, []Problem{syntax(err, at)}
	case b.parser.Error() != nil:
		return nil, []Problem{{at(0), "", "not TOML: " + b.parser.Error().Error()}}
	}
	return b.root, nil
}

// syntax gives the place of an error of the TOML library.
func syntax(err error, at func(int) Place) Problem {
	var d *toml.DecodeError
	if !errors.As(err, &d) {
		return Problem{at(0), "", "not TOML: " + err.Error()}
	}
	line, column := d.Position()
	return Problem{at(line), "", fmt.Sprintf("column %d: not TOML: %s", column, strings.TrimPrefix(d.Error(), "toml: "))}
}

// notUTF8 returns the first line that is not UTF-8, 0 if there is none.
func notUTF8(content []byte) int {
	for line, text := range bytes.Split(content, []byte("\n")) {
		if !utf8.Valid(text) {
			return line + 1
		}
	}
	return 0
}

// builder turns the parser's expressions into nodes. That the document keeps
// to TOML's rules about tables is checked by the library; the builder looks for
// keys given twice only, and otherwise lets pass what it is given.
type builder struct {
	at       func(line int) Place
	parser   unstable.Parser
	root     *node
	current  *node // table that key-value pairs go to
	prefix   []string
	problems []Problem

	offset, line int // line at offset, of the last place asked for
}

func (b *builder) expression(e *unstable.Node) {
	switch e.Kind {
	case unstable.Table, unstable.ArrayTable:
		names, place := b.key(e)
		t := b.descend(b.root, names[:len(names)-1], place)
		last := names[len(names)-1]
		old := t.table[last]
		b.prefix = names
		if e.Kind == unstable.ArrayTable {
			if old == nil || old.kind != arrayKind {
				old = &node{kind: arrayKind, at: place}
				t.put(last, old)
			}
			b.current = newTable(place)
			old.elems = append(old.elems, b.current)
			return
		}
		if old == nil {
			t.put(last, newTable(place))
		}
		b.current = b.descend(t, names[len(names)-1:], place)
	case unstable.KeyValue:
		if b.current == nil {
			b.current = b.root
		}
		b.keyValue(b.current, b.prefix, e)
	}
}

func (b *builder) keyValue(to *node, prefix []string, e *unstable.Node) {
	names, place := b.key(e)
	t := b.descend(to, names[:len(names)-1], place)
	last := names[len(names)-1]
	if old := t.table[last]; old != nil {
		full := strings.Join(append(append([]string(nil), prefix...), names...), ".")
		b.problems = append(b.problems, Problem{place, full, fmt.Sprintf("is given twice; the first is in line %d", old.at.Line)})
		return
	}
	t.put(last, b.value(e.Value(), place, append(append([]string(nil), prefix...), names...)))
}

// descend returns the table below t at names, made where it is missing. Of an
// array of tables it is the last.
func (b *builder) descend(t *node, names []string, place Place) *node {
	for _, name := range names {
		next := t.table[name]
		switch {
		case next == nil:
			next = newTable(place)
			t.put(name, next)
		case next.kind == arrayKind && next.ofTables():
			next = next.elems[len(next.elems)-1]
		case next.kind != tableKind:
			next = newTable(place) // the library refuses this document
		}
		t = next
	}
	return t
}

func (b *builder) value(v *unstable.Node, place Place, key []string) *node {
	if v.Raw.Length > 0 {
		place = b.place(int(v.Raw.Offset))
	}
	n := &node{at: place}
	text := strings.ReplaceAll(string(v.Data), "_", "")
	var err error
	switch v.Kind {
	case unstable.String:
		n.kind, n.text = stringKind, string(v.Data)
	case unstable.Bool:
		n.kind, n.b = boolKind, string(v.Data) == "true"
	case unstable.Integer:
		n.kind = integerKind
		n.i, err = strconv.ParseInt(text, 0, 64)
	case unstable.Float:
		n.kind = floatKind
		n.f, err = strconv.ParseFloat(text, 64)
	case unstable.Array:
		n.kind = arrayKind
		for c := v.Children(); c.Next(); {
			n.elems = append(n.elems, b.value(c.Node(), place, key))
		}
	case unstable.InlineTable:
		n = newTable(place)
		for c := v.Children(); c.Next(); {
			b.keyValue(n, key, c.Node())
		}
	default:
		n.kind = dateKind
	}
	if err != nil { // the library reads the number as well, and refuses it before this counts
		n.kind, n.text = stringKind, string(v.Data)
	}
	return n
}

// key returns the parts of an expression's key and the place of the first.
func (b *builder) key(e *unstable.Node) (names []string, place Place) {
	for it := e.Key(); it.Next(); {
		n := it.Node()
		if names == nil {
			place = b.place(int(n.Raw.Offset))
		}
		names = append(names, string(n.Data))
	}
	return names, place
}

// place returns the place of an offset, which is seldom before the last one.
func (b *builder) place(offset int) Place {
	data := b.parser.Data()
	if offset < b.offset || b.line == 0 {
		b.offset, b.line = 0, 1
	}
	b.line += bytes.Count(data[b.offset:offset], []byte("\n"))
	b.offset = offset
	return b.at(b.line)
}
