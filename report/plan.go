package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"titan/compare"
	"titan/internal/human"
	"titan/plan"
	"titan/report/chart"
)

// plan adds what is known of one plan.
func (b *builder) plan(in *compare.Input, letter string, fold bool) {
	p := in.Plan
	id := func(name string) string { return slug(name, strings.TrimSuffix(letter, ": ")) }
	verdict := Section{ID: id("verdict"), Title: letter + "Verdict", Fold: fold}
	verdict.List = append(verdict.List, fits(&p.Memory))
	if p.Effort == "quick" {
		verdict.List = append(verdict.List, "compiled with little effort: memory and time are rough")
	}
	if p.Limit != "" {
		verdict.List = append(verdict.List, "what limits it: "+p.Limit)
	}
	if p.Hint != "" {
		verdict.List = append(verdict.List, "what may help: "+p.Hint)
	}
	if p.Intensity > 0 {
		verdict.List = append(verdict.List, fmt.Sprintf("%.0f FLOPs for each byte of memory moved; below %.0f memory is the limit", p.Intensity, p.Ridge))
	}
	for _, a := range p.Memory.Advice {
		verdict.List = append(verdict.List, "by estimate: "+a)
	}
	for _, c := range p.Changes {
		verdict.List = append(verdict.List, c.String())
	}
	b.add(verdict)
	if c := p.Choices; c != nil {
		t := Table{Class: "words", Head: plan.ChoiceColumns, Caption: "Sequences: passes × those of a pass. Guessed: the time by the program's own counts. Predicted: by the compiled program."}
		for _, row := range c.Rows() {
			t.Rows = append(t.Rows, cells(row...))
		}
		b.add(Section{ID: id("choices"), Title: letter + "What it was chosen from", Fold: fold, List: []string{"weighed were " + c.Weighing()}, Tables: []Table{t}})
	}
	if q := p.Prediction; q != nil && q.Seconds > 0 {
		b.add(Section{ID: id("step"), Title: letter + "One step", Fold: fold, Charts: stepCharts(p), Tables: transfers(q)})
	}
	b.add(Section{ID: id("memory"), Title: letter + "Memory", Fold: fold, Charts: []Chart{memoryChart([]string{p.Topology}, []*plan.Memory{&p.Memory})}, Tables: largest(&p.Memory)})
	env := Table{Class: "words", Rows: [][]Cell{
		cells("topology", p.Topology), cells("mesh", p.Mesh),
		cells("batch", fmt.Sprintf("%s sequences of %s tokens in %d passes: %s tokens a step", human.Int(p.Sequences), human.Int(p.SeqLen), p.Passes, human.Int(p.Tokens))),
		cells("parameters", human.Int(p.Parameters)+", "+human.Int(p.Active)+" of them multiply a token"),
		cells("FLOPs a token", human.SI(p.FlopsPerToken.Causal)+" (causal), "+human.SI(p.FlopsPerToken.Full)+" (full square)"),
		cells("compiled", p.Compile.Cache), cells("recipe's hash", fmt.Sprintf("%.12s", p.Recipe)),
	}}
	for _, line := range p.Policy {
		env.Rows = append(env.Rows, cells("policy", line))
	}
	b.add(Section{ID: id("environment"), Title: letter + "Environment", Fold: fold, Tables: []Table{env}})
}

func fits(m *plan.Memory) string {
	switch {
	case m.Fits:
		verdict := "fits"
		if m.Tight {
			verdict = "fits, but so narrowly that at the compiler's default effort it may not"
		}
		return fmt.Sprintf("%s: %s of %s a device", verdict, human.Size(m.Needed), human.Size(m.Limit))
	case m.Needed > m.Limit:
		verdict := "does not fit"
		if m.Tight {
			verdict += ", but so narrowly that at the compiler's default effort it may"
		}
		return fmt.Sprintf("%s: %s take %s of %s a device", verdict, m.Why, human.Size(m.Needed), human.Size(m.Limit))
	}
	return "does not fit: " + m.Why
}

// partNames are the parts of a step, so that each has one colour.
var partNames = func() (out []string) {
	for p := plan.Matmul; p <= plan.Bubble; p++ {
		out = append(out, p.String())
	}
	return out
}()

// stepCharts shows what a device does in a step.
func stepCharts(p *plan.Report) []Chart {
	q := p.Prediction
	bar := chart.Bar{Label: "a step"}
	for _, s := range q.Parts {
		bar.Parts = append(bar.Parts, chart.Part{Name: s.Name, Value: s.Seconds})
	}
	parts := barChart("parts", "What the time of a step goes to", inSeconds, []chart.Bar{bar}, partNames...)
	parts.Note = fmt.Sprintf("%s predicted, between %s and %s", human.Seconds(q.Seconds), human.Seconds(q.Low), human.Seconds(q.High))
	out := []Chart{parts}
	var bars []chart.Bar
	for _, t := range q.Transfers {
		if t.Seconds > 0 {
			exposed := min(t.Exposed, t.Seconds)
			bars = append(bars, chart.Bar{Label: t.Kind + " over " + strings.Join(t.Axes, ","), Parts: []chart.Part{{Name: "exposed", Value: exposed}, {Name: "hidden behind computation", Value: t.Seconds - exposed}}})
		}
	}
	if len(bars) > 0 {
		out = append(out, barChart("collectives", "Collectives: how long links are busy in a step", inSeconds, bars[:min(len(bars), 16)]))
	}
	if q.Timeline != nil {
		out = append(out, timeline(q.Timeline))
	}
	return out
}

