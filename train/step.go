// Package train builds the training step from a recipe and runs the loop around
// it. There is one step builder, [BuildStep]; one loop, [Run].
package train

import (
	"fmt"
	"maps"
	"slices"

	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/models/decoder"
	"titan/optim"
	"titan/parallel"
	"titan/sharding"
)

// StepOptions say what one training step computes and how it is spread.
type StepOptions struct {
	Model     decoder.Config
	Options   decoder.Options
	Placement parallel.Options
	Mesh      *mesh.Mesh // with axes of package parallel
	Optimizer *optim.Optimizer
	// MomentsFirst is optim.Inputs.MomentsFirst.
	MomentsFirst bool

	Rows   int // sequences of a pass over all devices
	Passes int // passes whose gradients are added up
	SeqLen int
	// LayerAhead gathers a layer's parameters while the one before is computed, and
	// scatters its gradients while the next one's are.
	LayerAhead bool
	// Positions and Segments say whether the batch has them.
	Positions, Segments bool
}

// Var is an array that lives on the devices from step to step.
type Var struct {
	Name string
	Type graph.Type
	Spec sharding.Spec
}

// Step is a traced training step. Inputs are the state (Vars, donated), the
// learning rates, and the batch (BatchInputs); outputs are the state and
// Metrics.
type Step struct {
	Module *graph.Module
	Vars   []Var
	// Batch lists the batch's arrays: [Rows, S], or [Passes, Rows, S].
	Batch   []Var
	Metrics []string
	Plan    *parallel.Plan
}

// Names of the outputs that are no state, all f32 scalars unless said.
const (
	MetricLoss     = "loss"      // mean over the valid tokens of the step
	MetricLossMax  = "loss_max"  // largest mean over one device's tokens
	MetricGradNorm = "grad_norm" // before clipping
	MetricTokens   = "tokens"    // valid tokens
	MetricSkipped  = "skipped"   // updates skipped so far, s32
	MetricAux      = "aux_loss"  // the load-balancing loss, before its coefficient
	MetricZ        = "z_loss"
	MetricExperts  = "expert_tokens"  // that chose each expert, f32 [layers with experts, E]
	MetricDropped  = "dropped_tokens" // share of the choices for which the expert had no room
)

// NewPlan places the arrays that a model reads.
func NewPlan(m *mesh.Mesh, c decoder.Config, o parallel.Options) (*parallel.Plan, error) {
	var ps []parallel.Param
	for _, p := range c.Arrays() {
		ps = append(ps, parallel.Param{Name: p.Name, Shape: p.Shape, Axes: p.Axes})
	}
	return parallel.New(m, ps, o)
}

// BuildStep traces the step: loss and gradient of every pass, their sum, and the
// update. It is the only place where a training step is put together; planning
// compiles the same program for machines that are not there.
func BuildStep(o StepOptions) (*Step, error) {
	plan, err := NewPlan(o.Mesh, o.Model, o.Placement)
	if err != nil {
		return nil, err
	}
	if n := plan.BatchDevices(); o.Rows%n != 0 {
		return nil, fmt.Errorf("train: %d sequences do not divide over %d devices", o.Rows, n)
	}
	s := &Step{Plan: plan, Vars: StateVars(plan, o.Model, o.Optimizer), Batch: batchVars(plan, o)}
	s.Module, err = graph.Trace("train_step", o.Mesh, func(b *graph.Builder) error {
		state := map[string]*graph.Value{}
		for _, v := range s.Vars {
			state[v.Name] = b.Input(v.Name, v.Type, graph.Sharded(v.Spec), graph.Donated())
		}
		lr := b.Input("lr", o.Optimizer.LRType(), graph.Sharded(sharding.Replicated(1)))
		batch := map[string]*graph.Value{}
		for _, v := range s.Batch {
			batch[v.Name] = b.Input(v.Name, v.Type, graph.Sharded(v.Spec))
		}
		sums := gradients(b, plan, state, batch, o)

		params := o.Model.Params()
		in := optim.Inputs{LR: lr, Loss: sums.loss, MomentsFirst: o.MomentsFirst}
		for i, p := range params {
			in.Params = append(in.Params, state[p.Name])
			in.Grads = append(in.Grads, sums.grads[i])
			in.Specs = append(in.Specs, plan.Spec(p.Name))
		}
		for _, v := range o.Optimizer.State() {
			in.State = append(in.State, state[v.Name])
		}
		res := o.Optimizer.Update(b, in)
		for i, v := range slices.Concat(res.Params, nextBuffers(state, sums, res, o.Model), res.State) {
			name := s.Vars[i].Name
			b.Output(name, v, graph.Sharded(s.Vars[i].Spec), graph.Into(state[name]))
		}
		metric := func(name string, v *graph.Value) {
			if v != nil {
				s.Metrics = append(s.Metrics, name)
				b.Output(name, v, graph.Sharded(sharding.Replicated(v.Rank())))
			}
		}
		metric(MetricLoss, sums.loss)
		metric(MetricLossMax, sums.lossMax)
		metric(MetricGradNorm, res.GradNorm)
		metric(MetricTokens, sums.tokens)
		metric(MetricSkipped, res.Skipped)
		metric(MetricAux, sums.aux)
		metric(MetricZ, sums.z)
		metric(MetricExperts, sums.experts)
		metric(MetricDropped, sums.dropped)
		return nil
	})
	return s, err
}

