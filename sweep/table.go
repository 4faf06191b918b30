package sweep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"titan/internal/human"
)

// table is points as text.
type table struct {
	header []string
	rows   [][]string
	notes  []string
}

// column is one figure of points.
type column struct {
	name string
	of   func(*Point) string
	// published is the figure of a series' point, nil if there is none.
	published func(*Series, *ReferencePoint) string
}

// columns returns the figures that the points have.
func (s *Sweep) columns() []column {
	blank := func(v string, ok bool) string {
		if !ok {
			return ""
		}
		return v
	}
	var out []column
	for _, key := range s.Keys {
		out = append(out, column{strings.ToUpper(key[strings.LastIndexByte(key, '.')+1:]), func(p *Point) string {
			i := slices.IndexFunc(p.Values, func(v Value) bool { return v.Key == key })
			if i < 0 {
				return ""
			}
			return p.Values[i].Value
		}, nil})
	}
	chips := slices.ContainsFunc(s.Points, func(p Point) bool { return p.Chips > 0 })
	mfu := slices.ContainsFunc(s.Points, func(p Point) bool { return p.MFU != nil })
	add := func(c column) { out = append(out, c) }
	if chips {
		add(column{"CHIPS", func(p *Point) string {
			if p.Asked > 0 {
				return fmt.Sprintf("%d of %d", p.Chips, p.Asked)
			}
			return blank(strconv.Itoa(p.Chips), p.Chips > 0)
		}, func(_ *Series, r *ReferencePoint) string { return strconv.Itoa(r.Chips) }})
		add(column{"TOPOLOGY", func(p *Point) string { return p.Topology }, func(s *Series, _ *ReferencePoint) string { return s.Kind }})
	}
	add(column{"DEVICES", func(p *Point) string { return blank(strconv.Itoa(p.Devices), p.Devices > 0) },
		func(_ *Series, r *ReferencePoint) string { return strconv.Itoa(r.Devices) }})
	add(column{"MESH", func(p *Point) string { return strings.ReplaceAll(p.MeshString(), " × ", " ") }, nil})
	add(column{"SEQUENCES", func(p *Point) string {
		return blank(human.Int(p.GlobalBatch), p.GlobalBatch > 0)
	}, func(_ *Series, r *ReferencePoint) string {
		return blank(human.Int(r.GlobalBatch), r.GlobalBatch > 0)
	}})
	add(column{"STEP", func(p *Point) string { return blank(human.Seconds(p.StepSeconds), p.Status == OK) },
		func(_ *Series, r *ReferencePoint) string {
			return blank(human.Seconds(r.StepSeconds), r.StepSeconds > 0)
		}})
	add(column{"TOKENS/S", func(p *Point) string { return blank(human.Count(p.TPS), p.Status == OK) },
		func(_ *Series, r *ReferencePoint) string {
			return human.Count(r.TPSDevice * float64(r.Devices))
		}})
	add(column{"A DEVICE", func(p *Point) string { return blank(human.Count(p.TPSDevice), p.Status == OK) },
		func(_ *Series, r *ReferencePoint) string { return human.Count(r.TPSDevice) }})
	if chips {
		add(column{"A CHIP", func(p *Point) string { return blank(human.Count(p.TPSChip), p.Status == OK) },
			func(_ *Series, r *ReferencePoint) string { return human.Count(r.TPSChip) }})
	}
	if mfu {
		percent := func(v float64) string { return blank(fmt.Sprintf("%.1f%%", v), v > 0) }
		add(column{"MFU CAUSAL", func(p *Point) string {
			if p.MFU == nil {
				return ""
			}
			return percent(p.MFU.Causal)
		}, func(s *Series, r *ReferencePoint) string {
			if m := s.ByConvention(*r); m != nil {
				return percent(m.Causal)
			}
			return ""
		}})
		add(column{"MFU FULL", func(p *Point) string {
			if p.MFU == nil {
				return ""
			}
			return percent(p.MFU.Full)
		}, func(s *Series, r *ReferencePoint) string {
			if m := s.ByConvention(*r); m != nil {
				return percent(m.Full)
			}
			return ""
		}})
	}
	if s.Mode != NoMode {
		add(column{"EFFICIENCY", func(p *Point) string { return blank(fmt.Sprintf("%.1f%%", 100*p.Efficiency), p.Efficiency > 0) },
			func(_ *Series, r *ReferencePoint) string { return fmt.Sprintf("%.1f%%", 100*r.Efficiency) }})
	}
	if s.Source == Plan {
		add(column{"EXPOSED", func(p *Point) string {
			if p.Exposed == nil || p.StepSeconds <= 0 {
				return ""
			}
			return fmt.Sprintf("%s (%.1f%%)", human.Seconds(*p.Exposed), 100**p.Exposed/p.StepSeconds)
		}, nil})
		add(column{"MEMORY", func(p *Point) string {
			if p.Memory == 0 {
				return ""
			}
			return fmt.Sprintf("%.1f of %.1f GiB", float64(p.Memory)/(1<<30), float64(p.Limit)/(1<<30))
		}, nil})
	}
	add(column{"", func(p *Point) string { return p.label() }, func(s *Series, _ *ReferencePoint) string { return "published" }})
	return out
}

