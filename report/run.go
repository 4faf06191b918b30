package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"titan/compare"
	"titan/internal/human"
	"titan/metrics"
	"titan/report/chart"
	"titan/runs"
)

// warmup is how many steps of each process the histogram leaves out.
const warmup = 3

// run adds what is known of one run.
func (b *builder) run(in *compare.Input, letter string, fold bool) {
	run, r := in.Run, in.Results[0]
	s := Section{ID: slug("curves", strings.TrimSuffix(letter, ": ")), Title: letter + "Curves", Fold: fold, Charts: runCharts(run, r)}
	if letter != "" {
		s.Title = letter + r.Name
	}
	b.add(s)
	b.add(goodput(run, letter, fold))
	b.add(environment(run, letter, fold))
}

// runCharts draws the figures of a run by its steps.
func runCharts(run *runs.Run, r *compare.Result) []Chart {
	if len(r.Curve) == 0 {
		return nil
	}
	x := column(r.Curve, func(p compare.Point) float64 { return float64(p.Step) })
	var marks []chart.Mark
	for _, a := range run.Record.Attempts {
		if a.Number > 1 && a.ResumedFrom > 0 {
			marks = append(marks, chart.Mark{At: float64(a.ResumedFrom), Label: "resumed"})
		}
	}
	over := func(name, title string, y chart.Axis, series ...chart.Series) Chart {
		var known []chart.Series
		for i, s := range series {
			if slices.ContainsFunc(s.Y, human.Finite) {
				s.Role = chart.SeriesRole(i)
				known = append(known, s)
			}
		}
		if len(known) == 0 {
			return Chart{}
		}
		return lines(name, title, chart.Lines{X: chart.Axis{Label: "step", Write: human.Count}, Y: y, Series: known, Marks: marks})
	}
	loss := []chart.Series{{Name: "training", X: x, Y: column(r.Curve, func(p compare.Point) float64 { return p.Loss })}}
	if len(r.Validation) > 0 {
		loss = append(loss, chart.Series{Name: "validation", Dots: true, X: column(r.Validation, func(p compare.Point) float64 { return float64(p.Step) }), Y: column(r.Validation, func(p compare.Point) float64 { return p.Loss })})
	}
	zero := chart.Axis{Zero: true}
	percent := chart.Axis{Zero: true, Write: human.Percent}
	memory := named(r.Curve, "memory/max_reserved(GiB)")
	for i := range memory {
		memory[i] *= 1 << 30
	}
	var rates []chart.Series
	for _, name := range rateNames(r.Curve) {
		rates = append(rates, chart.Series{Name: strings.TrimPrefix(name, "lr/"), X: x, Y: named(r.Curve, name)})
	}
	all := []Chart{
		over("loss", "Loss", chart.Axis{}, loss...),
		over("gradient-norm", "Gradient norm", zero, chart.Series{X: x, Y: named(r.Curve, "grad_norm")}),
		over("throughput", "Tokens/s a device", zero, chart.Series{X: x, Y: named(r.Curve, "throughput(tps)")}),
		over("mfu", "MFU by convention", percent, chart.Series{Name: "torchtitan", X: x, Y: named(r.Curve, "mfu(%)")}, chart.Series{Name: "causal", X: x, Y: named(r.Curve, "mfu_causal(%)")}),
		histogram(run, r),
		over("memory", "Memory, most in use", inBytes, chart.Series{X: x, Y: memory}),
		over("learning-rate", "Learning rate", zero, rates...),
		over("imbalance", "Busiest expert, by the mean", zero, chart.Series{X: x, Y: named(r.Curve, "moe/imbalance")}),
	}
	return slices.DeleteFunc(all, func(c Chart) bool { return c.Draw == nil })
}

