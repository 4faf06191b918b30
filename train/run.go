package train

import (
	"fmt"

	"titan/pjrt"
)

// Running is a compiled step with its state on the devices.
type Running struct {
	exe   *Compiled
	step  *Step
	state *State
}

// Step runs one step on a batch, whole arrays in the order of Step.Batch, and
// waits for its metrics.
func (r *Running) Step(rates []float32, batch [][]byte) (map[string]float64, error) {
	p, err := r.Dispatch(rates, batch)
	if err != nil {
		return nil, err
	}
	return p.Wait()
}

// Pending is a step that the devices are working on.
type Pending struct {
	step    *Step
	metrics []*pjrt.Buffer // of the first device
	close   [][]*pjrt.Buffer
}

// Dispatch starts a step. The state's old buffers are donated and gone; the new
// ones can be used at once, whatever uses them waits.
func (r *Running) Dispatch(rates []float32, batch [][]byte) (*Pending, error) {
	n := len(r.step.Vars)
	args := make([][]*pjrt.Buffer, len(r.state.bufs))
	for p := range args {
		args[p] = append(args[p], r.state.bufs[p]...)
	}
	for i, data := range append([][]byte{pjrt.AsBytes(rates)}, batch...) {
		parts, err := r.exe.Put(n+i, data)
		if err != nil {
			return nil, err
		}
		for p := range args {
			args[p] = append(args[p], parts[p])
		}
	}
	outs, err := r.exe.Exe.Run(args, pjrt.ExecuteOptions{})
	for p := range args {
		_ = pjrt.CloseBuffers(args[p][n:])
	}
	if err != nil {
		return nil, fmt.Errorf("train: running the step: %w", err)
	}
	pending := &Pending{step: r.step}
	for p := range outs {
		for i := range n {
			_ = r.state.bufs[p][i].Close() // donated
			r.state.bufs[p][i] = outs[p][i]
		}
		pending.close = append(pending.close, outs[p][n:])
	}
	pending.metrics = outs[0][n:]
	return pending, nil
}

// Wait returns the step's scalar metrics.
func (p *Pending) Wait() (map[string]float64, error) {
	defer pjrt.CloseBuffers(p.close...)
	out := map[string]float64{}
	for i, name := range p.step.Metrics {
		if p.metrics[i].Size() > 4 {
			continue
		}
		x, err := scalar(p.metrics[i])
		if err != nil {
			return nil, fmt.Errorf("train: %w", err)
		}
		out[name] = x
	}
	return out, nil
}
