package chart

// Span is a stretch of time on a lane.
type Span struct {
	Start, Seconds float64
	Kind           string // has one colour
	Name           string // what is shown when pointed at
	Quiet          bool   // its kind has no colour of its own
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
	Write   func(x float64) string // of times
	Order   []string               // see Bars
}

// Draw draws the chart; its height follows from the number of lanes.
func (c Timeline) Draw(size Size) *Scene {
	s := &Scene{Size: size, Title: c.Title}
	k := newKey(c.Order)
	for _, l := range c.Lanes {
		for _, sp := range l.Spans {
			if sp.Quiet {
				k.roles[sp.Kind] = Grid
			}
			k.role(sp.Kind)
		}
	}
	top := s.legend(k.shown) + 4
	const row = 44
	s.Size.Height = top + float64(len(c.Lanes))*row + 40
	f := frame{left: 10, top: top, right: size.Width - 12, bottom: s.Size.Height - 34}
	x := newScale(Axis{Write: c.Write, Max: max(c.Seconds, 1e-12)}, nil, f.left, f.right)
	s.axes(f, x, scale{}, nil)
	for i, l := range c.Lanes {
		y := f.top + float64(i)*row
		s.write(Ink, f.left, y+11, smallSize, start, clip(l.Label, smallSize, f.right-f.left))
		for _, sp := range l.Spans {
			from, to := max(x.at(sp.Start), f.left), min(x.at(sp.Start+sp.Seconds), f.right)
			s.rect(k.role(sp.Kind), from, y+16, max(to-from, 0.4), row-22, sp.Name)
		}
	}
	return s
}