// StateVars lists the state: what the model reads, then what the optimiser keeps.
func StateVars(plan *parallel.Plan, c decoder.Config, o *optim.Optimizer) []Var {
	vars := ParamVars(plan, c)
	params := len(c.Params())
	for _, v := range o.State() {
		spec := sharding.Replicated(len(v.Shape))
		if v.Param >= 0 && v.Param < params {
			spec = vars[v.Param].Spec
		}
		vars = append(vars, Var{v.Name, graph.T(v.DType, v.Shape...), spec})
	}
	return vars
}

// ParamVars lists the arrays that the model reads: parameters, then buffers.
func ParamVars(plan *parallel.Plan, c decoder.Config) []Var {
	var vars []Var
	for _, p := range c.Arrays() {
		vars = append(vars, Var{p.Name, p.Type(dtype.F32), plan.Spec(p.Name)})
	}
	return vars
}

// Names of the batch's arrays.
const (
	BatchTokens    = "tokens"
	BatchLabels    = "labels"
	BatchValid     = "valid"
	BatchPositions = "positions"
	BatchSegments  = "segments"
)

// batchNames lists them; a batch need not have the last two.
var batchNames = []string{BatchTokens, BatchLabels, BatchValid, BatchPositions, BatchSegments}

func batchVars(plan *parallel.Plan, o StepOptions) []Var {
	shape, dim := []int{o.Rows, o.SeqLen}, 0
	if o.Passes > 1 {
		shape, dim = []int{o.Passes, o.Rows, o.SeqLen}, 1
	}
	spec := plan.BatchSpec(len(shape), dim)
	vars := []Var{
		{BatchTokens, graph.T(dtype.S32, shape...), spec},
		{BatchLabels, graph.T(dtype.S32, shape...), spec},
		{BatchValid, graph.T(dtype.F32, shape...), spec},
	}
	if o.Positions {
		vars = append(vars, Var{BatchPositions, graph.T(dtype.S32, shape...), spec})
	}
	if o.Segments {
		vars = append(vars, Var{BatchSegments, graph.T(dtype.S32, shape...), spec})
	}
	return vars
}

func batchOf(in map[string]*graph.Value) decoder.Batch {
	return decoder.Batch{
		Tokens: in[BatchTokens], Labels: in[BatchLabels], Valid: in[BatchValid],
		Positions: in[BatchPositions], Segments: in[BatchSegments],
	}
}

// sums are the results of all passes of a step.
type sums struct {
	grads                 []*graph.Value // as their parameters are stored
	loss, lossMax, tokens *graph.Value
	// nil for dense models
	aux, z, experts, dropped *graph.Value
}

// region traces f as what every device does with its part of the model's arrays
// and of the batch. f returns values that are stored as the first arrays are, one
// for each, and others that are the same on all devices.
func region(b *graph.Builder, plan *parallel.Plan, arrays []decoder.Param, in map[string]*graph.Value, batch []Var, f func(in map[string]*graph.Value) (stored, same []*graph.Value)) (stored, same []*graph.Value) {
	var names []string
	var args []*graph.Value
	var specs []sharding.Spec
	pass := func(name string, spec sharding.Spec) {
		names, args, specs = append(names, name), append(args, in[name]), append(specs, spec)
	}
	var out []sharding.Spec
	for _, p := range arrays {
		pass(p.Name, plan.Spec(p.Name))
	}
	for _, v := range batch {
		pass(v.Name, v.Spec)
	}
	// How many values there are, and of which rank, is known once f has run.
	outs := 0
	all := b.ShardMapOut(args, specs, func(local []*graph.Value) ([]*graph.Value, []sharding.Spec) {
		named := map[string]*graph.Value{}
		for i, n := range names {
			named[n] = local[i]
		}
		stored, same := f(named)
		outs = len(stored)
		for i := range stored {
			out = append(out, specs[i])
		}
		for _, v := range same {
			out = append(out, sharding.Replicated(v.Rank()))
		}
		return slices.Concat(stored, same), out
	})
	return all[:outs], all[outs:]
}

