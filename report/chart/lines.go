package chart

import (
	"math"

	"titan/internal/human"
)

// Series is a curve. X and Y have the same length; points that are not finite
// interrupt it.
type Series struct {
	Name string
	X, Y []float64
	Dash bool // for what was not measured: ideals, predictions
	Dots bool // mark each point
	Tips []string
	// Role is the colour; zero: the one of its place among the series.
	Role Role
}

// Mark is a line across the chart with a word to it.
type Mark struct {
	At    float64
	Label string
}

// Lines is a chart of curves.
type Lines struct {
	Title  string
	X, Y   Axis
	Series []Series
	Marks  []Mark // at values of X
}

// frame is where the curves are.
type frame struct{ left, top, right, bottom float64 }

// Draw draws the chart.
func (c Lines) Draw(size Size) *Scene {
	s := &Scene{Size: size, Title: c.Title}
	var xs, ys []float64
	for _, l := range c.Series {
		for i := range min(len(l.X), len(l.Y)) {
			if finite(l.X[i]) && finite(l.Y[i]) {
				xs, ys = append(xs, l.X[i]), append(ys, l.Y[i])
			}
		}
	}
	top := s.legend(c.names())
	f := frame{top: top + 6, right: size.Width - 10, bottom: size.Height - 34}
	rows := max(2, int((f.bottom-f.top)/48))
	y := newScale(c.Y, ys, f.bottom, f.top).round(rows)
	ticks := y.ticks(rows)
	f.left = 10 + widest(c.Y, ticks)
	x := newScale(c.X, xs, f.left, f.right)
	s.axes(f, x, y, ticks)
	for _, m := range c.Marks {
		if at := x.at(m.At); at >= f.left && at <= f.right {
			s.line(Muted, 1, true, point{at, f.top}, point{at, f.bottom})
			a, dx := start, 3.0
			if at > (f.left+f.right)/2 {
				a, dx = end, -3
			}
			s.write(Muted, at+dx, f.top+10, smallSize, a, m.Label)
		}
	}
	for i, l := range c.Series {
		s.curve(l, i, x, y)
	}
	return s
}

// names lists the series for the legend; one alone needs none.
func (c Lines) names() []entry {
	var out []entry
	for i, l := range c.Series {
		if l.Name != "" {
			out = append(out, entry{l.Name, l.role(i), l.Dash})
		}
	}
	if len(c.Series) == 1 && !c.Series[0].Dash {
		return nil
	}
	return out
}

func (l Series) role(i int) Role {
	if l.Role != 0 {
		return l.Role
	}
	return SeriesRole(i)
}

func widest(a Axis, ticks []float64) float64 {
	w := 0.0
	for _, t := range ticks {
		w = max(w, width(a.tick(t), smallSize))
	}
	return w
}

// axes draws the grid and the values.
func (s *Scene) axes(f frame, x, y scale, rows []float64) {
	for _, t := range rows {
		at := y.at(t)
		if !(at >= f.top-1 && at <= f.bottom+1) {
			continue
		}
		s.line(Grid, 1, false, point{f.left, at}, point{f.right, at})
		s.write(Muted, f.left-5, at+4, smallSize, end, y.axis.tick(t))
	}
	last := math.Inf(-1)
	for _, t := range x.ticks(max(2, int((f.right-f.left)/90))) {
		at := x.at(t)
		label := x.axis.tick(t)
		half := width(label, smallSize) / 2
		if !(at >= f.left-1 && at <= f.right+1) || at-half < last+6 {
			continue
		}
		s.line(Grid, 1, false, point{at, f.top}, point{at, f.bottom})
		centre := min(max(at, half), s.Size.Width-half)
		s.write(Muted, centre, f.bottom+15, smallSize, middle, label)
		last = centre + half
	}
	s.line(Muted, 1, false, point{f.left, f.bottom}, point{f.right, f.bottom})
	s.write(Muted, (f.left+f.right)/2, s.Size.Height-5, smallSize, middle, x.axis.Label)
}

// curve draws one series, in pieces where it is interrupted.
func (s *Scene) curve(l Series, i int, x, y scale) {
	role := l.role(i)
	all := make([]point, min(len(l.X), len(l.Y)))
	for k := range all {
		all[k] = point{x.at(l.X[k]), y.at(l.Y[k])}
		if l.Dots && len(all) <= maxDots && all[k].finite() {
			tip := l.Name + " " + x.axis.write(l.X[k]) + ": " + y.axis.write(l.Y[k])
			if k < len(l.Tips) {
				tip = l.Tips[k]
			}
			s.dot(role, all[k], 3.5, tip)
		}
	}
	var piece []point
	for _, p := range append(thin(all), point{math.NaN(), 0}) {
		switch {
		case p.finite():
			piece = append(piece, p)
			continue
		case len(piece) == 1:
			s.dot(role, piece[0], 2, "")
		case len(piece) > 1:
			s.line(role, 1.8, l.Dash, piece...)
		}
		piece = nil
	}
}

