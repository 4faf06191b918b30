package compare

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"titan/mesh"
	"titan/metrics"
	"titan/runs"
)

// fromRun takes what a run's folder tells.
func fromRun(run *runs.Run) *Result {
	r := &Result{Name: run.Name(), Path: run.Dir, Kind: Run, Basis: Basis{}, Figures: map[string]float64{}, Recipe: run.Recipe, Chips: 1}
	r.Basis[Evidence] = string(measuredHere)
	r.Basis[Effort] = "default"
	r.fromRecipe()
	if a := run.Last(); a != nil {
		if run.Record.Schema > 0 { // without a record nothing tells how it ended
			r.State = string(a.Reason(time.Now()))
		}
		r.fromAttempt(run.Trained())
	}
	r.curve(run)
	r.older()
	r.timed(run)
	r.priced()
	r.conventions()
	if n := len(run.Record.Attempts); n > 1 {
		r.note(fmt.Sprintf("%d processes, %d points superseded by restarts", n, len(run.Superseded)))
	}
	return r
}

// fromAttempt takes what the last process that trained says of itself.
func (r *Result) fromAttempt(a *runs.Attempt) {
	m := a.Machine
	if m.Platform != "" {
		r.Basis[Platform] = m.Platform
	}
	if m.Devices > 0 {
		r.Devices = m.Devices
		r.machine(m.Platform, m.DeviceKind, m.Hosts)
		if m.Platform == cpu {
			r.Basis[Machine] = fmt.Sprintf("%s, %s, %d CPUs", m.Host, m.OS, m.CPUs)
		}
	}
	var axes []string
	for _, x := range m.Mesh {
		axes = append(axes, fmt.Sprintf("%s=%d", x.Name, x.Size))
	}
	r.Mesh = strings.Join(axes, " × ")
	if a.Model.Family != "" {
		r.Basis[Model] = modelName(a.Model.Family+" "+a.Model.Flavor, r.Recipe, a.Model.Params)
	}
	if a.Model.ParamDType != "" {
		r.Basis[Precision] = precision(a.Model.ParamDType, a.Model.Float8)
	}
	if c := a.Model.FlopsPerToken.Causal; c > 0 {
		r.Basis[Flops] = strconv.FormatFloat(c, 'f', 0, 64)
	}
	if b := a.Batch; b.SeqLen > 0 {
		r.Basis[SeqLen] = strconv.Itoa(b.SeqLen)
		r.Basis[StepTokens] = strconv.FormatInt(b.Tokens, 10)
	}
	if f := a.Figures; f.Tokens+f.Padding > 0 {
		r.padding(float64(f.Padding) / float64(f.Tokens+f.Padding))
	}
	r.set(FirstCompile, a.Figures.FirstCompile)
	f := a.Figures
	r.memory(float64(max(f.MemoryReserved, f.MemoryActive)), float64(f.MemoryLimit))
}

func (r *Result) padding(share float64) {
	if finite(share) {
		r.Basis[Padding] = strconv.FormatFloat(100*min(max(share, 0), 1), 'f', 1, 64)
	}
}

func (r *Result) memory(used, limit float64) {
	r.set(MemoryBytes, used)
	if limit > 0 {
		r.set(MemoryPercent, 100*used/limit)
	}
}

const cpu = "cpu"

// machine finds how many chips the devices are. Virtual devices share a host, which
// counts as a chip.
func (r *Result) machine(platform, kind string, hosts int) {
	per := 1
	switch c, err := mesh.ChipOf(kind); {
	case platform == cpu:
		r.Chips = max(hosts, 1)
		r.Basis[PerChip] = "virtual devices"
		return
	case err == nil:
		per = max(c.Devices, 1)
	}
	r.Chips = max(r.Devices/per, 1)
	r.Basis[PerChip] = strconv.Itoa(per)
}

// timed takes the speed of the warm steps: of all processes if the metrics have
// every step, else what the last one says.
func (r *Result) timed(run *runs.Run) {
	var f metrics.Figures
	if a := run.Trained(); a != nil {
		f = a.Figures
	}
	rate, times := f.Warm, f.StepTime
	if rate.Steps == 0 {
		rate = f.All
	}
	if list := run.StepSeconds(warmup); len(list) > times.Steps {
		times = metrics.TimesOf(list)
	}
	if rate.Steps == 0 { // an older folder: what its lines say
		rate, times = r.fromWindows(times)
	}
	r.set(WarmSteps, float64(max(times.Steps, f.Warm.Steps)))
	r.set(TPSDevice, rate.TPS)
	r.set(TPSChip, rate.TPS*float64(r.Devices)/float64(max(r.Chips, 1)))
	r.set(MFUTorchTitan, rate.MFU)
	r.set(MFUCausal, rate.MFUCausal)
	r.set(StepSeconds, times.P50)
	r.set(StepP95, times.P95)
	r.set(StepP99, times.P99)
	if g := run.Goodput(); g.Wall > 0 {
		r.set(Goodput, g.Percent())
	}
}

