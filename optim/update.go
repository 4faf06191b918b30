package optim

import (
	"math"

	"titan/graph"
)

// Inputs are the values of one step.
type Inputs struct {
	// LR holds the learning rates of [Optimizer.Rates]: f32 [groups].
	LR *graph.Value
	// Params and Grads are the parameters, of any float type, and the gradients
	// of the loss, which are computed with in f32. State is as [Optimizer.State]
	// lists it.
	Params, Grads, State []*graph.Value
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

// Update records one step of AdamW (Loshchilov and Hutter, 2019) with clipping
// by the global norm, for t = updates applied so far + 1:
//
//	g ← g · min(1, max_norm / (‖g‖ + 1e-6))
//	p ← p · (1 - lr · weight_decay)
//	m ← β₁ m + (1-β₁) g,   v ← β₂ v + (1-β₂) g²
//	p ← p - lr · (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + ε)
//
// It is computed in f32 and rounded to the types in which parameters and moments
// are stored. Where the norm or the loss is not finite (the norm also if it
// exceeds about 1e19, as its square is no f32 then) and the recipe says
// skip_nonfinite, parameters and moments stay as they are, bit for bit, and the
// skipped counter advances instead of the step counter.
func (o *Optimizer) Update(b *graph.Builder, in Inputs) Results {
	n := len(o.params)
	o.check(b, in)
	step, skipped := in.State[2*n], in.State[2*n+1]
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
	for i, p := range in.Params {
		k := o.group[i]
		if rates[k] == nil {
			rates[k] = o.groups[k].rate(in.LR, k, t)
		}
		g := grads[i]
		if scale != nil {
			g = graph.Mul(g, scale)
		}
		oldM, oldV := in.State[i], in.State[n+i]
		m, v := rates[k].moments(g, graph.Convert(oldM, graph.F32), graph.Convert(oldV, graph.F32))
		m = keep(graph.Convert(m, oldM.DType()), oldM)
		v = keep(graph.Convert(v, oldV.DType()), oldV)
		if in.MomentsFirst {
			mv := graph.Barrier(m, v)
			m, v = mv[0], mv[1]
		}
		next := rates[k].adamw(graph.Convert(p, graph.F32), graph.Convert(m, graph.F32), graph.Convert(v, graph.F32))
		r.Params = append(r.Params, keep(graph.Convert(next, p.DType()), p))
		r.State[i], r.State[n+i] = m, v
	}
	r.State[2*n] = keep(t, step)
	r.State[2*n+1] = skipped
	if ok != nil {
		r.State[2*n+1] = graph.Select(ok, skipped, graph.AddScalar(skipped, 1))
	}
	r.Skipped = r.State[2*n+1]
	return r
}

// rate holds a group's scalars of one step.
type rate struct {
	settings
	decay   *graph.Value // 1 - lr·weight_decay; nil for 1
	size    *graph.Value // lr / (1-β₁ᵗ)
	rsqrtC2 *graph.Value // 1/√(1-β₂ᵗ)
}

func (g group) rate(lrs *graph.Value, k int, t *graph.Value) *rate {
	b := lrs.Builder()
	lr := graph.Reshape(graph.SliceDim(lrs, 0, k, k+1))
	r := &rate{settings: g.settings}
	if g.settings.decay != 0 {
		r.decay = graph.Sub(b.Scalar(graph.F32, 1), graph.MulScalar(lr, g.settings.decay))
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
