// Package chart draws the figures of reports: curves, histograms, stacked bars
// and timelines, as SVG that a page can colour, or as PNG.
//
//	s := chart.Lines{Title: "loss", X: chart.Axis{Label: "step"}, Series: []chart.Series{{Name: "a", X: x, Y: y}}}.Draw(chart.Wide)
//	svg := s.SVG()
//	png, err := s.PNG(2)
//
// A chart becomes a Scene, a list of shapes whose colours are roles. In an SVG each
// shape has the colour of the light theme as an attribute and its role as a class,
// so that it stands alone and a page's style sheet has the last word.
package chart

import "math"

// Size is the size of a drawing in its own units, CSS pixels.
type Size struct{ Width, Height float64 }

// Sizes for a screen and for a phone: text keeps its size, there is less room.
var (
	Wide   = Size{720, 300}
	Narrow = Size{320, 240}
)

func (s Size) narrow() bool { return s.Width < 480 }

// Role is what a colour stands for.
type Role int

// Roles. Series gives those of data.
const (
	Ink   Role = iota // text
	Muted             // labels of axes
	Grid
	Alarm  // a limit
	Ground // what lies behind
	series0
)

// numSeries is how many colours there are for data; then they begin again.
const numSeries = 12

// SeriesRole is the colour of the i-th series.
func SeriesRole(i int) Role { return series0 + Role(((i%numSeries)+numSeries)%numSeries) }

// roles are the names of the classes and the colours of the light theme. The
// colours of data are Okabe and Ito's, which colour-blind people tell apart, with
// the yellow darkened to be seen on white, and five more.
var roles = [...]struct{ class, light string }{
	{"k-ink", "#1b1f24"}, {"k-muted", "#57606a"}, {"k-grid", "#d8dee4"}, {"k-alarm", "#cf222e"}, {"k-ground", "#ffffff"},
	{"k0", "#0072b2"}, {"k1", "#d55e00"}, {"k2", "#009e73"}, {"k3", "#cc79a7"}, {"k4", "#e69f00"}, {"k5", "#56b4e9"}, {"k6", "#8a7a00"}, {"k7", "#7a5195"},
	{"k8", "#1f4e3d"}, {"k9", "#a3123a"}, {"k10", "#6b4423"}, {"k11", "#7f8c8d"},
}

// Class is the role's class in an SVG.
func (r Role) Class() string { return roles[r].class }

// Scene is a drawing.
type Scene struct {
	Size   Size
	Title  string // read out by screen readers
	shapes []shape
}

type kind int

const (
	polyline kind = iota
	rectangle
	dot
	text
)

type point struct{ x, y float64 }

// anchor is what of a text lies at its point.
type anchor int

const (
	start anchor = iota
	middle
	end
)

type shape struct {
	kind   kind
	points []point // the ends of a line; the corner, centre or place of others
	w, h   float64 // of a rectangle; w is the radius of a dot, the width of a line
	role   Role
	dash   bool
	text   string // a text, or what a shape says when pointed at
	size   float64
	anchor anchor
}

func (s *Scene) line(role Role, width float64, dash bool, pts ...point) {
	s.shapes = append(s.shapes, shape{kind: polyline, points: pts, w: width, role: role, dash: dash})
}

func (s *Scene) rect(role Role, x, y, w, h float64, tip string) {
	if w > 0 && h > 0 {
		s.shapes = append(s.shapes, shape{kind: rectangle, points: []point{{x, y}}, w: w, h: h, role: role, text: tip})
	}
}

func (s *Scene) dot(role Role, at point, r float64, tip string) {
	s.shapes = append(s.shapes, shape{kind: dot, points: []point{at}, w: r, role: role, text: tip})
}

func (s *Scene) write(role Role, x, y, size float64, a anchor, what string) {
	s.shapes = append(s.shapes, shape{kind: text, points: []point{{x, y}}, role: role, size: size, anchor: a, text: what})
}

// Sizes of text in CSS pixels.
const (
	textSize  = 12.0
	smallSize = 11.0
)

// width estimates how wide a text is: a sans-serif letter is about half as wide as
// it is high.
func width(s string, size float64) float64 {
	n := 0.0
	for _, r := range s {
		switch r {
		case 'i', 'l', 'j', '.', ',', ':', '\'', '|', ' ', 't', 'f', '(', ')':
			n += 0.33
		case 'm', 'w', 'M', 'W', '%', '—':
			n += 0.87
		default:
			n += 0.57
		}
	}
	return n * size
}

// clip shortens a text to a width, in the middle: names differ at their ends.
func clip(s string, size, room float64) string {
	if width(s, size) <= room {
		return s
	}
	r := []rune(s)
	for n := len(r) - 1; n > 1; n-- {
		t := string(r[:(n+1)/2]) + "…" + string(r[len(r)-n/2:])
		if width(t, size) <= room {
			return t
		}
	}
	return "…"
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
