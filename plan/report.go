package plan

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"titan/internal/human"
)

// Report is what is known of a recipe on a topology.
type Report struct {
	Recipe string `json:"recipe"` // its hash
	// RecipeTOML is the resolved recipe.
	RecipeTOML string `json:"recipe_toml,omitempty"`
	Model      string `json:"model"`
	Topology   string `json:"topology"`
	Chips      int    `json:"chips"`
	Devices    int    `json:"devices"`
	Mesh       string `json:"mesh"`
	// A step is Sequences of SeqLen tokens, in Passes.
	Sequences int   `json:"sequences"`
	SeqLen    int   `json:"seq_len"`
	Passes    int   `json:"passes"`
	Tokens    int64 `json:"tokens"`
	// Effort is that of the compiler: default, quick, or a level such as O1.
	Effort string `json:"effort"`

	Parameters    int64        `json:"parameters"`
	Active        int64        `json:"active_parameters"` // that multiply each token
	FlopsPerToken ByConvention `json:"flops_per_token"`

	// Policy says how activation checkpointing was chosen within a memory budget.
	Policy  []string    `json:"policy,omitempty"`
	Memory  Memory      `json:"memory"`
	Compile Compilation `json:"compile"`

	// Prediction is nil if the step does not compile.
	Prediction          *Prediction  `json:"prediction,omitempty"`
	TokensPerSecond     float64      `json:"tokens_per_second_device,omitempty"`
	TokensPerSecondChip float64      `json:"tokens_per_second_chip,omitempty"`
	MFU                 ByConvention `json:"mfu_percent"`
	// Intensity is the arithmetic of contractions for each byte of the device's memory
	// that moves; below Ridge memory is the limit.
	Intensity float64 `json:"flops_per_byte,omitempty"`
	Ridge     float64 `json:"ridge_flops_per_byte,omitempty"`
	// Limit is what costs most, Hint what may help.
	Limit string `json:"limit,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Changes would make it fit; see Search.
	Changes []Change `json:"changes,omitempty"`
	// Choices are what else was weighed; see Choose.
	Choices *Choices `json:"choices,omitempty"`

	slices  int
	counted int64 // bytes besides arguments, by the program's own count
}

// ByConvention is a figure by how attention is counted: its causal half, or the
// full square.
type ByConvention struct {
	Causal float64 `json:"causal"`
	Full   float64 `json:"full"`
}

// Compilation says what compiling took, in seconds, and the sizes of the programs.
type Compilation struct {
	// Trace is the time from the recipe to the program, Seconds that of the compiler
	// and CPU what it used of all processors: of one that is in the compile cache,
	// when it was compiled.
	Trace   float64 `json:"trace_seconds"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu_seconds,omitempty"`
	Cache   string  `json:"cache"`
	Key     string  `json:"key,omitempty"`
	// ProgramBytes is the size of the StableHLO as text, CodeBytes that of the
	// compiled program.
	ProgramBytes int   `json:"program_bytes,omitempty"`
	CodeBytes    int64 `json:"code_bytes,omitempty"`
}

// String is the report as a table for people.
func (r *Report) String() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s"+format+"\n", append([]any{what}, args...)...)
	}
	line("model", "%s: %s parameters, %s of them multiply a token", r.Model, human.Int(r.Parameters), human.Int(r.Active))
	line("flops", "%s a token (causal), %s (full square)", human.SI(r.FlopsPerToken.Causal), human.SI(r.FlopsPerToken.Full))
	line("mesh", "%s on %s, %s", r.Mesh, r.Topology, human.Counted(r.Chips, "chip"))
	passes := ""
	if r.Passes > 1 {
		passes = fmt.Sprintf(" in %d passes", r.Passes)
	}
	line("batch", "%s of %s%s: %s a step", human.Counted(r.Sequences, "sequence"), human.Counted(r.SeqLen, "token"), passes, human.Counted(r.Tokens, "token"))
	effort := ""
	switch r.Effort {
	case "quick":
		effort = "; quick: compiled with little effort, so memory and time are rough"
	case "O1", "O2":
		effort = "; effort " + r.Effort + ": not what devices would run, so memory and time are rough"
	}
	line("compile", "traced in %.2f s; %s%s", r.Compile.Trace, cmp.Or(r.Compile.Cache, "not compiled"), effort)
	for k, p := range r.Policy {
		line([]string{"policy", ""}[min(k, 1)], "%s", p)
	}
	b.WriteString(r.Memory.String())
	for _, a := range r.Memory.Advice {
		line("advice", "%s, by estimate", a)
	}
	switch m := &r.Memory; {
	case m.Tight && m.Fits:
		line("note", "with little effort the compiler has been seen to need up to a fifth less for temporaries than it does by default: this may not fit")
	case m.Tight:
		line("note", "with little effort the compiler has been seen to need more for temporaries than it does by default, and this is less than a tenth of them too much: it may fit")
	}
	if r.Prediction != nil {
		b.WriteString(r.speed())
	}
	for _, c := range r.Changes {
		line("change", "%v", c)
	}
	if r.Choices != nil {
		b.WriteString(r.Choices.String())
		if set := r.Choices.Compiled[r.Choices.Chosen].Set; set != nil {
			line("chosen", "--set %s", strings.Join(quoted(set), " --set "))
		}
	}
	return b.String()
}

