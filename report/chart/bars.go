package chart

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
	// Order fixes the colours of names, for several charts of the same things.
	Order []string
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
	k := newKey(c.Order)
	var totals []float64
	for _, b := range c.Bars {
		sum := 0.0
		for _, p := range b.Parts {
			if p.Value > 0 {
				k.role(p.Name)
			}
			sum += max(p.Value, 0)
		}
		totals = append(totals, sum, b.Limit)
	}
	top := s.legend(k.shown) + 4
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
			s.rect(k.role(p.Name), x.at(at), y, max(x.at(at+p.Value)-x.at(at), 0.5), h, b.Label+", "+p.Name+": "+c.X.write(p.Value))
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

// key gives names their colours: those of an order first, others as they come.
type key struct {
	roles map[string]Role
	next  int
	shown []entry // names that were asked for, in this order
	seen  map[string]bool
}

func newKey(order []string) *key {
	k := &key{roles: map[string]Role{}, seen: map[string]bool{}}
	for _, name := range order {
		k.roles[name] = SeriesRole(k.next)
		k.next++
	}
	return k
}

func (k *key) role(name string) Role {
	r, ok := k.roles[name]
	if !ok {
		r = SeriesRole(k.next)
		k.roles[name] = r
		k.next++
	}
	if !k.seen[name] {
		k.seen[name] = true
		k.shown = append(k.shown, entry{name, r, false})
	}
	return r
}
