package optim

import (
	"slices"

	"titan/graph"
)

// check stops the trace where the inputs are not what Update documents.
func (o *Optimizer) check(b *graph.Builder, in Inputs) {
	if len(in.Params) != len(o.params) || len(in.Grads) != len(o.params) || len(in.State) != len(o.state) {
		b.Fail("optim: Update has %d parameters, %d gradients and %d arrays of state; the optimizer was made for %d, %d and %d",
			len(in.Params), len(in.Grads), len(in.State), len(o.params), len(o.params), len(o.state))
	}
	if in.LR == nil || !in.LR.Type().Equal(o.LRType()) {
		b.Fail("optim: the learning rates are %v and must be %v, as Rates gives them", in.LR, o.LRType())
	}
	for i, p := range o.params {
		for _, v := range []*graph.Value{in.Params[i], in.Grads[i]} {
			if !slices.Equal(v.Shape(), p.Shape) || !v.DType().IsFloat() {
				b.Fail("optim: parameter %s or its gradient is %v and must be floats of shape %v", p.Name, v.Type(), p.Shape)
			}
		}
	}
	if in.Specs != nil && len(in.Specs) != len(o.params) {
		b.Fail("optim: Update has %d specs for %d parameters", len(in.Specs), len(o.params))
	}
	for i, s := range o.state {
		if want := graph.T(s.DType, s.Shape...); !in.State[i].Type().Equal(want) {
			b.Fail("optim: %s is %v and must be %v", s.Name, in.State[i].Type(), want)
		}
	}
	if in.Loss != nil && in.Loss.Rank() != 0 {
		b.Fail("optim: the loss is %v and must be a scalar", in.Loss.Type())
	}
}