// rateNames lists the learning rates that there are.
func rateNames(points []compare.Point) []string {
	names := map[string]bool{}
	for _, p := range points {
		for k := range p.Values {
			if strings.HasPrefix(k, "lr/") {
				names[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// named returns a figure of the metrics at all points, NaN where it is missing.
func named(points []compare.Point, name string) []float64 {
	return column(points, func(p compare.Point) float64 {
		if v, ok := p.Values[name]; ok {
			return v
		}
		return math.NaN()
	})
}

// histogram is how long steps took, those of the warm-up aside.
func histogram(run *runs.Run, r *compare.Result) Chart {
	list, note := run.StepSeconds(warmup), fmt.Sprintf("without the first %d steps of each process", warmup)
	if len(list) == 0 {
		note = "means of the log's lines: the folder has no times of single steps"
		for _, p := range r.Curve {
			if s := p.Values["time_metrics/end_to_end(s)"]; s > 0 && p.Step > warmup {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		return Chart{}
	}
	t := metrics.TimesOf(list)
	h := chart.Histogram{Title: "Step times", X: chart.Axis{Label: "time of a step", Write: human.Seconds}, Values: list,
		Marks: []chart.Mark{{At: t.P50, Label: "p50 " + human.Seconds(t.P50)}, {At: t.P95, Label: "p95 " + human.Seconds(t.P95)}, {At: t.P99, Label: "p99 " + human.Seconds(t.P99)}}}
	return Chart{Name: "step-times", Title: "Step times", Note: human.Int(len(list)) + " steps, " + note, Draw: h.Draw}
}

// goodput shows what became of the time.
func goodput(run *runs.Run, letter string, fold bool) Section {
	g := run.Goodput()
	s := Section{ID: slug("goodput", strings.TrimSuffix(letter, ": ")), Title: letter + "Goodput", Fold: fold}
	if !(g.Wall > 0) || run.Record.Schema == 0 { // without a record nothing is known of it
		return s
	}
	bar := chart.Bar{Label: "wall time", Parts: []chart.Part{{Name: "productive", Value: g.Productive}}}
	causes := slices.Collect(maps.Keys(g.Lost))
	slices.SortFunc(causes, func(a, b metrics.Kind) int {
		if g.Lost[a] != g.Lost[b] {
			return cmp.Compare(g.Lost[b], g.Lost[a])
		}
		return strings.Compare(string(a), string(b))
	})
	t := Table{Head: []string{"", "time", "share"}, Rows: [][]Cell{cells("productive", human.Seconds(g.Productive), human.Percent(g.Percent()))}}
	for _, k := range causes {
		bar.Parts = append(bar.Parts, chart.Part{Name: string(k), Value: g.Lost[k]})
		t.Rows = append(t.Rows, cells(string(k), human.Seconds(g.Lost[k]), human.Percent(100*g.Lost[k]/g.Wall)))
	}
	s.Charts = []Chart{barChart("wall-time", "What became of "+human.Seconds(g.Wall), inSeconds, []chart.Bar{bar})}
	s.Tables = []Table{t}
	return s
}

// environment lists what the run's processes ran on.
func environment(run *runs.Run, letter string, fold bool) Section {
	s := Section{ID: slug("environment", strings.TrimSuffix(letter, ": ")), Title: letter + "Environment", Fold: fold}
	t := Table{Class: "words", Head: []string{"process", "began", "after step", "last step", "end", "titan", "plugin", "devices"}}
	for _, a := range run.Record.Attempts {
		end := string(a.Reason(time.Now()))
		if a.Exit != nil && a.Exit.Message != "" {
			end += ": " + a.Exit.Message
		}
		devices := ""
		if a.Machine.Devices > 0 {
			devices = fmt.Sprintf("%d × %s on %d host(s), %s, %d CPUs", a.Machine.Devices, a.Machine.DeviceKind, a.Machine.Hosts, a.Machine.OS, a.Machine.CPUs)
		}
		t.Rows = append(t.Rows, cells(fmt.Sprint(a.Number), moment(a.Start), human.Int(a.ResumedFrom), human.Int(a.Figures.LastStep), end,
			a.Titan, strings.TrimSpace(a.Plugin.Name+" "+a.Plugin.Version), devices))
	}
	if len(t.Rows) > 0 {
		s.Tables = append(s.Tables, t)
	}
	if a := run.Last(); a != nil {
		p := Table{Caption: "programs of the last process", Class: "words", Head: []string{"", "seconds", "from", "arguments", "temporaries", "StableHLO"}}
		for _, x := range a.Programs {
			from := "compiled"
			if x.CacheHit {
				from = "the compile cache"
			}
			p.Rows = append(p.Rows, cells(x.Name, human.Seconds(x.Seconds), from, human.Size(x.Arguments), human.Size(x.Temporaries), fmt.Sprintf("%.12s", x.SHA256)))
		}
		if len(p.Rows) > 0 {
			s.Tables = append(s.Tables, p)
		}
		k := Table{Caption: "checkpoints of the last process", Head: []string{"step", "written", "size", "kept"}}
		for _, x := range a.Checkpoints {
			kept := "no"
			if x.Kept {
				kept = "yes"
			}
			k.Rows = append(k.Rows, cells(human.Int(x.Step), moment(x.Time), human.Size(x.Bytes), kept))
		}
		if len(k.Rows) > 0 {
			s.Tables = append(s.Tables, k)
		}
	}
	return s
}

func moment(t time.Time) string {
	if t.IsZero() {
		return human.Unknown
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// recipe lists all values.
func (b *builder) recipe(r *compare.Result) {
	if len(r.Recipe) == 0 {
		return
	}
	t := Table{Class: "words", Head: []string{"key", "value"}}
	for _, k := range slices.Sorted(maps.Keys(r.Recipe)) {
		t.Rows = append(t.Rows, cells(k, compare.Spell(r.Recipe[k])))
	}
	b.add(Section{ID: "recipe", Title: "Recipe", Tables: []Table{t}, Fold: true})
}
