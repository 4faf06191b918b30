// Package optim updates parameters from gradients: AdamW, or Muon for matrices,
// with clipping by the global norm, a schedule of the learning rate, and groups
// of parameters with settings of their own.
//
//	o, err := optim.New(recipe.Optimizer, recipe.LRScheduler, steps, maxNorm, params)
//	// while tracing the step
//	lr := b.Input("lr", o.LRType())
//	r := o.Update(b, optim.Inputs{LR: lr, Params: ps, Grads: gs, State: st, Specs: specs, Loss: loss})
//	// at every step, on the host
//	rates := o.Rates(step)
package optim
