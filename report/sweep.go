package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"titan/compare"
	"titan/internal/human"
	"titan/report/chart"
	"titan/sweep"
)

func sweepLine(s *sweep.Sweep) string {
	parts := []string{}
	switch s.Mode {
	case sweep.Weak:
		parts = append(parts, "weak scaling: the work of a device stays the same")
	case sweep.Strong:
		parts = append(parts, "strong scaling: the work of a step stays the same")
	}
	parts = append(append(parts, s.What()...), s.Kind)
	if s.Source == sweep.Plan {
		parts = append(parts, "predicted from compiled steps")
	} else {
		parts = append(parts, fmt.Sprintf("measured over %d steps after %d of warm-up", s.Steps-s.Warmup, s.Warmup))
	}
	if s.Quick {
		parts = append(parts, "compiled with little effort: rough")
	}
	return strings.Join(parts, "; ")
}

// group is the points of a series that a curve joins.
type group struct {
	name     string
	chipped  bool // sizes are chips
	measured bool
	mode     sweep.Mode
	points   []scalePoint
}

type scalePoint struct {
	size                      int
	device, total, efficiency float64
	mfu                       *[2]float64 // causal, torchtitan; 0 unknown
	source                    sweep.Source
}

// scaling draws curves over the sizes of machines, of all sweeps and published
// series of the page.
func (b *builder) scaling() {
	var groups []group
	at := 0
	for _, in := range b.inputs {
		var of []group
		switch {
		case in.Sweep != nil:
			of = sweepGroups(in.Sweep)
		case in.Series != nil:
			of = []group{seriesGroup(in.Series)}
		}
		for i := range of {
			if len(in.Results) > 0 && b.page.Comparison.Spoiled(at, compare.Speed) {
				of[i].name += " †"
			}
		}
		groups = append(groups, of...)
		at += len(in.Results)
	}
	groups = slices.DeleteFunc(groups, func(g group) bool { return len(g.points) < 2 })
	if len(groups) == 0 {
		return
	}
	// Chips and virtual devices are no axis of one chart.
	chips, devices := split(groups)
	for _, part := range []struct {
		unit   string
		groups []group
	}{{"chips", chips}, {"devices", devices}} {
		if len(part.groups) > 0 {
			shared := ""
			if part.unit == "devices" {
				shared = " These devices are virtual and share the cores of one host: the ideal cannot be had there."
			}
			b.add(Section{ID: slug("scaling", part.unit), Title: "Scaling over " + part.unit, Charts: scalingCharts(part.unit, part.groups),
				Text: "The ideal line of a series is its smallest point's speed. Efficiency is tokens/s of a device by those of that point. Dashed lines were not measured but predicted; dots of extrapolated points say so. † marks a series that cannot be compared with A; the comparison has the reasons." + shared})
		}
	}
}

func split(groups []group) (chips, devices []group) {
	for _, g := range groups {
		if g.chipped {
			chips = append(chips, g)
		} else {
			devices = append(devices, g)
		}
	}
	return chips, devices
}

// sweepGroups sorts the points of a sweep by what is varied besides the size.
func sweepGroups(s *sweep.Sweep) []group {
	by := map[string]*group{}
	for i := range s.Points {
		p := &s.Points[i]
		if p.Status != sweep.OK || !(p.TPSDevice > 0) || p.Size() < 1 {
			continue
		}
		name := s.Name
		if v := p.ValuesString(); v != "" {
			name = strings.TrimSpace(name + " " + v)
		}
		g := by[name]
		if g == nil {
			g = &group{name: cmp.Or(name, "sweep"), chipped: p.Chips > 0, measured: s.Source == sweep.Run, mode: s.Mode}
			by[name] = g
		}
		q := scalePoint{size: p.Size(), device: p.TPSDevice, total: p.TPSDevice * float64(p.Devices), efficiency: p.Efficiency, source: p.Source}
		if p.MFU != nil {
			q.mfu = &[2]float64{p.MFU.Causal, p.MFU.Full}
		}
		g.points = append(g.points, q)
	}
	var out []group
	for _, name := range slices.Sorted(maps.Keys(by)) {
		g := by[name]
		slices.SortStableFunc(g.points, func(a, b scalePoint) int { return a.size - b.size })
		out = append(out, *g)
	}
	return out
}

func seriesGroup(s *sweep.Series) group {
	g := group{name: s.Name + " (published)", chipped: true, measured: true, mode: s.Mode}
	for _, p := range s.Points {
		q := scalePoint{size: p.Chips, device: p.TPSDevice, total: p.TPSDevice * float64(p.Devices), efficiency: p.Efficiency, source: sweep.Run}
		if m := s.ByConvention(p); m != nil {
			q.mfu = &[2]float64{m.Causal, m.Full}
		}
		g.points = append(g.points, q)
	}
	return g
}

