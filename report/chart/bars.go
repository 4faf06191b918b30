package chart

import "titan/internal/human"

// Part is a piece of a bar.
type Part struct {
	Name  string
	Value float64
}

// Bar is a row of pieces, one after another.
type Bar struct {
	Label string
	Parts []Part
	// Limit is marked on the bar; 0: none.
	Limit float64
}

// Bars is a chart of lying bars of stacked pieces: the same name has the same
// colour in each.
type Bars struct {
	Title string
	X     Axis
	Bars  []Bar
}

// Height is how high a chart of so many bars should be.
func (c Bars) height(size Size, legend float64) float64 {
	row := barRow
	if size.narrow() {
		row += 14
	}
	return legend + float64(len(c.Bars))*row + 44
}

const barRow = 30.0

// Draw draws the chart; its height follows from the number of bars.
func (c Bars) Draw(size Size) *Scene {
	s := &Scene{Size: size, Title: c.Title}
	order := map[string]int{}
	var names []entry
	var totals []float64
	for _, b := range c.Bars {
		sum := 0.0
		for _, p := range b.Parts {
			if _, ok := order[p.Name]; !ok && p.Value > 0 {
				order[p.Name] = len(order)
				names = append(names, entry{p.Name, SeriesRole(order[p.Name]), false})
			}
			sum += max(p.Value, 0)
		}
		totals = append(totals, sum, b.Limit)
	}
	top := s.legend(names) + 4
	s.Size.Height = c.height(size, top)
	f := frame{left: 10, top: top, right: size.Width - 14, bottom: s.Size.Height - 34}
	if !size.narrow() {
		w := 0.0
		for _, b := range c.Bars {
			w = max(w, width(b.Label, textSize))
		}
		f.left = min(w, size.Width*0.35) + 18
	}
	axis := c.X
	axis.Zero = true
	x := newScale(axis, totals, f.left, f.right)
	s.axes(f, x, scale{}, nil)
	row := (f.bottom - f.top) / float64(max(len(c.Bars), 1))
	for i, b := range c.Bars {
		y, h := f.top+float64(i)*row+4, row-8
		if size.narrow() {
			s.write(Ink, f.left, y+9, smallSize, start, clip(b.Label, smallSize, f.right-f.left))
			y, h = y+13, h-13
		} else {
			s.write(Ink, f.left-8, y+h/2+4, textSize, end, clip(b.Label, textSize, f.left-14))
		}
		at := 0.0
		for _, p := range b.Parts {
			if !(p.Value > 0) {
				continue
			}
			s.rect(SeriesRole(order[p.Name]), x.at(at), y, max(x.at(at+p.Value)-x.at(at), 0.5), h, b.Label+", "+p.Name+": "+c.X.write(p.Value))
			at += p.Value
		}
		if b.Limit > 0 {
			s.line(Alarm, 2, false, point{x.at(b.Limit), y - 3}, point{x.at(b.Limit), y + h + 3})
			label, lx := "limit "+c.X.write(b.Limit), x.at(b.Limit)-5
			if room := lx - x.at(at); room > width(label, smallSize) {
				s.write(Alarm, lx, y+h/2+4, smallSize, end, label)
			}
		}
	}
	return s
}

// Span is a stretch of time on a lane.
type Span struct {
	Start, Seconds float64
	Kind           string // has one colour
	Name           string // what is shown when pointed at
}

// Lane is a row of spans.
type Lane struct {
	Label string
	Spans []Span
}

// Timeline shows what is done when, lane by lane.
type Timeline struct {
	Title   string
	Seconds float64 // the length of the whole
	Lanes   []Lane
}

// Draw draws the chart; its height follows from the number of lanes.
func (c Timeline) Draw(size Size) *Scene {
	s := &Scene{Size: size, Title: c.Title}
	order := map[string]int{}
	var names []entry
	for _, l := range c.Lanes {
		for _, sp := range l.Spans {
			if _, ok := order[sp.Kind]; !ok {
				order[sp.Kind] = len(order)
				names = append(names, entry{sp.Kind, SeriesRole(order[sp.Kind]), false})
			}
		}
	}
	top := s.legend(names) + 4
	row := 44.0
	s.Size.Height = top + float64(len(c.Lanes))*row + 40
	f := frame{left: 10, top: top, right: size.Width - 12, bottom: s.Size.Height - 34}
	x := newScale(Axis{Label: "time", Write: human.Seconds, Max: max(c.Seconds, 1e-12)}, nil, f.left, f.right)
	s.axes(f, x, scale{}, nil)
	for i, l := range c.Lanes {
		y := f.top + float64(i)*row
		s.write(Ink, f.left, y+11, smallSize, start, clip(l.Label, smallSize, f.right-f.left))
		for _, sp := range l.Spans {
			s.rect(SeriesRole(order[sp.Kind]), x.at(sp.Start), y+16, max(x.at(sp.Start+sp.Seconds)-x.at(sp.Start), 0.4), row-22, sp.Name+": "+human.Seconds(sp.Seconds))
		}
	}
	return s
}
