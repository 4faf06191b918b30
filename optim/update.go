package optim

import (
	"math"

	"titan/graph"
	"titan/sharding"
)

// Inputs are the values of one step.
type Inputs struct {
	// LR holds the learning rates of [Optimizer.Rates]: f32 [groups].
	LR *graph.Value
	// Params and Grads are the parameters, of any float type, and the gradients
	// of the loss, which are computed with in f32. State is as [Optimizer.State]
	// lists it.
	Params, Grads, State []*graph.Value
	// Specs says how each parameter lies on the program's mesh, its gradient and
	// its state with it. Muon shares its work out by it; it may be nil where Muon
	// updates nothing or the mesh has one device.
	Specs []sharding.Spec
	// Loss may be nil. If it is not, an update whose loss is not finite is
	// skipped, too.
	Loss *graph.Value
	// MomentsFirst keeps the moments' loops apart from the parameter's, behind a
	// barrier. Set it for the CPU: XLA has no loop with several results there, and
	// would compute the moments twice, from copies of the old ones. The update
	// then moves 10 arrays of a parameter's size through memory instead of 15.
	// Other platforms make one loop of it, which moves 7.
	MomentsFirst bool
}

// Results are the values after one step. Params and State have the types and
// the order of the inputs; meant to take their memory.
type Results struct {
	Params, State []*graph.Value
	// GradNorm is the Euclidean norm of all gradients before clipping, f32.
	GradNorm *graph.Value
	// Skipped counts the updates skipped so far, s32.
	Skipped *graph.Value
}

// LRType is the type of the learning rates that Update takes.
func (o *Optimizer) LRType() graph.Type { return graph.T(graph.F32, len(o.groups)) }

// Update records one step with clipping by the global norm, for t = updates
// applied so far + 1:
//
//	g ← g · min(1, max_norm / (‖g‖ + 1e-6))
//	p ← p · (1 - lr · weight_decay)
//
// then, of AdamW (Loshchilov and Hutter, 2019),
//
//	m ← β₁ m + (1-β₁) g,   v ← β₂ v + (1-β₂) g²
//	p ← p - lr · (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + ε)
//
// or, of Muon (Jordan et al., 2024; Liu et al., 2025), for each matrix,
//
//	m ← μ m + (1-μ) g,   u ← μ m + (1-μ) g (without Nesterov: u ← m)
//	X ← u / max(‖u‖, ε), then k times: A ← X Xᵀ, X ← a X + (b A + c A²) X
//	p ← p - lr · adjust · X
//
// with (a, b, c) = (3.4445, -4.7750, 2.0315), Frobenius norms, and adjust as the
// recipe's muon_adjust_lr says. Where there are more rows than columns, Xᵀ takes
// the place of X.
//
// It is computed in f32 and rounded to the types in which parameters and moments
// are stored; of X the products are formed in muon_ns_dtype and summed in f32.
// Nothing is rounded stochastically: parameters are f32 as a rule, and moments
// are means in which roundings to nearest cancel. Where the norm or the loss is
// not finite (the norm also if it exceeds about 1e19, as its square is no f32
// then) and the recipe says skip_nonfinite, parameters and moments stay as they
// are, bit for bit, and the skipped counter advances instead of the step counter.
func (o *Optimizer) Update(b *graph.Builder, in Inputs) Results {
	n, counters := len(o.params), len(o.state)-2
	o.check(b, in)
	step, skipped := in.State[counters], in.State[counters+1]
	t := graph.AddScalar(step, 1)

	var r Results
	grads := make([]*graph.Value, n)
	for i, g := range in.Grads {
		grads[i] = graph.Convert(g, graph.F32)
	}
	r.GradNorm = globalNorm(b, grads)
	var ok *graph.Value
	if o.skip {
		ok = graph.IsFinite(r.GradNorm)
		if in.Loss != nil {
			ok = graph.And(ok, graph.IsFinite(in.Loss))
		}
	}
	keep := func(next, old *graph.Value) *graph.Value {
		if ok == nil {
			return next
		}
		return graph.Select(ok, next, old)
	}
	var scale *graph.Value
	if o.maxNorm > 0 {
		scale = graph.Min(b.Scalar(graph.F32, 1), graph.Div(b.Scalar(graph.F32, o.maxNorm), graph.AddScalar(r.GradNorm, 1e-6)))
	}
	rates := make([]*rate, len(o.groups))
	r.State = make([]*graph.Value, len(in.State))
	r.Params = make([]*graph.Value, n)
	barrier := func(xs ...*graph.Value) []*graph.Value {
		if in.MomentsFirst {
			return graph.Barrier(xs...)
		}
		return xs
	}
	// store computes with moments as they are stored.
	store := func(next, old *graph.Value) *graph.Value { return keep(graph.Convert(next, old.DType()), old) }
	f32 := func(x *graph.Value) *graph.Value { return graph.Convert(x, graph.F32) }
	var matrix []int // parameters that Muon updates
	var directions []*graph.Value
	for i, p := range in.Params {
		k := o.group[i]
		if rates[k] == nil {
			rates[k] = o.groups[k].rate(in.LR, k, t)
		}
		g := grads[i]
		if scale != nil {
			g = graph.Mul(g, scale)
		}
		oldM := in.State[i]
		if o.groups[k].muon {
			m := barrier(store(rates[k].moment(g, f32(oldM)), oldM))[0]
			r.State[i] = m
			matrix, directions = append(matrix, i), append(directions, o.muon.direction(rates[k], g, f32(m)))
			continue
		}
		oldV := in.State[o.second[i]]
		m, v := rates[k].moments(g, f32(oldM), f32(oldV))
		mv := barrier(store(m, oldM), store(v, oldV))
		next := rates[k].adamw(f32(p), f32(mv[0]), f32(mv[1]))
		r.Params[i] = store(next, p)
		r.State[i], r.State[o.second[i]] = mv[0], mv[1]
	}
	for j, x := range o.orthogonalize(b, in, matrix, directions) {
		i := matrix[j]
		view, _ := o.params[i].matrices()
		r.Params[i] = store(o.muon.apply(rates[o.group[i]], f32(in.Params[i]), x, view), in.Params[i])
	}
	r.State[counters] = keep(t, step)
	r.State[counters+1] = skipped
	if ok != nil {
		r.State[counters+1] = graph.Select(ok, skipped, graph.AddScalar(skipped, 1))
	}
	r.Skipped = r.State[counters+1]
	return r
}

