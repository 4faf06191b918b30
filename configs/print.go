package configs

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strconv"
	"strings"

	"titan/internal/recipekey"
)

// Origins says where the values of a recipe are from.
type Origins struct {
	// Files are the recipe and what it extends, in this order.
	Files  []string
	places map[string]Place
}

// Of returns where the value of a key such as "training.steps" or
// "optimizer.param_groups[0].lr" is from; the zero Place if it is the default.
func (o *Origins) Of(key string) Place {
	if o == nil {
		return Place{}
	}
	return o.places[key]
}

// TOML returns the recipe as a document that reads back as the same recipe, with
// all keys. Origins of the values stand behind them as comments, unless o is
// nil. What has no value (such as an override that is not set) is left out.
func (r *Recipe) TOML(o *Origins) string {
	p := &printer{origins: o}
	p.table("", "", reflect.ValueOf(r).Elem())
	return p.out.String()
}

// Hash returns the SHA-256 of the resolved recipe, in hexadecimal. Recipes that
// say the same have the same, however they say it.
func (r *Recipe) Hash() string {
	sum := sha256.Sum256([]byte(r.TOML(nil)))
	return hex.EncodeToString(sum[:])
}

type printer struct {
	out     strings.Builder
	origins *Origins
}

// table prints what is in a table; header is its name in the document, key that
// in Origins.
func (p *printer) table(header, key string, v reflect.Value) {
	type line struct{ text, origin string }
	var lines []line
	width := 0
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Tag.Get("toml"), v.Field(i)
		if f.Kind() == reflect.Struct || isTables(f.Type()) || f.Kind() == reflect.Pointer && f.IsNil() {
			continue
		}
		// A source without a weight is one whose weight is 0; both mean the same.
		text := name + " = " + formatValue(f)
		lines = append(lines, line{text, p.origins.Of(joinKey(key, name)).String()})
		if len(text) <= alignTo {
			width = max(width, len(text))
		}
	}
	for _, l := range lines {
		p.out.WriteString(l.text)
		if p.origins != nil {
			p.out.WriteString(strings.Repeat(" ", max(0, width-len(l.text))) + "  # " + l.origin)
		}
		p.out.WriteByte('\n')
	}
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Tag.Get("toml"), v.Field(i)
		full := joinKey(header, name)
		switch {
		case f.Kind() == reflect.Struct && !empty(f):
			p.header("[" + full + "]")
			p.table(full, joinKey(key, name), f)
		case isTables(f.Type()):
			for i := range f.Len() {
				p.header("[[" + full + "]]")
				p.table(full, recipekey.Index(joinKey(key, name), i), f.Index(i))
			}
		}
	}
}

// alignTo is the length of a line from which comments are no longer aligned.
const alignTo = 60

func (p *printer) header(text string) {
	if p.out.Len() > 0 {
		p.out.WriteByte('\n')
	}
	p.out.WriteString(text + "\n")
}

// empty reports whether all of a struct's fields are nil pointers.
func empty(v reflect.Value) bool {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() != reflect.Pointer || !f.IsNil() {
			return false
		}
	}
	return true
}

// formatValue writes a value as TOML.
func formatValue(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		return formatValue(v.Elem())
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = formatValue(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.String:
		return quote(v.String())
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float64:
		return formatFloat(v.Float())
	case reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10)
	}
	return strconv.FormatInt(v.Int(), 10)
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\u00` + hex.EncodeToString([]byte{byte(r)}))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
