package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"titan/internal/human"
	"titan/plan"
	"titan/runs"
)

// readPlan takes over what a plan says. failed is how the process ended.
func (p *Point) readPlan(f *folder, dir string, failed error) error {
	file := filepath.Join(dir, planFile)
	text, err := os.ReadFile(file)
	if err != nil {
		if failed == nil {
			failed = err
		}
		return failed
	}
	var r plan.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	p.PlanFile = f.relative(file)
	p.Memory, p.Limit = r.Memory.Needed, r.Memory.Limit
	if !r.Memory.Fits {
		p.Failure = OutOfMemory
		if p.Memory == 0 {
			return fmt.Errorf("does not fit: %s", r.Memory.Why)
		}
		return fmt.Errorf("does not fit: %s take %s of %s a device", r.Memory.Why, human.Memory(p.Memory), human.Memory(p.Limit))
	}
	if failed != nil {
		return failed
	}
	if r.Prediction == nil || r.Prediction.Seconds <= 0 {
		return errors.New("the plan has no prediction")
	}
	p.StepSeconds, p.LowSeconds, p.HighSeconds = r.Prediction.Seconds, r.Prediction.Low, r.Prediction.High
	p.TPSDevice, p.TPSChip = r.TokensPerSecond, r.TokensPerSecondChip
	p.TPS = float64(r.Tokens) / p.StepSeconds
	mfu := r.MFU
	p.MFU, p.Bottleneck = &mfu, r.Limit
	p.Breakdown = map[string]float64{}
	for _, part := range r.Prediction.Parts {
		p.Breakdown[part.Name] = part.Seconds
	}
	exposed := p.Breakdown[plan.Communication.String()]
	p.Exposed = &exposed
	return nil
}

// readRun takes over what a run measured in the steps behind the warm-up, each of
// which has a line of its metrics.
func (p *Point) readRun(f *folder, dir string, warmup int) error {
	p.RunDir = f.relative(filepath.Join(dir, runDir))
	r, _, err := runs.Open(filepath.Join(dir, runDir))
	if err != nil {
		return err
	}
	var times []float64
	var seconds, tokens, data, causal, full float64 // over the counted steps
	for _, step := range r.Train {
		v := step.Values
		if used := v["memory/max_active(GiB)"]; human.Finite(used) {
			p.Memory = max(p.Memory, int64(used*(1<<30)))
		}
		if loss, ok := v["loss_metrics/global_avg_loss"]; ok && human.Finite(loss) {
			p.Loss = &loss
		}
		took := v["time_metrics/end_to_end(s)"]
		if step.Step <= int64(warmup) || !(took > 0) {
			continue
		}
		times = append(times, took)
		seconds, data = seconds+took, data+v["time_metrics/data_loading(s)"]
		tokens += took * v["throughput(tps)"]
		causal, full = causal+took*v["mfu_causal(%)"], full+took*v["mfu(%)"]
	}
	if len(times) == 0 {
		return fmt.Errorf("the run has no steps behind the %d of warm-up", warmup)
	}
	slices.Sort(times)
	n := float64(len(times))
	p.StepSeconds, p.P95Seconds = quantile(times, 0.5), quantile(times, 0.95)
	p.LowSeconds, p.HighSeconds = times[0], times[len(times)-1]
	p.TPSDevice = tokens / seconds
	p.TPS = p.TPSDevice * float64(p.Devices)
	if p.Chips > 0 {
		p.TPSChip = p.TPS / float64(p.Chips)
	}
	if full > 0 {
		p.MFU = &plan.ByConvention{Causal: causal / seconds, Full: full / seconds}
	}
	p.Breakdown = map[string]float64{"waiting for data": data / n, "step": (seconds - data) / n}
	if a := r.Record.Attempts; len(a) > 0 && a[len(a)-1].Plugin.Version != "" {
		p.Versions.Plugin = a[len(a)-1].Plugin.Version
	}
	return nil
}

// quantile returns the q-th quantile of sorted values, between neighbours by
// proportion.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	k := int(at)
	if k+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[k] + (at-float64(k))*(sorted[k+1]-sorted[k])
}