func scalingCharts(unit string, groups []group) []Chart {
	var sizes []float64
	for _, g := range groups {
		for _, p := range g.points {
			sizes = append(sizes, float64(p.size))
		}
	}
	slices.Sort(sizes)
	x := chart.Axis{Label: unit, Log: true, Ticks: slices.Compact(sizes), Write: human.Count}
	var speed, total, efficiency, causal, full []chart.Series
	for i, g := range groups {
		role := chart.SeriesRole(i)
		of := func(write func(float64) string, f func(scalePoint) float64) chart.Series {
			s := chart.Series{Name: g.name, Role: role, Dash: !g.measured, Dots: true}
			for _, p := range g.points {
				s.X, s.Y = append(s.X, float64(p.size)), append(s.Y, f(p))
				tip := fmt.Sprintf("%s, %s %s: %s", g.name, human.Int(p.size), unit, write(f(p)))
				if p.source == sweep.Extrapolated {
					tip += " (extrapolated)"
				}
				s.Tips = append(s.Tips, tip)
			}
			return s
		}
		ideal := func(f func(p, first scalePoint) float64) chart.Series {
			s := chart.Series{Role: chart.Muted, Dash: true}
			if i == 0 {
				s.Name = "ideal"
			}
			for _, p := range g.points {
				s.X, s.Y = append(s.X, float64(p.size)), append(s.Y, f(p, g.points[0]))
			}
			return s
		}
		speed = append(speed, of(human.Count, func(p scalePoint) float64 { return p.device }), ideal(func(_, first scalePoint) float64 { return first.device }))
		total = append(total, of(human.SI, func(p scalePoint) float64 { return p.total }), ideal(func(p, first scalePoint) float64 {
			return first.total * float64(p.size) / float64(first.size)
		}))
		first := g.points[0].device
		efficiency = append(efficiency, of(human.Percent, func(p scalePoint) float64 { return 100 * p.device / first }))
		if slices.ContainsFunc(g.points, func(p scalePoint) bool { return p.mfu != nil && p.mfu[0] > 0 }) {
			causal = append(causal, of(human.Percent, func(p scalePoint) float64 { return mfu(p, 0) }))
		}
		if slices.ContainsFunc(g.points, func(p scalePoint) bool { return p.mfu != nil && p.mfu[1] > 0 }) {
			full = append(full, of(human.Percent, func(p scalePoint) float64 { return mfu(p, 1) }))
		}
	}
	percent := chart.Axis{Zero: true, Write: human.Percent}
	out := []Chart{
		lines("speed", "Tokens/s a device", chart.Lines{X: x, Y: chart.Axis{Zero: true, Write: human.Short}, Series: speed}),
		lines("total", "Tokens/s of all devices", chart.Lines{X: x, Y: chart.Axis{Log: true, Write: human.SI}, Series: total}),
		lines("efficiency", "Scaling efficiency", chart.Lines{X: x, Y: percent, Series: efficiency}),
	}
	if len(causal) > 0 {
		out = append(out, lines("mfu-causal", "MFU (causal)", chart.Lines{X: x, Y: percent, Series: causal}))
	}
	if len(full) > 0 {
		out = append(out, lines("mfu-torchtitan", "MFU (torchtitan)", chart.Lines{X: x, Y: percent, Series: full}))
	}
	return out
}

// mfu is unknown where it is 0.
func mfu(p scalePoint, convention int) float64 {
	if p.mfu == nil || p.mfu[convention] == 0 {
		return nan
	}
	return p.mfu[convention]
}

// sweep adds the points of one sweep.
func (b *builder) sweep(in *compare.Input, letter string, fold bool) {
	s := in.Sweep
	id := func(name string) string { return slug(name, strings.TrimSuffix(letter, ": ")) }
	t := Table{Head: []string{"point", "status", "mesh", "sequences", "tokens a step", "step", "tokens/s a device", "efficiency", "MFU causal", "MFU torchtitan", "memory", "exposed"}}
	var why []string
	var breakdown, memory []chart.Bar
	for i := range s.Points {
		p := &s.Points[i]
		name := strings.TrimSpace(human.Int(p.Size()) + " " + p.ValuesString())
		status := string(p.Status)
		if p.Status == sweep.OK {
			status = string(p.Source)
		}
		causal, full := human.Unknown, human.Unknown
		if p.MFU != nil {
			causal, full = percentOf(p.MFU.Causal), percentOf(p.MFU.Full)
		}
		exposed := human.Unknown
		if p.Exposed != nil {
			exposed = human.Seconds(*p.Exposed)
		}
		t.Rows = append(t.Rows, cells(name, status, p.MeshString(), human.Int(p.GlobalBatch), human.Int(p.Tokens), known(p.StepSeconds, human.Seconds),
			known(p.TPSDevice, human.Count), percentOf(100*p.Efficiency), causal, full, known(float64(p.Memory), human.Bytes), exposed))
		for _, note := range []string{p.Error, p.Rule, p.Adapted} {
			if note != "" {
				why = append(why, name+": "+note)
			}
		}
		if p.Status != sweep.OK {
			continue
		}
		if len(p.Breakdown) > 0 {
			bar := chart.Bar{Label: name}
			for _, k := range slices.Sorted(maps.Keys(p.Breakdown)) {
				bar.Parts = append(bar.Parts, chart.Part{Name: k, Value: p.Breakdown[k]})
			}
			breakdown = append(breakdown, bar)
		}
		if p.Memory > 0 {
			memory = append(memory, chart.Bar{Label: name, Parts: []chart.Part{{Name: "in use", Value: float64(p.Memory)}}, Limit: float64(p.Limit)})
		}
	}
	section := Section{ID: id("points"), Title: letter + "Points", Fold: fold, Tables: []Table{t}, List: why}
	if len(breakdown) > 0 {
		section.Charts = append(section.Charts, barChart("breakdown", "What the time of a step goes to", inSeconds, breakdown, partNames...))
	}
	if len(memory) > 0 {
		section.Charts = append(section.Charts, barChart("memory", "Memory of a device, most in use", inBytes, memory))
	}
	b.add(section)
}

func known(x float64, write func(float64) string) string {
	if x == 0 {
		return human.Unknown
	}
	return write(x)
}

func percentOf(x float64) string { return known(x, human.Percent) }