// label says what sort of figures a point has, or why it has none.
func (p *Point) label() string {
	switch {
	case p.Status == OK && p.Source == Plan:
		return "planned"
	case p.Status == OK && p.Source == Run:
		return "measured"
	case p.Status == OK:
		return string(p.Source)
	case p.Failure == OutOfMemory:
		return "does not fit"
	case p.Failure == TimedOut:
		return "took too long"
	case p.Failure == Killed:
		return "was killed"
	case p.Status == Running:
		return string(Pending)
	}
	return string(p.Status)
}

// table lays out the points, and behind them published ones.
func (s *Sweep) table(published []*Series) table {
	columns := s.columns()
	var t table
	for _, c := range columns {
		t.header = append(t.header, c.name)
	}
	for i := range s.Points {
		p := &s.Points[i]
		var row []string
		for _, c := range columns {
			row = append(row, c.of(p))
		}
		t.rows = append(t.rows, row)
		switch {
		case p.Rule != "":
			t.notes = append(t.notes, fmt.Sprintf("%s: %s: %s", p.ID, p.label(), strings.TrimPrefix(p.Error+"; "+p.Rule, "; ")))
		case p.Error != "":
			t.notes = append(t.notes, fmt.Sprintf("%s: %s", p.ID, p.Error))
		}
	}
	for _, series := range published {
		for i := range series.Points {
			var row []string
			for _, c := range columns {
				cell := ""
				if c.published != nil {
					cell = c.published(series, &series.Points[i])
				}
				row = append(row, cell)
			}
			t.rows = append(t.rows, row)
		}
		t.notes = append(t.notes, fmt.Sprintf("published: %s, by %s: %s", series.Title, series.Framework, series.Source))
		for _, n := range append(s.unlike(series), series.Notes...) {
			t.notes = append(t.notes, "published: "+n)
		}
	}
	t.notes = append(t.notes, s.notes()...)
	return t
}

// notes says how the figures are to be read.
func (s *Sweep) notes() []string {
	var out []string
	switch s.Mode {
	case Weak:
		out = append(out, "weak scaling: the work of a device stays the same; efficiency is tokens a second of a device by those of the smallest point")
	case Strong:
		out = append(out, "strong scaling: the work of a step stays the same; efficiency is tokens a second of a device by those of the smallest point")
	}
	if s.Source == Run && s.Kind == "cpu" && s.Mode != NoMode {
		out = append(out, "virtual devices share the cores of this machine: this shows that the program scales over devices, not how fast hardware would be")
	}
	if s.Quick {
		out = append(out, "compiled with little effort: memory and time are rough")
	}
	return out
}

// Title says what the sweep is.
func (s *Sweep) Title() string {
	how := map[Source]string{Run: "measured", Plan: "planned"}[s.Source]
	mode := ""
	if s.Mode != NoMode {
		mode = ", " + string(s.Mode) + " scaling"
	}
	steps := ""
	if s.Source == Run {
		steps = fmt.Sprintf(", %d steps of which the first %d do not count", s.Steps, s.Warmup)
	}
	return fmt.Sprintf("%s, on %s%s, %s%s", strings.Join(s.What(), ", "), s.Kind, mode, how, steps)
}

// several stands for what differs between the points.
const several = "several"

// of says of which model, with sequences of how many tokens and in which precision
// the points are.
func (s *Sweep) of() (model, length, precision string) {
	model, length, precision = s.Model, strconv.Itoa(s.SeqLen), s.Precision
	if s.varies("model.") {
		model = several
	}
	if s.varies("training.seq_len") {
		length = several
	}
	if s.varies("training.mixed_precision_param", "quantize.") {
		precision = several
	}
	return model, length, precision
}

// What says in words of which model, with which sequences and in which precision
// the points are.
func (s *Sweep) What() []string {
	model, length, precision := s.of()
	what := []string{model, fmt.Sprintf("sequences of %s tokens", human.Int(s.SeqLen)), precision}
	if model == several {
		what[0] = "several models"
	}
	if length == several {
		what[1] = "sequences of several lengths"
	}
	if precision == several {
		what[2] = "several precisions"
	}
	return what
}

// varies says whether a key is varied that begins like this.
func (s *Sweep) varies(prefixes ...string) bool {
	return slices.ContainsFunc(s.Keys, func(key string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	})
}

// unlike says in what a published series is of something else than the sweep, so
// that figures must not be compared.
func (s *Sweep) unlike(published *Series) []string {
	var out []string
	model, length, precision := s.of()
	for _, c := range []struct{ what, ours, theirs string }{
		{"the model", model, published.Model},
		{"chips", s.Kind, published.Kind},
		{"the length of sequences", length, strconv.Itoa(published.SeqLen)},
		{"the precision", precision, published.Precision},
		{"what stays the same", string(s.Mode), string(published.Mode)},
	} {
		if c.ours != c.theirs {
			out = append(out, fmt.Sprintf("NOT COMPARABLE: %s: %q here, %q there", c.what, c.ours, c.theirs))
		}
	}
	return out
}