// timeline shows the step and, lane by lane, one turn of the loops that take most
// of it.
func timeline(t *plan.Timeline) Chart {
	c := chart.Timeline{Title: "What a device does over a step", Seconds: 1, Order: partNames, Write: func(x float64) string { return human.Trim(human.Percent(100 * x)) }}
	add := func(name string, t *plan.Timeline) {
		c.Lanes = append(c.Lanes, lane(name+", "+human.Seconds(t.Seconds), t.Compute, t.Seconds))
		if len(t.Links) > 0 {
			c.Lanes = append(c.Lanes, lane("links meanwhile", t.Links, t.Seconds))
		}
	}
	add("the step", t)
	name := "one turn of the longest loop"
	for range 2 {
		var loops []plan.Stretch
		for _, s := range t.Compute {
			if s.Inside != nil && s.Seconds > t.Seconds/20 {
				loops = append(loops, s)
			}
		}
		if len(loops) == 0 {
			break
		}
		slices.SortStableFunc(loops, func(a, b plan.Stretch) int { return cmp.Compare(b.Seconds, a.Seconds) })
		for i, l := range loops[:min(len(loops), 2)] {
			if i == 1 {
				name = strings.Replace(name, "longest", "second longest", 1)
			}
			add(fmt.Sprintf("%s, of %s turns", name, human.Short(l.Turns)), l.Inside)
		}
		t, name = loops[0].Inside, "one turn of the longest loop in that"
	}
	return Chart{Name: "timeline", Title: c.Title, Full: true, Draw: c.Draw,
		Note: "Each pair of lanes is as wide as the step or the turn that it shows. Work is in the order of the compiled program, with the predicted times; what is too short to be seen is joined with its neighbours."}
}

func lane(name string, all []plan.Stretch, whole float64) chart.Lane {
	l := chart.Lane{Label: name}
	for _, s := range all {
		what := s.Part
		if s.Inside != nil {
			what = fmt.Sprintf("loop of %s turns", human.Short(s.Turns))
		}
		l.Spans = append(l.Spans, chart.Span{Start: s.Start / whole, Seconds: s.Seconds / whole, Kind: s.Part, Quiet: s.Inside != nil, Name: what + ", " + human.Seconds(s.Seconds)})
	}
	return l
}

// transfers lists the collectives.
func transfers(q *plan.Prediction) []Table {
	if len(q.Transfers) == 0 {
		return nil
	}
	t := Table{Caption: "what a device sends in a step", Head: []string{"collective", "axes", "network", "count", "arrays", "sent", "links busy", "exposed"}}
	for _, x := range q.Transfers {
		t.Rows = append(t.Rows, cells(x.Kind, strings.Join(x.Axes, ","), x.Network, human.Int(x.Count), human.Bytes(x.Bytes), human.Bytes(x.Wire), human.Seconds(x.Seconds), human.Seconds(x.Exposed)))
	}
	return []Table{t}
}

// memoryChart shows what lies in a device's memory.
func memoryChart(names []string, all []*plan.Memory) Chart {
	var bars []chart.Bar
	for i, m := range all {
		bar := chart.Bar{Label: names[i], Limit: float64(m.Limit)}
		for _, part := range []struct {
			name  string
			bytes int64
		}{{"parameters, state and batch", m.Arguments}, {"temporaries", m.Temporaries}, {"outputs not in place", m.Outputs - m.Aliased}, {"code", m.Code}} {
			if part.bytes > 0 {
				bar.Parts = append(bar.Parts, chart.Part{Name: part.name, Value: float64(part.bytes)})
			}
		}
		bars = append(bars, bar)
	}
	c := barChart("device", "Memory of a device", inBytes, bars)
	c.Note = "the sum of the parts can be above what is needed at a time"
	return c
}

// largest lists the largest arrays.
func largest(m *plan.Memory) []Table {
	if len(m.Largest) == 0 {
		return nil
	}
	t := Table{Caption: "the largest arrays of a device; not all are alive at a time", Class: "words", Head: []string{"name", "size", "number", "shape", "line"}}
	for _, x := range m.Largest {
		t.Rows = append(t.Rows, cells(x.Name, human.Size(x.Bytes), human.Int(max(x.Count, 1)), x.Shape, x.Line))
	}
	return []Table{t}
}
