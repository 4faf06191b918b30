package chart

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"strconv"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// PNG draws the drawing as a picture on white, with so many pixels to a unit.
func (s *Scene) PNG(zoom float64) ([]byte, error) {
	typeface, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("chart: the typeface: %w", err)
	}
	p := &painter{zoom: zoom, typeface: typeface, faces: map[float64]font.Face{}}
	p.out = image.NewRGBA(image.Rect(0, 0, int(math.Ceil(s.Size.Width*zoom)), int(math.Ceil(s.Size.Height*zoom))))
	draw.Draw(p.out, p.out.Bounds(), image.NewUniform(Ground.colour()), image.Point{}, draw.Src)
	for _, sh := range s.shapes {
		if err := p.paint(sh); err != nil {
			return nil, fmt.Errorf("chart: %w", err)
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p.out); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return b.Bytes(), nil
}

// painter puts shapes on a picture.
type painter struct {
	zoom     float64
	out      *image.RGBA
	typeface *opentype.Font
	faces    map[float64]font.Face // by size
}

func (p *painter) paint(sh shape) error {
	at := sh.points[0]
	switch sh.kind {
	case polyline:
		r := p.begin()
		pts := sh.points
		if sh.dash {
			for _, piece := range dashes(pts, 5, 4) {
				p.stroke(r, piece, sh.w)
			}
		} else {
			p.stroke(r, pts, sh.w)
		}
		p.fill(r, sh.role)
	case rectangle:
		r := p.begin()
		p.polygon(r, at, point{at.x + sh.w, at.y}, point{at.x + sh.w, at.y + sh.h}, point{at.x, at.y + sh.h})
		p.fill(r, sh.role)
	case dot:
		r := p.begin()
		p.circle(r, at, sh.w)
		p.fill(r, sh.role)
	case text:
		return p.letters(sh)
	}
	return nil
}

func (p *painter) begin() *vector.Rasterizer {
	b := p.out.Bounds()
	return vector.NewRasterizer(b.Dx(), b.Dy())
}

func (p *painter) fill(r *vector.Rasterizer, role Role) {
	r.Draw(p.out, p.out.Bounds(), image.NewUniform(role.colour()), image.Point{})
}

// polygon adds a polygon; all must turn the same way, or overlaps cancel.
func (p *painter) polygon(r *vector.Rasterizer, pts ...point) {
	for i, q := range pts {
		x, y := float32(q.x*p.zoom), float32(q.y*p.zoom)
		if i == 0 {
			r.MoveTo(x, y)
			continue
		}
		r.LineTo(x, y)
	}
	r.ClosePath()
}

func (p *painter) circle(r *vector.Rasterizer, at point, radius float64) {
	const corners = 24
	pts := make([]point, corners)
	for i := range pts {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		pts[i] = point{at.x + radius*cos, at.y + radius*sin}
	}
	p.polygon(r, pts...)
}

// stroke adds a line: a rectangle for each stretch, a disc at each bend.
func (p *painter) stroke(r *vector.Rasterizer, pts []point, w float64) {
	for i := 1; i < len(pts); i++ {
		a, b := pts[i-1], pts[i]
		dx, dy := b.x-a.x, b.y-a.y
		l := math.Hypot(dx, dy)
		if l == 0 {
			continue
		}
		nx, ny := -dy/l*w/2, dx/l*w/2
		p.polygon(r, point{a.x - nx, a.y - ny}, point{b.x - nx, b.y - ny}, point{b.x + nx, b.y + ny}, point{a.x + nx, a.y + ny})
		if i+1 < len(pts) {
			p.circle(r, b, w/2)
		}
	}
}

// dashes cuts a line into pieces of length on, off apart.
func dashes(pts []point, on, off float64) [][]point {
	var out [][]point
	left, drawing := on, true
	piece := []point{pts[0]}
	for i := 1; i < len(pts); i++ {
		a, b := pts[i-1], pts[i]
		l := math.Hypot(b.x-a.x, b.y-a.y)
		for done := 0.0; l-done > 1e-9; {
			step := min(left, l-done)
			done += step
			left -= step
			at := point{a.x + (b.x-a.x)*done/l, a.y + (b.y-a.y)*done/l}
			if drawing {
				piece = append(piece, at)
			}
			if left > 1e-9 {
				continue
			}
			if drawing {
				out = append(out, piece)
				left = off
			} else {
				left = on
			}
			drawing, piece = !drawing, []point{at}
		}
	}
	if drawing && len(piece) > 1 {
		out = append(out, piece)
	}
	return out
}

func (p *painter) letters(sh shape) error {
	face := p.faces[sh.size]
	if face == nil {
		var err error
		if face, err = opentype.NewFace(p.typeface, &opentype.FaceOptions{Size: sh.size * p.zoom, DPI: 72}); err != nil {
			return fmt.Errorf("the typeface: %w", err)
		}
		p.faces[sh.size] = face
	}
	d := font.Drawer{Dst: p.out, Src: image.NewUniform(sh.role.colour()), Face: face}
	x := fixed.Int26_6(sh.points[0].x * p.zoom * 64)
	switch sh.anchor {
	case middle:
		x -= d.MeasureString(sh.text) / 2
	case end:
		x -= d.MeasureString(sh.text)
	}
	d.Dot = fixed.Point26_6{X: x, Y: fixed.Int26_6(sh.points[0].y * p.zoom * 64)}
	d.DrawString(sh.text)
	return nil
}

// colour is the role's colour in the light theme.
func (r Role) colour() color.Color {
	n, err := strconv.ParseUint(strings.TrimPrefix(roles[r].light, "#"), 16, 32)
	if err != nil {
		return color.Black // the table has none such
	}
	return color.RGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 255}
}