// rate holds a group's scalars of one step.
type rate struct {
	settings
	lr      *graph.Value
	decay   *graph.Value // 1 - lr·weight_decay; nil for 1
	size    *graph.Value // lr / (1-β₁ᵗ)
	rsqrtC2 *graph.Value // 1/√(1-β₂ᵗ)
}

func (g group) rate(lrs *graph.Value, k int, t *graph.Value) *rate {
	b := lrs.Builder()
	lr := graph.Reshape(graph.SliceDim(lrs, 0, k, k+1))
	r := &rate{settings: g.settings, lr: lr}
	if g.settings.decay != 0 {
		r.decay = graph.Sub(b.Scalar(graph.F32, 1), graph.MulScalar(lr, g.settings.decay))
	}
	if g.muon {
		return r
	}
	r.size = graph.Div(lr, correction(g.beta1, t))
	r.rsqrtC2 = graph.Rsqrt(correction(g.beta2, t))
	return r
}

// correction is 1-βᵗ. As -expm1(t ln β) it keeps all its digits where βᵗ is
// near 1; f32(0.999) alone is off by 3e-5 of 1-β.
func correction(beta float64, t *graph.Value) *graph.Value {
	if beta == 0 {
		return t.Builder().Scalar(graph.F32, 1)
	}
	return graph.Neg(graph.Expm1(graph.MulScalar(graph.Convert(t, graph.F32), math.Log(beta))))
}

// moments returns the moments after the step.
func (r *rate) moments(g, m, v *graph.Value) (_, _ *graph.Value) {
	m = graph.Add(graph.MulScalar(m, r.beta1), graph.MulScalar(g, 1-r.beta1))
	v = graph.Add(graph.MulScalar(v, r.beta2), graph.MulScalar(graph.Square(g), 1-r.beta2))
	return m, v
}

// adamw returns the parameter after the step with its new moments.
func (r *rate) adamw(p, m, v *graph.Value) *graph.Value {
	if r.decay != nil {
		p = graph.Mul(p, r.decay)
	}
	root := graph.AddScalar(graph.Mul(graph.Sqrt(v), r.rsqrtC2), r.eps)
	return graph.Sub(p, graph.Div(graph.Mul(m, r.size), root))
}
