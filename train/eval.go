package train

import (
	"fmt"

	"titan/graph"
	"titan/models/decoder"
	"titan/parallel"
	"titan/pjrt"
	"titan/sharding"
)

// evalStep is the program that measures a batch: its inputs are the parameters
// and the batch, its outputs the sum of the losses and the number of tokens.
type evalStep struct {
	module *graph.Module
	vars   []Var
	batch  []Var
}

// BuildEval traces the loss of a batch, without gradient. o.Passes must be 1.
func buildEval(plan *parallel.Plan, o StepOptions) (*evalStep, error) {
	e := &evalStep{vars: ParamVars(plan, o.Model), batch: batchVars(plan, o)}
	var err error
	e.module, err = graph.Trace("evaluate", o.Mesh, func(b *graph.Builder) error {
		in := map[string]*graph.Value{}
		for _, v := range append(append([]Var(nil), e.vars...), e.batch...) {
			in[v.Name] = b.Input(v.Name, v.Type, graph.Sharded(v.Spec))
		}
		m := &decoder.Model{Config: o.Model, Placement: plan, Options: o.Options}
		_, sums := region(b, plan, o.Model.Arrays(), in, e.batch, func(in map[string]*graph.Value) (stored, same []*graph.Value) {
			var l decoder.Loss
			if plan.Stages().Alone() {
				l = m.Loss(b, in, batchOf(in))
			} else {
				l = evaluated(b, m, in, o)
			}
			return nil, []*graph.Value{l.Sum, l.Tokens}
		})
		b.Output("sum", sums[0], graph.Sharded(sharding.Replicated(0)))
		b.Output("tokens", sums[1], graph.Sharded(sharding.Replicated(0)))
		return nil
	})
	return e, err
}

// evaluate returns the sum of the losses and the valid tokens of a batch, of which
// arrays have the given rows; nil: all.
func evaluate(exe *Compiled, s *State, rows []int, batch [][]byte) (sum, tokens float64, err error) {
	n := len(exe.Module.Inputs()) - len(batch)
	here := exe.machine.positions()
	args := make([][]*pjrt.Buffer, len(s.bufs))
	sent, err := exe.putRows(n, rows, batch)
	defer func() { _ = pjrt.CloseBuffers(sent...) }()
	if err != nil {
		return 0, 0, err
	}
	for _, p := range here {
		args[p] = append(args[p], s.bufs[p][:n]...)
		for _, parts := range sent {
			args[p] = append(args[p], parts[p])
		}
	}
	outs, err := exe.Run(args)
	if err != nil {
		return 0, 0, fmt.Errorf("train: evaluating: %w", err)
	}
	defer pjrt.CloseBuffers(outs...)
	first := outs[here[0]]
	if sum, err = scalar(first[0]); err != nil {
		return 0, 0, err
	}
	tokens, err = scalar(first[1])
	return sum, tokens, err
}
