package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"titan/compare"
	"titan/internal/human"
	"titan/report/chart"
)

// Options say how to make a page.
type Options struct {
	Title      string // "": what it is about
	TargetLoss float64
	Titan      string // version
	Warnings   []string
	Now        time.Time
}

// New makes the page of one input, or of several compared with the first.
func New(inputs []*compare.Input, o Options) (*Page, error) {
	if len(inputs) == 0 {
		return nil, errors.New("report: there is nothing to report")
	}
	p := &Page{Title: o.Title, Titan: o.Titan, Made: o.Now, Warnings: o.Warnings}
	var results []*compare.Result
	for _, in := range inputs {
		results = append(results, in.Results...)
	}
	if len(results) > 0 {
		c, err := compare.New(results, compare.Options{TargetLoss: o.TargetLoss})
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		p.Comparison = c
	}
	b := &builder{page: p, inputs: inputs}
	if len(inputs) == 1 {
		b.single(inputs[0])
	} else {
		b.several()
	}
	return p, nil
}

// builder adds sections to a page.
type builder struct {
	page   *Page
	inputs []*compare.Input
}

func (b *builder) add(s Section) {
	if s.Tiles == nil && len(s.Tables) == 0 && len(s.Charts) == 0 && len(s.List) == 0 && s.Text == "" {
		return
	}
	base, n := s.ID, 2
	for slices.ContainsFunc(b.page.Sections, func(o Section) bool { return o.ID == s.ID }) {
		s.ID = fmt.Sprintf("%s-%d", base, n)
		n++
	}
	for i := range s.Charts {
		c := &s.Charts[i]
		c.Name = slug(s.ID, c.Name)
	}
	b.page.Sections = append(b.page.Sections, s)
}

func (b *builder) single(in *compare.Input) {
	p := b.page
	name := in.Path
	if len(in.Results) > 0 && in.Sweep == nil && in.Series == nil {
		r := in.Results[0]
		name, p.Subtitle = r.Name, r.Describe()
		b.add(Section{ID: "figures", Title: "Figures", Tiles: tiles(p.Comparison, 0), List: append(p.Comparison.Reasons(), p.Comparison.Notes...)})
	}
	switch {
	case in.Run != nil:
		b.run(in, "", false)
	case in.Plan != nil:
		b.plan(in, "", false)
	case in.Sweep != nil:
		if name = in.Sweep.Name; name == "" {
			name = in.Path
		}
		p.Subtitle = sweepLine(in.Sweep)
		b.scaling()
		b.sweep(in, "", false)
		b.comparison(false)
	case in.Series != nil:
		name, p.Subtitle = in.Series.Title, in.Series.Source
		b.scaling()
		b.comparison(false)
		b.add(Section{ID: "notes", Title: "Notes", List: in.Series.Notes})
	}
	if len(in.Results) == 1 {
		b.add(Section{ID: "notes", Title: "Notes", List: in.Results[0].Notes})
		b.recipe(in.Results[0])
	}
	if p.Title == "" {
		p.Title = fmt.Sprintf("%s: %s", capital(in.Noun()), name)
	}
}

// tiles shows all figures of one result.
func tiles(c *compare.Comparison, result int) []Tile {
	var out []Tile
	for _, row := range c.Rows {
		cell := row.Cells[result]
		if cell.Value == nil {
			continue
		}
		t := Tile{Label: row.Label, Text: cell.Text, Figure: figure(row.Key, result, cell.Value)}
		if row.Key == compare.MemoryPercent && *cell.Value > 100 {
			t.Loud = true
		}
		if cell.Marked {
			t.More = "†"
		}
		out = append(out, t)
	}
	return out
}

func lines(name, title string, c chart.Lines) Chart {
	c.Title = title
	return Chart{Name: name, Title: title, Draw: c.Draw}
}

func barChart(name, title string, axis chart.Axis, bars []chart.Bar, order ...string) Chart {
	c := chart.Bars{Title: title, X: axis, Bars: bars, Order: order}
	return Chart{Name: name, Title: title, Full: true, Draw: c.Draw}
}

// Axes of times and of sizes.
var (
	inSeconds = chart.Axis{Write: human.Seconds}
	inBytes   = chart.Axis{Write: human.Bytes, Binary: true, Zero: true}
)

var nan = math.NaN()

func column(points []compare.Point, f func(compare.Point) float64) []float64 {
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = f(p)
	}
	return out
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
