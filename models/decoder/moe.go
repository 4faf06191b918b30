package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// routing is what a router decided for tokens [N, D].
type routing struct {
	experts *graph.Value // s32 [N, k]
	weights *graph.Value // f32 [N, k], differentiable
	probs   *graph.Value // f32 [N, E]
	chosen  *graph.Value // f32 [N, E]: 1 where the token goes
	lse     *graph.Value // f32 [N]: log of the softmax's denominator
}

// route takes the softmax over all experts in f32 and keeps the best TopK. The
// choice has no derivative, the kept probabilities do. With balance, tokens go
// round the experts regardless of the router, which keeps its probabilities.
func (m *MoE) route(x, router *graph.Value, balance bool) routing {
	b := x.Builder()
	N, E := x.Dim(0), m.Experts
	logits := graph.Einsum("nd,de->ne", x, router, graph.As(dtype.F32))
	probs := graph.Softmax(logits, -1)
	r := routing{probs: probs, lse: graph.LogSumExp(logits, -1)}
	classes := b.Iota(graph.T(dtype.S32, N, E), 1)
	left := graph.StopGradient(probs)
	var experts, weights []*graph.Value
	for k := range m.TopK {
		// Few of many experts: finding the largest several times costs less than
		// sorting, and is the same on every platform (the lowest number wins a tie).
		var e *graph.Value
		if balance {
			e = graph.Rem(graph.Add(graph.Mul(b.Iota(graph.T(dtype.S32, N), 0), b.Int(dtype.S32, int64(m.TopK))), b.Int(dtype.S32, int64(k))), b.Int(dtype.S32, int64(E)))
		} else {
			most := graph.ExpandDims(graph.ReduceMax(left, -1), -1)
			e = graph.ReduceMin(graph.Select(graph.Equal(left, most), classes, b.Int(dtype.S32, int64(E-1))), -1)
		}
		here := graph.Equal(classes, graph.ExpandDims(e, -1))
		w := graph.Sum(graph.Select(here, probs, b.Scalar(dtype.F32, 0)), -1)
		left = graph.Select(here, b.Scalar(dtype.F32, -1), left)
		one := graph.Convert(here, dtype.F32)
		if r.chosen == nil {
			r.chosen = one
		} else {
			r.chosen = graph.Add(r.chosen, one)
		}
		experts, weights = append(experts, e), append(weights, w)
	}
	r.experts, r.weights = graph.Stack(1, experts...), graph.Stack(1, weights...)
	if m.NormTopK {
		r.weights = graph.Div(r.weights, graph.ExpandDims(graph.Sum(r.weights, -1), -1))
	}
	return r
}

// balance holds, for one layer, what the router's losses and metrics are made of:
// sums over the tokens of each sequence.
type balance struct {
	chosen *graph.Value // f32 [B, E]: tokens that went to the expert
	probs  *graph.Value // f32 [B, E]
	z      *graph.Value // f32 [B]: squared log of the softmax's denominator
}

// experts is the feed-forward layer with experts: x [B, S, D], the layer's
// parameters as stored.
func (m *Model) experts(b *graph.Builder, x *graph.Value, w weights) (*graph.Value, balance) {
	c := m.Config.MoE
	args := []Arg{{Value: x}}
	names := []string{"layers.router", "layers.experts.w_gate", "layers.experts.w_up", "layers.experts.w_down"}
	for _, n := range names {
		args = append(args, Arg{w[n], n})
	}
	out := m.Placement.Region(b, args, 4, func(r Region, local []*graph.Value) []*graph.Value {
		x := local[0]
		B, S, D := x.Dim(0), x.Dim(1), x.Dim(2)
		rows := graph.Reshape(x, B*S, D)
		router := routerWeight(r, local[1], names[0])
		to := c.route(rows, router, m.Options.ForceLoadBalance)
		y := groupedFFN{experts: c.Experts, topK: c.TopK, block: m.Options.ExpertBlock, region: r, names: names[1:]}.
			apply(rows, to.weights, to.experts, local[2], local[3], local[4])
		perSequence := func(v *graph.Value) *graph.Value {
			shape := append([]int{B, S}, v.Shape()[1:]...)
			return graph.Sum(graph.Reshape(v, shape...), 1)
		}
		return []*graph.Value{
			graph.Reshape(y, B, S, D),
			graph.StopGradient(perSequence(to.chosen)), perSequence(to.probs), perSequence(graph.Square(to.lse)),
		}
	})
	return out[0], balance{out[1], out[2], out[3]}
}

// routerWeight gathers the router's small matrix.
func routerWeight(r Region, stored *graph.Value, name string) *graph.Value {
	return graph.CustomVJP([]*graph.Value{stored},
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			return []*graph.Value{r.Gather(args[0], name)}, nil
		},
		func(_, cts []*graph.Value) []*graph.Value { return []*graph.Value{r.Scatter(cts[0], name)} })[0]
}

// routerLosses returns the load-balancing loss of Switch Transformers (Fedus et
// al., 2021) over all layers together, as Hugging Face computes it: E times the
// sum over experts of the share of tokens times the mean probability; and the
// z-loss (Zoph et al., 2022), the mean squared log of the denominators.
// It also returns how many tokens each expert got. tokens is the number of all
// positions, which every layer routes.
func routerLosses(ls []balance, tokens *graph.Value, experts int) (aux, z, chosen *graph.Value) {
	var probs, squares *graph.Value
	layers := 0
	add := func(sum **graph.Value, x *graph.Value) {
		if *sum == nil {
			*sum = x
		} else {
			*sum = graph.Add(*sum, x)
		}
	}
	for _, l := range ls {
		// [n, B, E] of n scanned layers, [B, E] of a single one.
		var dims []int
		for d := range l.chosen.Rank() - 1 {
			dims = append(dims, d)
		}
		if len(dims) == 2 {
			layers += l.chosen.Dim(0)
		} else {
			layers++
		}
		add(&chosen, graph.Sum(l.chosen, dims...))
		add(&probs, graph.Sum(l.probs, dims...))
		add(&squares, graph.Sum(l.z))
	}
	total := graph.MulScalar(tokens, float64(layers))
	aux = graph.MulScalar(graph.Sum(graph.Mul(graph.Div(chosen, total), graph.Div(probs, total))), float64(experts))
	return aux, graph.Div(squares, total), chosen
}
