package chart

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// SVG spells the drawing as a document that can stand in a page or in a file.
func (s *Scene) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s" font-family="system-ui,-apple-system,'Segoe UI',Roboto,sans-serif">`,
		number(s.Size.Width), number(s.Size.Height), number(s.Size.Width), number(s.Size.Height), html.EscapeString(s.Title))
	for _, sh := range s.shapes {
		sh.svg(&b)
	}
	b.WriteString("</svg>")
	return b.String()
}

func (s shape) svg(b *strings.Builder) {
	role := roles[s.role]
	p := s.points[0]
	switch s.kind {
	case polyline:
		b.WriteString(`<polyline fill="none" points="`)
		for i, p := range s.points {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(number(p.x) + "," + number(p.y))
		}
		fmt.Fprintf(b, `" class="s %s" stroke="%s" stroke-width="%s" stroke-linejoin="round"`, role.class, role.light, number(s.w))
		if s.dash {
			b.WriteString(` stroke-dasharray="5 4"`)
		}
		b.WriteString("/>")
	case rectangle:
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" class="f %s" fill="%s"`, number(p.x), number(p.y), number(s.w), number(s.h), role.class, role.light)
		tip(b, "rect", s.text)
	case dot:
		fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="%s" class="f %s" fill="%s"`, number(p.x), number(p.y), number(s.w), role.class, role.light)
		tip(b, "circle", s.text)
	case text:
		fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" class="f %s" fill="%s"`, number(p.x), number(p.y), number(s.size), role.class, role.light)
		switch s.anchor {
		case middle:
			b.WriteString(` text-anchor="middle"`)
		case end:
			b.WriteString(` text-anchor="end"`)
		}
		b.WriteString(">" + html.EscapeString(s.text) + "</text>")
	}
}

// tip closes an element that says something when pointed at.
func tip(b *strings.Builder, element, what string) {
	if what == "" {
		b.WriteString("/>")
		return
	}
	b.WriteString("><title>" + html.EscapeString(what) + "</title></" + element + ">")
}

// number writes a coordinate: a hundredth of a pixel is enough.
func number(x float64) string {
	s := strconv.FormatFloat(x, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
