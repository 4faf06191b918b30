package runs

import (
	"math"

	"titan/metrics"
)

// catchUp adds to the figures of an attempt without an end what the metrics know of
// steps after they were written.
func (o *opening) catchUp(a *Attempt) {
	f := &a.Figures
	for _, p := range o.points {
		list := p.Lists[metrics.StepSeconds]
		fresh := min(p.Step-max(f.LastStep, a.ResumedFrom), int64(len(list)))
		if p.Attempt != a.Number || p.kind != metrics.TrainEvent || fresh <= 0 {
			continue
		}
		if f.Steps == 0 {
			f.FirstStep = p.Step - fresh + 1
		}
		var took float64
		for _, s := range list[int64(len(list))-fresh:] {
			if s > 0 && s < maxStep {
				took += s
			}
		}
		f.Goodput.Wall += took
		f.Goodput.Productive += took
		addRates(&f.All, p, took)
		f.LastStep, f.LastLoss = p.Step, metrics.Number(p.Values["loss_metrics/global_avg_loss"])
		f.Steps += int(fresh)
		f.All.Steps += int(fresh)
		if n := p.Values["n_tokens_seen"]; n > float64(f.TokensSeen) && n < 1<<62 {
			f.TokensSeen = int64(n)
		}
	}
}

// addRates adds steps that took so many seconds, at the rates of their point.
func addRates(t *metrics.Throughput, p Point, took float64) {
	_, t.HasMFU = p.Values["mfu(%)"]
	for name, rate := range map[string]*float64{
		"throughput(tps)": &t.TPS, "tflops": &t.TFLOPs, "tflops_causal": &t.TFLOPsCausal, "mfu(%)": &t.MFU, "mfu_causal(%)": &t.MFUCausal,
	} {
		if x := p.Values[name]; took > 0 && x >= 0 && !math.IsInf(x, 0) {
			*rate = (*rate*t.Seconds + x*took) / (t.Seconds + took)
		}
	}
	t.Seconds += took
}

// maxStep is longer, in seconds, than any step takes: a month.
const maxStep = 30 * 24 * 3600
