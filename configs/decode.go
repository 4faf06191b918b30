package configs

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	"titan/internal/recipekey"
)

// decoding writes nodes into the structs of the sections, and collects what
// does not fit.
type decoding struct {
	problems []Problem
	places   map[string]Place // of every key that a recipe sets
}

func (d *decoding) bad(n *node, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{n.at, key, fmt.Sprintf(format, args...)})
}

// recipe decodes a whole document.
func (d *decoding) recipe(doc *node, r *Recipe) { d.structure("", doc, reflect.ValueOf(r).Elem()) }

// structure decodes a table into a struct with toml tags. key is the table's,
// empty for the document.
func (d *decoding) structure(key string, n *node, to reflect.Value) {
	for _, name := range n.keys {
		value := n.table[name]
		full := name
		if key != "" {
			full = key + "." + name
		}
		if f, ok := fieldOf(to, name); ok {
			d.value(full, value, f)
		} else {
			d.unknown(key, name, value)
		}
	}
}

// fieldOf returns the field of a struct with the given toml tag.
func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == name && name != "" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// value decodes n into to, whose type is one that [typeName] knows.
func (d *decoding) value(key string, n *node, to reflect.Value) {
	d.places[key] = n.at
	want := func(hint string) {
		got := ", got " + n.describe()
		if n.kind == bareKind && n.text != "" {
			got = "; " + shorten(n.text) + " is none"
		}
		d.bad(n, key, "expected %s%s%s", typeName(to.Type()), got, hint)
	}
	switch to.Kind() {
	case reflect.Pointer:
		v := reflect.New(to.Type().Elem())
		d.value(key, n, v.Elem())
		to.Set(v)
	case reflect.Struct:
		if n.kind != tableKind {
			want("")
			return
		}
		d.structure(key, n, to)
	case reflect.Slice:
		if n.kind != arrayKind {
			want(arrayHint(key, n, to.Type()))
			return
		}
		if len(n.elems) == 0 {
			to.SetZero() // as in a section's defaults
			return
		}
		s := reflect.MakeSlice(to.Type(), len(n.elems), len(n.elems))
		for i, e := range n.elems {
			d.value(recipekey.Index(key, i), e, s.Index(i))
		}
		to.Set(s)
	case reflect.String:
		switch {
		case n.raw != "": // on the command line a string needs no quotes
			to.SetString(n.raw)
		case n.kind == stringKind || n.kind == bareKind:
			to.SetString(n.text)
		default:
			want(stringHint(n))
		}
	case reflect.Bool:
		if n.kind != boolKind {
			want("")
			return
		}
		to.SetBool(n.b)
	case reflect.Float64:
		switch {
		case n.kind == integerKind:
			to.SetFloat(float64(n.i))
		case n.kind != floatKind:
			want("")
		case math.IsNaN(n.f) || math.IsInf(n.f, 0):
			d.bad(n, key, "is %s and must be a finite number", formatFloat(n.f))
		case math.Abs(n.f) > math.MaxFloat32:
			d.bad(n, key, "is %s, beyond what float32 holds (3.4e38)", formatFloat(n.f))
		default:
			to.SetFloat(n.f)
		}
	case reflect.Int, reflect.Uint64:
		switch {
		case n.kind == floatKind && n.f == math.Trunc(n.f) && math.Abs(n.f) < 1<<53:
			want(fmt.Sprintf("; write %d", int64(n.f)))
		case n.kind != integerKind:
			want("")
		case to.Kind() == reflect.Int:
			to.SetInt(n.i)
		case n.i < 0:
			d.bad(n, key, "is %d and must not be negative", n.i)
		default:
			to.SetUint(uint64(n.i))
		}
	}
}

// stringHint says how to write a string, to whom gave a number.
func stringHint(n *node) string {
	switch n.kind {
	case integerKind, floatKind, boolKind:
		return "; put it in quotes"
	}
	return ""
}

// arrayHint says how an array is spelled, to whom gave one value.
func arrayHint(key string, n *node, t reflect.Type) string {
	switch {
	case t.Elem().Kind() == reflect.Struct && n.kind == tableKind:
		return "; write [[" + key + "]] for each"
	case (n.kind == stringKind || n.kind == bareKind && n.text != "") && t.Elem().Kind() == reflect.String:
		return fmt.Sprintf("; write [%q]", shorten(n.text))
	}
	return ""
}

// typeName says what a key of type t takes.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Struct:
		return "a table"
	case reflect.Slice:
		switch t.Elem().Kind() {
		case reflect.Struct:
			return "an array of tables"
		case reflect.String:
			return "an array of strings"
		}
		return "an array of integers"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "an integer"
}

// placeOf returns where a key was set, or else the innermost table around it
// that was; the zero Place if none was.
func (d *decoding) placeOf(key string) Place {
	for key != "" {
		if p, ok := d.places[key]; ok {
			return p
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return Place{}
}