func (p point) finite() bool { return finite(p.x) && finite(p.y) }

// maxPoints is more than a screen can show of one curve, maxDots more than it can
// mark.
const (
	maxPoints = 1200
	maxDots   = 300
)

// thin drops points of a curve that has more than can be seen: of each stretch the
// highest and the lowest stay, and interruptions as long as a stretch.
func thin(p []point) []point {
	if len(p) <= maxPoints {
		return p
	}
	out := []point{p[0]}
	n := maxPoints/2 - 1
	for b := range n {
		from, to := 1+b*(len(p)-2)/n, 1+(b+1)*(len(p)-2)/n
		low, high := -1, -1
		for k := from; k < to; k++ {
			if !p[k].finite() {
				continue
			}
			if low < 0 || p[k].y < p[low].y {
				low = k
			}
			if high < 0 || p[k].y > p[high].y {
				high = k
			}
		}
		switch {
		case from >= to:
		case low < 0:
			out = append(out, p[from])
		case low == high:
			out = append(out, p[low])
		default:
			out = append(out, p[min(low, high)], p[max(low, high)])
		}
	}
	return append(out, p[len(p)-1])
}

// entry is a word of a legend.
type entry struct {
	name string
	role Role
	dash bool
}

// legend writes the names above the chart and returns where they end.
func (s *Scene) legend(names []entry) float64 {
	x, y := 10.0, 14.0
	if len(names) == 0 {
		return 4
	}
	for _, n := range names {
		name := clip(n.name, textSize, s.Size.Width-50)
		w := 22 + width(name, textSize) + 14
		if x+w > s.Size.Width && x > 10 {
			x, y = 10, y+17
		}
		s.line(n.role, 3, n.dash, point{x, y - 4}, point{x + 16, y - 4})
		s.write(Ink, x+22, y, textSize, start, name)
		x += w
	}
	return y + 6
}

// Histogram shows how often values came.
type Histogram struct {
	Title  string
	X      Axis
	Values []float64
	Marks  []Mark
}

// bins is how many bars there are for n values: the square root, as usual.
func bins(n int) int { return min(max(int(math.Ceil(math.Sqrt(float64(n)))), 1), 40) }

// Draw draws the chart.
func (c Histogram) Draw(size Size) *Scene {
	s := &Scene{Size: size, Title: c.Title}
	var values []float64
	for _, v := range c.Values {
		if finite(v) {
			values = append(values, v)
		}
	}
	x := newScale(c.X, values, 0, 1)
	n := bins(len(values))
	counts := make([]float64, n)
	for _, v := range values {
		counts[min(int(x.at(v)*float64(n)), n-1)]++
	}
	var names []entry
	for i, m := range c.Marks {
		names = append(names, entry{m.Label, SeriesRole(i + 1), true})
	}
	f := frame{top: s.legend(names) + 6, right: size.Width - 10, bottom: size.Height - 34}
	rows := max(2, int((f.bottom-f.top)/48))
	y := newScale(Axis{Zero: true, Write: human.Count}, counts, f.bottom, f.top).round(rows)
	var ticks []float64
	for _, t := range y.ticks(rows) {
		if t == math.Trunc(t) {
			ticks = append(ticks, t)
		}
	}
	f.left = 10 + widest(y.axis, ticks)
	x.from, x.to = f.left, f.right
	s.axes(f, x, y, ticks)
	for i, k := range counts {
		step := (f.right - f.left) / float64(n)
		low, high := x.low+(x.high-x.low)*float64(i)/float64(n), x.low+(x.high-x.low)*float64(i+1)/float64(n)
		at := f.left + step*float64(i)
		s.rect(SeriesRole(0), at+0.5, y.at(k), step-1, f.bottom-y.at(k), c.X.write(low)+" to "+c.X.write(high)+": "+human.Count(k))
	}
	for i, m := range c.Marks {
		if at := x.at(m.At); at >= f.left && at <= f.right {
			s.line(SeriesRole(i+1), 2, true, point{at, f.top - 4}, point{at, f.bottom})
		}
	}
	return s
}
