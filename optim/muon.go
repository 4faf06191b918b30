package optim

import (
	"titan/dtype"
	"titan/graph"
	"titan/sharding"
)

// muon holds what all of Muon's groups share.
type muon struct {
	nesterov bool
	steps    int
	dtype    dtype.DType // of the iterations
	eps      float64
	rule     string
	// balance is what sending a byte costs, in flops; see newRoute.
	balance float64
}

func newMuon(cfg Config) (muon, error) {
	d, err := floatType("optimizer.muon_ns_dtype", cfg.MuonNSDType)
	return muon{nesterov: cfg.MuonNesterov, steps: cfg.MuonNSSteps, dtype: d, eps: cfg.MuonEps, rule: cfg.MuonAdjustLR, balance: flopsPerByte}, err
}

// moment returns the momentum after the step, f32.
func (r *rate) moment(g, m *graph.Value) *graph.Value {
	return graph.Add(graph.MulScalar(m, r.momentum), graph.MulScalar(g, 1-r.momentum))
}

// direction is what is made orthogonal.
func (o muon) direction(r *rate, g, m *graph.Value) *graph.Value {
	if !o.nesterov {
		return m
	}
	return r.moment(g, m)
}

// apply returns the parameter after the step along the orthogonal matrices x.
func (o muon) apply(r *rate, p, x *graph.Value, m matrices) *graph.Value {
	if r.decay != nil {
		p = graph.Mul(p, r.decay)
	}
	return graph.Sub(p, graph.Mul(graph.Convert(x, graph.F32), graph.MulScalar(r.lr, m.adjust(o.rule))))
}

// Coefficients of the quintic a·s + b·s³ + c·s⁵, which the iteration applies to
// every singular value: steepest at 0 of those that do not leave the
// neighbourhood of 1 again (Jordan et al., 2024).
const quinticA, quinticB, quinticC = 3.4445, -4.7750, 2.0315

// newtonSchulz returns matrices with the singular vectors of x [count, rows,
// columns] and singular values near 1. Sums are formed in f32 and rounded to x's
// type where they are multiplied again.
//
// If axes are given the device has a part only of the longer side, along which
// the matrices stay split: products over that side are summed over the devices,
// and those between sides of the shorter one are shared out by rows.
func (o muon) newtonSchulz(x *graph.Value, wide bool, axes []string) *graph.Value {
	gram, product := "cki,ckj->cij", "cki,cij->ckj"
	if wide { // at least as many columns as rows
		gram, product = "cik,cjk->cij", "cij,cjk->cik"
	}
	d := x.DType()
	precision := graph.Default
	if d == graph.F32 { // or a matrix unit would multiply in bf16
		precision = graph.Highest
	}
	dot := func(spec string, x, y *graph.Value, out dtype.DType) *graph.Value {
		return graph.Einsum(spec, x, y, graph.As(out), graph.WithPrecision(precision))
	}
	narrow := func(x *graph.Value) *graph.Value { return graph.Convert(x, d) }
	whole := func(rows *graph.Value) *graph.Value { return rows }
	if len(axes) > 0 {
		whole = func(rows *graph.Value) *graph.Value { return graph.AllGather(rows, 1, axes...) }
	}

	f := graph.Convert(x, graph.F32)
	sum := graph.Sum(graph.Square(f), 1, 2)
	if len(axes) > 0 {
		sum = graph.AllReduce(sum, axes...)
	}
	norm := graph.Max(graph.Sqrt(sum), x.Builder().Scalar(graph.F32, o.eps))
	x = narrow(graph.Div(f, graph.BroadcastInDim(norm, x.Shape(), []int{0})))
	out, _ := x.Builder().Scan([]*graph.Value{x}, nil, func(carry, _ []*graph.Value) (next, _ []*graph.Value) {
		x := carry[0]
		var g *graph.Value
		if len(axes) == 0 {
			g = dot(gram, x, x, d) // an operand that must be converted first halves a TPU's speed
		} else {
			g = narrow(graph.ReduceScatter(dot(gram, x, x, graph.F32), 1, axes...))
		}
		p := graph.Add(graph.MulScalar(graph.Convert(g, graph.F32), quinticB),
			graph.MulScalar(dot("cij,cjk->cik", g, whole(g), graph.F32), quinticC))
		var px *graph.Value
		if wide {
			px = dot(product, whole(narrow(p)), x, graph.F32)
		} else {
			px = dot(product, x, whole(narrow(p)), graph.F32)
		}
		return []*graph.Value{narrow(graph.Add(graph.MulScalar(graph.Convert(x, graph.F32), quinticA), px))}, nil
	}, graph.Iterations(o.steps))
	return out[0]
}

// orthogonalize makes the matrices of all updates orthogonal. xs are the updates
// in f32; params their positions among the parameters. Results have o's type.
func (o *Optimizer) orthogonalize(b *graph.Builder, in Inputs, params []int, xs []*graph.Value) []*graph.Value {
	out := make([]*graph.Value, len(xs))
	for i, x := range xs {
		xs[i] = graph.Convert(x, o.muon.dtype)
	}
	if m := b.Mesh(); m != nil && m.Size() > 1 && len(xs) > 0 {
		if in.Specs == nil {
			b.Fail("optim: Muon shares its work out over the mesh and must know how parameters lie: set Inputs.Specs")
		}
		var ps []Param
		var specs []sharding.Spec
		for _, k := range params {
			ps, specs = append(ps, o.params[k]), append(specs, in.Specs[k])
		}
		jobs, err := plan(m, specs, ps, o.muon)
		if err != nil {
			b.Fail("optim: %v", err)
		}
		for _, j := range jobs {
			j.run(b, o.muon, xs, out)
		}
		return out
	}
	for i, x := range xs {
		m, _ := o.params[params[i]].matrices()
		y := o.muon.newtonSchulz(graph.Reshape(x, m.count, m.in, m.out), m.in <= m.out, nil)
		out[i] = graph.Reshape(y, x.Shape()...)
	}
	return out
}
