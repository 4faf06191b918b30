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

func (b *builder) several() {
	p := b.page
	if p.Title == "" {
		p.Title = "Comparison"
	}
	var names []string
	for _, in := range b.inputs {
		names = append(names, in.Noun()+" "+in.Path)
	}
	p.Subtitle = strings.Join(names, " · ")
	b.scaling()
	b.comparison(true)
	b.curves()
	b.steps()
	at := 0
	for _, in := range b.inputs {
		letter := ""
		if len(in.Results) > 0 {
			letter = compare.Letter(at) + ": "
		}
		switch {
		case in.Run != nil:
			b.run(in, letter, true)
		case in.Plan != nil:
			b.plan(in, letter, true)
		case in.Sweep != nil:
			b.sweep(in, letter, true)
		}
		at += len(in.Results)
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

// comparison is the table of all results, with the recipes' differences first.
func (b *builder) comparison(differences bool) {
	c := b.page.Comparison
	if c == nil {
		return
	}
	head := []string{""}
	legend := Table{Class: "words", Head: []string{"", "result", "measured on"}}
	for i, r := range c.Results {
		head = append(head, compare.Letter(i))
		legend.Rows = append(legend.Rows, cells(compare.Letter(i), r.Name, r.Describe()))
	}
	s := Section{ID: "comparison", Title: "Comparison", Tables: []Table{legend}}
	if differences && len(c.Differences) > 0 {
		t := Table{Caption: "what differs between the recipes", Head: head}
		for _, d := range c.Differences {
			row := cells(d.Key)
			for i, v := range d.Values {
				if c.Results[i].Recipe == nil {
					v = "?"
				}
				row = append(row, Cell{Text: v})
			}
			t.Rows = append(t.Rows, row)
		}
		s.Tables = append(s.Tables, t)
	}
	t := Table{Caption: "figures; † cannot be compared with A and is not ranked, ★ is the best of what can", Head: head}
	for _, r := range c.Rows {
		row := cells(r.Label)
		for i, cell := range r.Cells {
			row = append(row, compareCell(c, r.Key, i, cell))
		}
		t.Rows = append(t.Rows, row)
	}
	s.Tables = append(s.Tables, t)
	s.List = append(c.Reasons(), c.Notes...)
	b.add(s)
}

func compareCell(c *compare.Comparison, key string, i int, cell compare.Cell) Cell {
	out := Cell{Text: cell.Text, Figure: figure(key, i, cell.Value)}
	var signs []string
	if change := cell.ChangeText(); change != "" {
		signs = append(signs, change)
	}
	switch {
	case cell.Value == nil:
	case cell.Best:
		out.Class = "best"
		signs = append(signs, "★")
	case cell.Marked:
		out.Class = "marked"
		signs = append(signs, "†")
		var why []string
		for _, m := range c.Marks[i] {
			if slices.Contains(cell.Why, m.Aspect) {
				why = append(why, m.String())
			}
		}
		out.Tip = strings.Join(why, "; ")
	}
	out.Sign = strings.Join(signs, " ")
	return out
}

// label names a result in a chart, with a mark if what the chart shows cannot be
// compared with the base's.
func (b *builder) label(i int, group compare.Group) string {
	c := b.page.Comparison
	s := compare.Letter(i) + " " + c.Results[i].Name
	if c.Spoiled(i, group) {
		s += " †"
	}
	return s
}

// curves lays the runs' losses over each other.
func (b *builder) curves() {
	var tokens, seconds, norms, rates, held []chart.Series
	for i, r := range b.page.Comparison.Results {
		if len(r.Curve) == 0 {
			continue
		}
		name := b.label(i, compare.Loss)
		x := column(r.Curve, func(p compare.Point) float64 { return p.Tokens })
		loss := column(r.Curve, func(p compare.Point) float64 { return p.Loss })
		role := chart.SeriesRole(len(tokens))
		tokens = append(tokens, chart.Series{Name: name, X: x, Y: loss})
		seconds = append(seconds, chart.Series{Name: name, X: column(r.Curve, func(p compare.Point) float64 { return p.Seconds }), Y: loss})
		norms = append(norms, chart.Series{Name: name, X: x, Y: named(r.Curve, "grad_norm")})
		rates = append(rates, chart.Series{Name: name, X: x, Y: named(r.Curve, "throughput(tps)")})
		if len(r.Validation) > 0 {
			held = append(held, chart.Series{Name: name, Dots: true, Role: role, X: column(r.Validation, func(p compare.Point) float64 { return p.Tokens }), Y: column(r.Validation, func(p compare.Point) float64 { return p.Loss })})
		}
	}
	if len(tokens) == 0 {
		return
	}
	onTokens, onTime := chart.Axis{Label: "tokens", Write: human.SI}, chart.Axis{Label: "time of the run's processes", Write: human.Seconds}
	s := Section{ID: "curves", Title: "Curves", Charts: []Chart{
		lines("loss-by-tokens", "Loss by tokens", chart.Lines{X: onTokens, Series: tokens}),
		lines("loss-by-time", "Loss by time", chart.Lines{X: onTime, Series: seconds}),
		lines("gradient-norm", "Gradient norm", chart.Lines{X: onTokens, Series: norms}),
		lines("throughput", "Tokens/s a device", chart.Lines{X: onTokens, Y: chart.Axis{Zero: true}, Series: rates}),
	}}
	if len(held) > 0 {
		s.Charts = append(s.Charts, lines("validation-loss", "Validation loss by tokens", chart.Lines{X: onTokens, Series: held}))
	}
	b.add(s)
}

// steps shows step times beside each other.
func (b *builder) steps() {
	c := b.page.Comparison
	var bars []chart.Bar
	for i, r := range c.Results {
		mid, ok := r.Figures[compare.StepSeconds]
		if !ok {
			continue
		}
		bar := chart.Bar{Label: b.label(i, compare.StepTime), Parts: []chart.Part{{Name: "median or prediction", Value: mid}}}
		if p95 := r.Figures[compare.StepP95]; p95 > mid {
			bar.Parts = append(bar.Parts, chart.Part{Name: "to 95% of the steps", Value: p95 - mid})
			if p99 := r.Figures[compare.StepP99]; p99 > p95 {
				bar.Parts = append(bar.Parts, chart.Part{Name: "to 99%", Value: p99 - p95})
			}
		}
		bars = append(bars, bar)
	}
	if len(bars) > 1 && len(bars) <= 40 {
		b.add(Section{ID: "steps", Title: "Step times", Charts: []Chart{barChart("step-times", "Seconds of a step", inSeconds, bars)}})
	}
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