// String is what does and does not fit, and the largest arrays.
func (m *Memory) String() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s"+format+"\n", append([]any{what}, args...)...)
	}
	switch {
	case m.Fits:
		line("memory", "%s: %s of %s a device, %s to spare", verdict(true, m.Tight), human.Memory(m.Needed), human.Memory(m.Limit), human.Memory(m.Limit-m.Needed))
	case m.Needed > m.Limit:
		line("memory", "%s: %s take %s of %s a device, %s too much", strings.Replace(verdict(false, m.Tight), "does not fit", "DOES NOT FIT", 1), m.Why, human.Memory(m.Needed), human.Memory(m.Limit), human.Memory(m.Over()))
	default:
		line("memory", "DOES NOT FIT: %s", m.Why)
	}
	host := ""
	if m.Host > 0 {
		host = fmt.Sprintf("; in the host's memory %s of %s", human.Memory(m.Host), human.Memory(m.HostLimit))
	}
	switch {
	case m.Temporaries > 0 && m.Outputs == 0:
		line("", "arguments %s, temporaries %s", human.Memory(m.Arguments), human.Memory(m.Temporaries))
	case m.Temporaries > 0:
		line("", "arguments %s, outputs %s (%s in place), temporaries %s, code %s%s", human.Memory(m.Arguments), human.Memory(m.Outputs), human.Memory(m.Aliased), human.Memory(m.Temporaries), human.Memory(m.Code), host)
	default:
		line("", "arguments %s", human.Memory(m.Arguments))
	}
	b.WriteString(m.largestTable())
	return b.String()
}

// largestTable lists the largest arrays.
func (m *Memory) largestTable() string {
	if len(m.Largest) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-10sarrays of a device, not all alive at a time:\n", "largest")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, x := range m.Largest {
		count := ""
		if x.Count > 1 {
			count = fmt.Sprintf("%d × ", x.Count)
		}
		fmt.Fprintf(w, "          %s%s\t%s\t%s\t%s\n", count, human.Memory(x.Bytes), x.Shape, x.Name, x.Line)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// speed is what is expected of the step.
func (r *Report) speed() string {
	var b strings.Builder
	p := r.Prediction
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s"+format+"\n", append([]any{what}, args...)...)
	}
	if len(p.Transfers) > 0 {
		line("sends", "a device, in a step:")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "          collective\taxes\tnetwork\tcount\tarrays\tsent\tlinks busy\texposed\n")
		for _, t := range p.Transfers {
			fmt.Fprintf(w, "          %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Kind, cmp.Or(strings.Join(t.Axes, ","), "?"), t.Network,
				human.Int(t.Count), human.Memory(int64(t.Bytes)), human.Memory(int64(t.Wire)), human.Seconds(t.Seconds), human.Seconds(t.Exposed))
		}
		_ = w.Flush()
	}
	basis := "the compiler's cycles"
	if p.Basis == Roofline {
		basis = "rooflines"
	}
	line("step", "%s predicted from %s, between %s and %s", human.Seconds(p.Seconds), basis, human.Seconds(p.Low), human.Seconds(p.High))
	line("speed", "%s tokens/s a device, %s a chip; MFU %.1f%% (causal), %.1f%% (full square)",
		human.Count(r.TokensPerSecond), human.Count(r.TokensPerSecondChip), r.MFU.Causal, r.MFU.Full)
	line("intensity", "%.0f FLOPs for each byte of memory moved; below %.0f memory is the limit", r.Intensity, r.Ridge)
	line("breakdown", "")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, s := range p.Parts {
		fmt.Fprintf(w, "          %s\t%s\t%.1f%%\t\n", s.Name, human.Seconds(s.Seconds), 100*s.Seconds/p.Seconds)
	}
	_ = w.Flush()
	b.WriteString(kernelTable(p.TileKernels))
	for _, u := range p.Unpriced {
		line("note", "a roofline is the price of the tile kernel %s", u)
	}
	line("limit", "%s", r.Limit)
	if r.Hint != "" {
		line("hint", "%s", r.Hint)
	}
	if n := len(p.GuessedLoops); n > 0 {
		line("note", "%d loops turn as often as their data says; half of the turns of the loop around them is assumed, as causal attention has", n)
	}
	return b.String()
}

// kernelTable lists tile kernels.
func kernelTable(calls []KernelCalls) string {
	if len(calls) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-10stile kernels:\n", "kernels")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "          kernel\tcalls\ta call\twaiting\tof peak\tpriced by\n")
	for _, k := range calls {
		by := "a roofline"
		if k.Bundles > 0 {
			by = human.Int(k.Bundles) + " bundles of code"
		}
		fmt.Fprintf(w, "          %s\t%s\t%s\t%s\t%.0f%%\t%s\n", k.Name, human.Int(k.Count), human.Seconds(k.Seconds), human.Seconds(k.Waits), 100*k.Peak, by)
	}
	_ = w.Flush()
	return b.String()
}

// quoted quotes for a shell what needs it.
func quoted(set []string) []string {
	out := make([]string, len(set))
	for k, s := range set {
		if out[k] = s; strings.ContainsAny(s, `"[] `) {
			out[k] = "'" + s + "'"
		}
	}
	return out
}
