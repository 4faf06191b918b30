package main

import (
	"fmt"
	"strings"
	"time"
)

// figures of a plan; sent has what devices send in a ring: (n-1)/n of an array that
// is gathered or scattered over n devices, twice that of one that is added up. By
// this count the figures of MaxText are what its parameters come to in bf16.
func (r result) figures() (f figures, kernels float64) {
	p := r.report
	f = figures{
		peak: float64(p.Memory.Peak) / (1 << 30), temp: float64(p.Memory.Temporaries) / (1 << 30),
		cycles: p.Prediction.Cycles / 1e6, cpu: p.Compile.CPU, program: float64(p.Compile.ProgramBytes) / 1e3,
		host: float64(p.Memory.Host) / (1 << 30),
	}
	if p.Memory.Peak == 0 { // not known: no more than this
		f.peak = float64(p.Memory.Needed) / (1 << 30)
	}
	for _, t := range p.Prediction.Transfers {
		f.sent += t.Wire / 1e9
	}
	return f, p.Prediction.KernelCycles / 1e6
}

// maxTextBefore is what MaxText takes before it compiles, at least, in seconds.
const maxTextBefore = 30

// table is the results as Markdown, those of MaxText first, and then what titan
// takes of what it takes.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| case | effort | | peak GiB | temporaries GiB | on the host GiB | cycles, millions | with kernels | sent GB | compiling, CPU s | StableHLO KB | before compiling |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		t, kernels := r.figures()
		m := r.maxText
		row := func(first, second, who string, cells ...string) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", first, second, who, strings.Join(cells, " | "))
		}
		row(r.name, r.effort, "MaxText", number(m.peak, 3), number(m.temp, 3), onHost(m), number(m.cycles, 1), "", number(m.sent, 3), number(m.cpu, 0), number(m.program, 0), "30 s")
		row("", "", "titan", number(t.peak, 3), number(t.temp, 3), onHost(t), number(t.cycles, 1), number(t.cycles+kernels, 1), number(t.sent, 3), number(t.cpu, 0), number(t.program, 0), r.before.Round(10*time.Millisecond).String())
		row("", "", "titan is", verdict(t.peak, m.peak), verdict(t.temp, m.temp), "", verdict(t.cycles, m.cycles), "", verdict(t.sent, m.sent), verdict(t.cpu, m.cpu), verdict(t.program, m.program), verdict(r.before.Seconds(), maxTextBefore))
	}
	return b.String()
}

// onHost is empty for a step that keeps nothing in the host's memory.
func onHost(f figures) string {
	if f.host == 0 {
		return ""
	}
	return number(f.host, 1)
}

func number(x float64, decimals int) string {
	if x == 0 {
		return "?"
	}
	return fmt.Sprintf("%.*f", decimals, x)
}

// verdict says which of two figures is better, smaller being better: those within
// half a percent of each other are equal.
func verdict(ours, theirs float64) string {
	if ours == 0 || theirs == 0 {
		return "?"
	}
	q := ours / theirs
	switch {
	case q < 0.995:
		return fmt.Sprintf("better, ×%.2f", q)
	case q > 1.005:
		return fmt.Sprintf("**worse**, ×%.2f", q)
	}
	return "equal"
}
