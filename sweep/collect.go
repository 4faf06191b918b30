package sweep

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"titan/plan"
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
		return fmt.Errorf("does not fit: %s take %.2f GiB of %.2f GiB a device", r.Memory.Why, gib(p.Memory), gib(p.Limit))
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

func gib(n int64) float64 { return float64(n) / (1 << 30) }

// stepLine is what a sweep needs of a line of a run's metrics.
type stepLine struct {
	Kind     string   `json:"kind"`
	Step     int      `json:"step"`
	Loss     *float64 `json:"loss_metrics/global_avg_loss"`
	TPS      float64  `json:"throughput(tps)"`
	Full     float64  `json:"mfu(%)"`
	Causal   float64  `json:"mfu_causal(%)"`
	Seconds  float64  `json:"time_metrics/end_to_end(s)"`
	DataWait float64  `json:"time_metrics/data_loading(s)"`
	Active   float64  `json:"memory/max_active(GiB)"`
}

// readRun takes over what a run measured in the steps behind the warm-up.
func (p *Point) readRun(f *folder, dir string, warmup int) error {
	p.RunDir = f.relative(filepath.Join(dir, runDir))
	file := filepath.Join(dir, runDir, metricsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var times []float64
	var sum stepLine // over the counted steps
	var last stepLine
	tokens := 0.0
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var l stepLine
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Kind != "train" {
			continue
		}
		last = l
		p.Memory = max(p.Memory, int64(l.Active*(1<<30)))
		if l.Step <= warmup || l.Seconds <= 0 {
			continue
		}
		times = append(times, l.Seconds)
		tokens += l.TPS * l.Seconds
		sum.Seconds, sum.DataWait = sum.Seconds+l.Seconds, sum.DataWait+l.DataWait
		sum.Full, sum.Causal = sum.Full+l.Full*l.Seconds, sum.Causal+l.Causal*l.Seconds
	}
	if len(times) == 0 {
		return fmt.Errorf("the run has no steps behind the %d of warm-up", warmup)
	}
	slices.Sort(times)
	n := float64(len(times))
	p.StepSeconds, p.P95Seconds = quantile(times, 0.5), quantile(times, 0.95)
	p.LowSeconds, p.HighSeconds = times[0], times[len(times)-1]
	p.TPSDevice = tokens / sum.Seconds
	p.TPS = p.TPSDevice * float64(p.Devices)
	if p.Chips > 0 {
		p.TPSChip = p.TPS / float64(p.Chips)
	}
	if sum.Full > 0 {
		p.MFU = &plan.ByConvention{Causal: sum.Causal / sum.Seconds, Full: sum.Full / sum.Seconds}
	}
	p.Breakdown = map[string]float64{"waiting for data": sum.DataWait / n, "step": (sum.Seconds - sum.DataWait) / n}
	p.Loss = last.Loss
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
