package train

import (
	"fmt"
	"sync/atomic"
	"time"

	"titan/dtype"
	"titan/pjrt"
)

// Running is a compiled step with its state on the devices.
type Running struct {
	exe   *Compiled
	step  *Step
	state *State
	rows  []int // of the batch that arrays have, ascending; nil: all
}

// imbalance is the metric made of MetricExperts: in the layer where it is worst,
// the busiest expert's tokens over the mean.
const imbalance = "imbalance"

// Pending is a step that the devices are working on.
type Pending struct {
	step    *Step
	done    *pjrt.Event
	metrics []*pjrt.Buffer // of one device: they are the same on all
	close   [][]*pjrt.Buffer

	number, tokens, positions int64
	waited, stalled           time.Duration // for the batch: the trainer, and the devices
	dispatched                time.Time
	ended                     atomic.Pointer[time.Time]
	experts                   []float64 // tokens of each expert over all layers, after Wait
}

// Dispatch starts a step on arrays in the order of Step.Batch. The state's
// buffers are donated; the new ones may be used at once, as whatever uses them
// waits for them.
func (r *Running) Dispatch(rates []float32, batch [][]byte) (*Pending, error) {
	n := len(r.step.Vars)
	here := r.exe.machine.positions()
	args := make([][]*pjrt.Buffer, len(r.state.bufs))
	for _, p := range here {
		args[p] = append(args[p], r.state.bufs[p]...)
	}
	lr, err := r.exe.Put(n, pjrt.AsBytes(rates))
	if err != nil {
		return nil, err
	}
	sent, err := r.exe.putRows(n+1, r.rows, batch)
	sent = append(sent, lr)
	if err != nil {
		_ = pjrt.CloseBuffers(sent...)
		return nil, err
	}
	for _, p := range here {
		args[p] = append(args[p], lr[p])
		for _, parts := range sent[:len(batch)] {
			args[p] = append(args[p], parts[p])
		}
	}
	outs, done, err := r.exe.Execute(args)
	if err != nil {
		_ = pjrt.CloseBuffers(sent...)
		return nil, fmt.Errorf("running the program: %w", err)
	}
	pending := &Pending{step: r.step, done: done, close: sent, dispatched: time.Now()}
	for _, p := range here {
		_ = pjrt.CloseBuffers(r.state.bufs[p]) // donated
		copy(r.state.bufs[p], outs[p][:n])
		pending.close = append(pending.close, outs[p][n:])
		pending.metrics = outs[p][n:]
	}
	done.OnReady(func(error) {
		now := time.Now()
		pending.ended.Store(&now)
	})
	return pending, nil
}

// finished is when the devices had done the step; zero: they have not.
func (p *Pending) finished() time.Time {
	if at := p.ended.Load(); at != nil {
		return *at
	}
	if p.done.IsReady() {
		return time.Now() // just now
	}
	return time.Time{}
}

// Wait returns the step's metrics when it is done.
func (p *Pending) Wait() (map[string]float64, error) {
	defer pjrt.CloseBuffers(p.close...)
	if err := p.done.Await(); err != nil {
		return nil, fmt.Errorf("train: step %d: %w", p.number, err)
	}
	out := map[string]float64{}
	for i, name := range p.step.Metrics {
		if name == MetricExperts {
			raw, err := p.metrics[i].Bytes()
			if err != nil {
				return nil, fmt.Errorf("train: step %d: %w", p.number, err)
			}
			dims := p.metrics[i].Dims()
			out[imbalance], p.experts = loadOf(raw, dims[len(dims)-1])
			continue
		}
		x, err := scalar(p.metrics[i])
		if err != nil {
			return nil, fmt.Errorf("train: step %d: %w", p.number, err)
		}
		out[name] = x
	}
	return out, nil
}

// loadOf returns, of rows of n f32 counts, the largest over rows of the largest
// count over the mean, and the sums over rows.
func loadOf(raw []byte, n int) (worst float64, sums []float64) {
	sums = make([]float64, n)
	for row := 0; row+n <= len(raw)/4; row += n {
		var sum, most float64
		for i := range n {
			x := dtype.Float(dtype.F32, raw, row+i)
			sum, most = sum+x, max(most, x)
			sums[i] += x
		}
		if sum > 0 {
			worst = max(worst, most*float64(n)/sum)
		}
	}
	return worst, sums
}

// Step runs one step and waits for its metrics.
func (r *Running) Step(rates []float32, batch [][]byte) (map[string]float64, error) {
	p, err := r.Dispatch(rates, batch)
	if err != nil {
		return nil, err
	}
	return p.Wait()
}