// gradients computes loss and gradients. The loss is the sum over the valid
// tokens of all passes divided by their number, so that passes with fewer count
// less; a gradient is added up in f32, as it is stored.
func gradients(b *graph.Builder, plan *parallel.Plan, state, batch map[string]*graph.Value, o StepOptions) sums {
	if o.LayerAhead {
		b.GatherAhead()
	}
	arrays := o.Model.Arrays()
	in := maps.Clone(batch)
	for _, p := range arrays {
		in[p.Name] = state[p.Name]
	}
	m := &decoder.Model{Config: o.Model, Placement: plan, Options: o.Options}
	grads, same := region(b, plan, arrays, in, batchVars(plan, o), func(in map[string]*graph.Value) (stored, same []*graph.Value) {
		var s sums
		if m.Placement.Stages().Alone() {
			s = accumulate(b, m, plan, in, o)
		} else {
			s = pipelined(b, m, plan, in, o)
		}
		same = []*graph.Value{s.loss, s.lossMax, s.tokens}
		if s.aux != nil {
			same = append(same, s.aux, s.z, s.experts, s.dropped)
		}
		return s.grads, same
	})
	s := sums{grads: grads, loss: same[0], lossMax: same[1], tokens: same[2]}
	if len(same) > 3 {
		s.aux, s.z, s.experts, s.dropped = same[3], same[4], same[5], same[6]
	}
	return s
}

// objective is what gradients are of: the pass's share of the mean loss over total
// tokens, and of the routers' losses.
func objective(l decoder.Loss, total *graph.Value, moe *decoder.MoE, passes int) *graph.Value {
	sum := graph.Div(l.Sum, total)
	if moe == nil {
		return sum
	}
	part := 1 / float64(max(1, passes))
	if moe.AuxLossCoef != 0 {
		sum = graph.Add(sum, graph.MulScalar(l.Aux, moe.AuxLossCoef*part))
	}
	if moe.ZLossCoef != 0 {
		sum = graph.Add(sum, graph.MulScalar(l.Z, moe.ZLossCoef*part))
	}
	return sum
}

// accumulate computes, on one device's part, the loss and the gradients of all
// passes.
func accumulate(b *graph.Builder, m *decoder.Model, plan *parallel.Plan, in map[string]*graph.Value, o StepOptions) sums {
	params := m.Config.Params()
	every := m.Placement.Sequences()
	tokens := plan.Rows().Sum(graph.Sum(in[BatchValid]))
	total := graph.Max(tokens, b.Scalar(dtype.F32, 1))
	part := 1 / float64(max(1, o.Passes)) // of a mean over passes
	used, wrt := maps.Clone(in), make([]*graph.Value, len(params))
	for i, p := range params {
		if o.Passes > 1 || m.Config.TieEmbeddings && p.Name == "embed" { // used more than once
			used[p.Name] = plan.Once(in[p.Name], p.Name)
		}
		if wrt[i] = in[p.Name]; o.Passes > 1 {
			wrt[i] = used[p.Name]
		}
	}
	pass := func(batch map[string]*graph.Value) []*graph.Value {
		l := m.Loss(b, used, batchOf(batch))
		out := append(graph.Grad(objective(l, total, m.Config.MoE, o.Passes), wrt...), l.Sum, l.Own, l.OwnTokens)
		if l.Aux != nil {
			out = append(out, l.Aux, l.Z, l.ExpertTokens, l.Dropped)
		}
		return out
	}

	var all []*graph.Value
	if o.Passes <= 1 {
		all = pass(in)
	} else {
		var names []string
		var xs, init []*graph.Value
		for _, v := range batchNames {
			if in[v] != nil {
				names, xs = append(names, v), append(xs, in[v])
			}
		}
		for _, p := range params {
			init = append(init, graph.ZerosLike(used[p.Name]))
		}
		zero := b.Scalar(dtype.F32, 0)
		init = append(init, zero, zero, zero)
		if moe := m.Config.MoE; moe != nil {
			sparse, _ := m.Config.SparseLayers()
			init = append(init, zero, zero, b.Zeros(graph.T(dtype.F32, len(sparse), moe.Experts)), zero)
		}
		all, _ = b.Scan(init, xs, func(sum, row []*graph.Value) (next, ys []*graph.Value) {
			one := map[string]*graph.Value{}
			for i, n := range names {
				one[n] = row[i]
			}
			for i, x := range pass(one) {
				next = append(next, graph.Add(sum[i], x))
			}
			return next, nil
		})
		before := make([]*graph.Value, len(params))
		for i, p := range params {
			before[i] = in[p.Name]
		}
		copy(all, graph.VJP(wrt, all[:len(params)], before))
	}
	n := len(params)
	s := sums{grads: all[:n], tokens: tokens}
	s.loss = graph.Div(all[n], total)
	s.lossMax = every.Max(graph.Div(all[n+1], graph.Max(all[n+2], b.Scalar(dtype.F32, 1))))
	if rest := all[n+3:]; len(rest) > 0 {
		s.aux, s.z, s.experts = graph.MulScalar(rest[0], part), graph.MulScalar(rest[1], part), rest[2]
		s.dropped = graph.Div(rest[3], graph.Max(graph.Sum(s.experts), b.Scalar(dtype.F32, 1)))
	}
	return s
}