// warmup is how many steps of a process are not timed.
const warmup = 3

// fromWindows takes the means of the log's lines, without the first.
func (r *Result) fromWindows(times metrics.StepTimes) (metrics.Throughput, metrics.StepTimes) {
	var seconds []float64
	var rate metrics.Throughput
	for _, p := range r.Curve {
		if s := p.Values["time_metrics/end_to_end(s)"]; s > 0 && p.Step > warmup && finite(s) {
			seconds = append(seconds, s)
			rate.Steps++
			rate.TPS += p.Values["throughput(tps)"]
			rate.MFU += p.Values["mfu(%)"]
			rate.MFUCausal += p.Values["mfu_causal(%)"]
		}
	}
	if n := float64(rate.Steps); n > 0 {
		rate.TPS, rate.MFU, rate.MFUCausal = rate.TPS/n, rate.MFU/n, rate.MFUCausal/n
		if times.Steps == 0 {
			times = metrics.TimesOf(seconds)
			r.note("step times are means of the log's lines: the folder has no others")
		}
	}
	return rate, times
}

// curve takes the points of a run.
func (r *Result) curve(run *runs.Run) {
	before := make([]float64, len(run.Record.Attempts)+1) // seconds of the attempts before
	for i, a := range run.Record.Attempts {
		before[i+1] = before[i] + max(a.LastSeen.Sub(a.Start).Seconds(), 0)
	}
	for _, p := range run.Train {
		a := run.Record.Attempts[p.Attempt-1]
		r.Curve = append(r.Curve, Point{
			Step: p.Step, Tokens: value(p.Values, "n_tokens_seen"), Loss: value(p.Values, "loss_metrics/global_avg_loss"),
			Seconds: before[p.Attempt-1] + max(p.Time.Sub(a.Start).Seconds(), 0), Values: p.Values,
		})
	}
	for _, p := range run.Validation {
		a := run.Record.Attempts[p.Attempt-1]
		r.Validation = append(r.Validation, Point{
			Step: p.Step, Tokens: r.tokensAt(p.Step), Loss: value(p.Values, "validation_metrics/loss"),
			Seconds: before[p.Attempt-1] + max(p.Time.Sub(a.Start).Seconds(), 0), Values: p.Values,
		})
	}
	if n := len(r.Curve); n > 0 {
		last := r.Curve[n-1]
		r.set(TokensSeen, last.Tokens)
		r.set(LastLoss, last.Loss)
		if _, ok := r.Figures[MemoryBytes]; !ok {
			const gib = 1 << 30
			r.set(MemoryBytes, last.Values["memory/max_reserved(GiB)"]*gib)
		}
	}
	r.Basis[Quality] = "training loss"
	if len(r.Validation) > 0 {
		r.Basis[Quality] = "validation loss"
	}
	if _, ok := r.Basis[Padding]; !ok {
		if n := len(run.Summaries); n > 0 {
			s := run.Summaries[n-1].Values
			if all := s["padding"] + s["tokens"]; all > 0 {
				r.padding(s["padding"] / all)
			}
		}
	}
}

// older fills in for folders without a record what recipe and metrics tell.
func (r *Result) older() {
	if r.Devices == 0 && r.Basis[Platform] == cpu {
		if n, ok := r.Recipe["mesh.devices"].(int64); ok && n > 0 && n < 1<<20 {
			r.Devices = int(n)
			r.machine(cpu, cpu, 1)
		}
	}
	if n := len(r.Curve); n > 0 && r.Basis[StepTokens] == "" {
		if last := r.Curve[n-1]; last.Step > 0 && finite(last.Tokens) {
			r.Basis[StepTokens] = strconv.FormatFloat(last.Tokens/float64(last.Step), 'f', 0, 64)
		}
	}
}

// tokensAt is how many tokens were seen by a step, by the points around it.
func (r *Result) tokensAt(step int64) float64 {
	i := sort.Search(len(r.Curve), func(i int) bool { return r.Curve[i].Step >= step })
	switch {
	case len(r.Curve) == 0:
		return math.NaN()
	case i < len(r.Curve) && r.Curve[i].Step == step:
		return r.Curve[i].Tokens
	case i == len(r.Curve):
		last := r.Curve[i-1]
		return last.Tokens / float64(max(last.Step, 1)) * float64(step)
	}
	next := r.Curve[i]
	return next.Tokens / float64(max(next.Step, 1)) * float64(step)
}

func value(values map[string]float64, name string) float64 {
	if v, ok := values[name]; ok {
		return v
	}
	return math.NaN()
}
