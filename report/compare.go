package report

import (
	"slices"
	"strings"

	"titan/compare"
	"titan/internal/human"
	"titan/report/chart"
)

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
