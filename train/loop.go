package train

import (
	"context"
	"fmt"
	"os"
	"time"

	"titan/metrics"
)

// inFlight is how many steps the devices are given ahead of the metrics.
const inFlight = 2

// dataError is a batch that could not be read, or one of validation that could
// not be computed. The state is that of the steps before it.
type dataError struct {
	batch string
	err   error
}

func (e *dataError) Error() string { return fmt.Sprintf("train: batch of %s: %v", e.batch, e.err) }

func (e *dataError) Unwrap() error { return e.err }

// loop runs the steps. Metrics are read a step late, so that the devices always
// have the next step to go on with.
func (t *trainer) loop(ctx context.Context) (stopped os.Signal, err error) {
	r := t.recipe
	steps := t.lastStep()
	if t.progress.Step >= steps {
		t.logf("nothing to do: %d of %d steps are done", t.progress.Step, steps)
		return nil, nil
	}
	batches := t.loader.Iterate(t.progress.Step, orAll(t.rows, t.options.Rows*t.options.Passes), r.Data.Prefetch)
	defer batches.Close()
	var pending []*Pending
	finish := func(leave int) error {
		for len(pending) > leave {
			p := pending[0]
			pending = pending[1:]
			if err := t.report(p); err != nil {
				return err
			}
		}
		return nil
	}
	defer func() { // after an error
		if t.hosts.lost {
			return
		}
		for _, p := range pending {
			_, _ = p.Wait()
		}
	}()
	t.meter.Begin(t.progress.Tokens)
	for s := t.progress.Step; s < steps; s++ {
		if stopped, err = t.turn(ctx); err != nil {
			return nil, err
		} else if stopped != nil {
			t.logf("%v: ending after step %d", stopped, s)
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t.profileBefore(s + 1)
		asked, end := time.Now(), t.span("data", s+1)
		b, err := batches.Next()
		end()
		got := time.Now()
		if err != nil {
			if err := finish(0); err != nil {
				return nil, err
			}
			return nil, &dataError{fmt.Sprintf("step %d", s+1), err}
		}
		end = t.span("dispatch", s+1)
		p, err := t.dispatch(s, b)
		end()
		if err != nil {
			return nil, err
		}
		p.waited, p.stalled = got.Sub(asked), idle(pending, asked, got)
		pending = append(pending, p)
		leave := inFlight - 1
		if t.due(s+1) || t.profileDue(s+1) || s == 0 || s+1 == steps {
			leave = 0 // the state is about to be read, or somebody waits for the first loss
		}
		if err := finish(leave); err != nil {
			return nil, err
		}
		if err := t.afterStep(ctx, s+1); err != nil {
			return nil, err
		}
		t.profileAfter(s + 1)
	}
	return stopped, finish(0)
}

// idle is for how long, from one time to another, the devices had finished all that
// was pending.
func idle(pending []*Pending, from, to time.Time) time.Duration {
	if n := len(pending); n > 0 {
		done := pending[n-1].finished()
		if done.IsZero() {
			return 0
		}
		if done.After(from) {
			from = done
		}
	}
	return max(0, to.Sub(from))
}

// due reports whether something reads the state after step s.
func (t *trainer) due(s int64) bool { return t.saveDue(s) || t.validationDue(s) }

func (t *trainer) saveDue(s int64) bool {
	c := t.recipe.Checkpoint
	return t.store != nil && (s%int64(c.Interval) == 0 || c.FirstStep && s == 1)
}

func (t *trainer) validationDue(s int64) bool {
	return t.eval != nil && (s%int64(t.recipe.Validation.Freq) == 0 || s == t.lastStep())
}

// afterStep validates and saves where that is due after step s.
func (t *trainer) afterStep(ctx context.Context, s int64) error {
	if t.validationDue(s) {
		end := t.span("validation", s)
		err := t.validate(ctx, s)
		if end(); err != nil {
			return err
		}
	}
	if t.saveDue(s) && s < int64(t.recipe.Training.Steps) {
		defer t.span("save", s)()
		return t.save(ctx)
	}
	return nil
}

// report waits for a step's metrics and logs them.
func (t *trainer) report(p *Pending) error {
	end := t.span("wait", p.number)
	m, err := together(&t.hosts, fmt.Sprintf("step %d", p.number), p.Wait)
	end()
	if err != nil {
		return err
	}
	t.traceProgram(p)
	if t.hosts.group != nil { // those of all hosts; in f32, so rounded beyond 16 million
		p.tokens = int64(m[MetricTokens])
	}
	t.progress.Step = p.number
	t.progress.Tokens += p.tokens
	s := metrics.Step{
		Step: p.number, Tokens: p.tokens, Padding: p.positions - p.tokens, DataWait: p.waited, Stall: p.stalled,
		Loss: m[MetricLoss], GradNorm: m[MetricGradNorm], LR: t.rates(p.number - 1),
		Skipped: m[MetricSkipped] > t.skipped, Memory: t.memory(),
		More: map[string]float64{"loss_metrics/global_max_loss": m[MetricLossMax]},
	}
	t.skipped = m[MetricSkipped]
	for name, key := range map[string]string{MetricAux: "moe/aux_loss", MetricZ: "moe/z_loss", MetricDropped: "moe/dropped_tokens"} {
		if x, ok := m[name]; ok {
			s.More[key] = x
		}
	}
	if n := m[imbalance]; n > 0 {
		s.More["moe/imbalance"] = n
		s.Counts = []metrics.Counts{{Name: "moe/expert_tokens", N: p.experts}}
	}
	if w := t.meter.Step(s); w != nil {
		t.logf("%s", w.Line(t.colour))
		if n := w.Note(); n != "" {
			t.logf("%s", n)
		}
		t.recorder.Record(w.Event())
		t.recordFigures(false)
	}
	return nil
}

// rates are the learning rates of a step by the group's name.
func (t *trainer) rates(step int64) map[string]float64 {
	out := map[string]float64{}
	rates := t.options.Optimizer.Rates(int(step))
	groups := t.options.Optimizer.Groups()
	rates = rates[len(rates)-len(groups):] // the first is missing if no parameter is left for it
	for i, g := range groups {
		out[g.Name] = float64(rates[i])
	}
	return out
}

func (t *trainer) memory() metrics.Memory {
	if t.machine.OnCPU {
		return metrics.HostMemory()
	}
	var most metrics.Memory
	for _, d := range t.machine.Client.LocalDevices() {
		if s, err := d.MemoryStats(); err == nil && s.Peak > most.Active {
			most = metrics.Memory{Active: s.Peak, Limit: s.Limit}
		}
	}
	return most
}
