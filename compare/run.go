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
	"titan/models"
	"titan/runs"
)

// FromRun takes what a run's folder tells.
func FromRun(run *runs.Run) *Result {
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

// fromRecipe takes the aspects that the recipe tells.
func (r *Result) fromRecipe() {
	get := func(key string) string { return text(r.Recipe, key) }
	if name := get("model.name"); name != "" {
		r.Basis[Model] = modelName(name+" "+get("model.flavor"), r.Recipe, 0)
	}
	if s := get("training.seq_len"); s != "" {
		r.Basis[SeqLen] = s
	}
	if p := get("mesh.platform"); p != "" {
		r.Basis[Platform] = p
	}
	if p := get("training.mixed_precision_param"); p != "" {
		r.Basis[Precision] = precision(p, get("quantize.linear.float8.enable") == "true")
	}
	if r.Recipe == nil {
		return
	}
	r.Basis[Peak] = "that of the device"
	if p := get("metrics.peak_tflops"); p != "" && p != "0" {
		r.Basis[Peak] = p + " TFLOP/s, by the recipe"
	}
	r.Basis[Routing] = "by the router"
	if get("debug.moe_force_load_balance") == "true" {
		r.Basis[Routing] = "forced balance"
	}
	var packing []string
	for _, k := range []struct{ key, means string }{
		{"data.isolate_documents", "attention keeps to documents"}, {"data.reset_positions", "positions begin anew with documents"},
		{"data.mask_boundaries", "first tokens of documents are not predicted"},
	} {
		if get(k.key) == "true" {
			packing = append(packing, k.means)
		}
	}
	r.Basis[Packing] = strings.Join(packing, ", ")
	if len(packing) == 0 {
		r.Basis[Packing] = "whole rows"
	}
	if d := datasets(r.Recipe); d != "" {
		r.Basis[Data] = d
	}
}

// datasets names what is trained on, "" if the recipe has none.
func datasets(recipe map[string]any) string {
	if d := text(recipe, "training.dataset_path"); d != "" {
		return d
	}
	var out []string
	for i := 0; ; i++ {
		path := text(recipe, fmt.Sprintf("data.sources[%d].path", i))
		if path == "" {
			return strings.Join(out, ", ")
		}
		if w := text(recipe, fmt.Sprintf("data.sources[%d].weight", i)); w != "" && w != "0" {
			path += " × " + w
		}
		out = append(out, path)
	}
}

// precision names the element type of products as sweeps do.
func precision(dtype string, float8 bool) string {
	if float8 {
		return "float8"
	}
	return dtype
}

// modelName says what is trained: a family and flavor, and what the recipe changes
// of its dimensions; without a recipe the number of parameters if it is not that of
// the flavor.
func modelName(name string, recipe map[string]any, params int64) string {
	var changed []string
	for _, key := range keys(recipe) {
		if k, ok := strings.CutPrefix(key, "model.override."); ok {
			changed = append(changed, k+"="+text(recipe, key))
		}
	}
	if len(changed) > 0 {
		return name + " with " + strings.Join(changed, ", ")
	}
	family, flavor, _ := strings.Cut(name, " ")
	if c, err := models.Lookup(family, flavor); err == nil && recipe == nil && params > 0 {
		if n, _, _ := c.Count(); n != params {
			return fmt.Sprintf("%s with %d parameters", name, params)
		}
	}
	return name
}

// priced takes the price of a chip from the recipe.
func (r *Result) priced() {
	if p, err := strconv.ParseFloat(text(r.Recipe, "cost.price_per_chip_hour"), 64); err == nil && p > 0 && finite(p) {
		r.SetPrice(p, text(r.Recipe, "cost.currency"))
	}
}

// SetPrice sets what a chip costs for an hour, and the costs that follow from it.
func (r *Result) SetPrice(perChipHour float64, currency string) {
	r.Price, r.Currency = perChipHour, currency
	delete(r.Basis, Currency)
	if currency != "" {
		r.Basis[Currency] = currency
	}
	delete(r.Figures, CostToken)
	if tps := r.Figures[TPSChip]; tps > 0 {
		r.set(CostToken, metrics.Cost{PricePerChipHour: perChipHour}.Tokens(1e9, tps))
	}
}
