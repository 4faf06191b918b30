package decoder

import (
	"math"

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
// choice has no derivative, the kept probabilities do. bias f32 [E], if there is
// one, is added to the probabilities for the choice only. With balance, tokens go
// round the experts regardless of the router, which keeps its probabilities.
func (m *MoE) route(x, router, bias *graph.Value, balance bool) routing {
	b := x.Builder()
	N, E := x.Dim(0), m.Experts
	logits := graph.Name(graph.Einsum("nd,de->ne", x, router, graph.As(dtype.F32)), NameRouter)
	probs := graph.Softmax(logits, -1)
	r := routing{probs: probs, lse: graph.LogSumExp(logits, -1)}
	classes := b.Iota(graph.T(dtype.S32, N, E), 1)
	left := graph.StopGradient(probs)
	if bias != nil {
		left = graph.Add(left, graph.StopGradient(bias))
	}
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
		left = graph.Select(here, b.Scalar(dtype.F32, -math.MaxFloat32), left)
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
// sums over this device's tokens.
type balance struct {
	chosen  *graph.Value // f32 [E]: tokens that chose the expert
	probs   *graph.Value // f32 [E]
	z       *graph.Value // f32: squared log of the softmax's denominator
	dropped *graph.Value // f32: choices for which the expert had no room
}

// experts is the feed-forward layer with experts: x [B, S, D], the layer's
// parameters as stored. Every device routes its own tokens.
func (m *Model) experts(x *graph.Value, w weights) (*graph.Value, balance) {
	c, p := m.Config.MoE, m.Placement
	B, S, D := x.Dim(0), x.Dim(1), x.Dim(2)
	router := m.matrix(w, "layers.router")
	to := c.route(graph.Reshape(x, B*S, D), router, w[RouterBias], m.Options.ForceLoadBalance)
	// rows brings what [B·S, n] holds of this device's tokens to all that share the
	// experts' width.
	rows := func(v *graph.Value, n int) *graph.Value {
		v = p.Enter(graph.Reshape(v, B, S, n))
		return graph.Reshape(v, B*v.Dim(1), n)
	}
	stored := []*graph.Value{w[expertNames[0]], w[expertNames[1]], w[expertNames[2]]}
	y, dropped := m.expertLayer().apply(rows(x, D), rows(to.weights, c.TopK), rows(to.experts, c.TopK), stored)
	y = p.Leave(graph.Reshape(y, B, y.Dim(0)/B, D))
	if dropped == nil {
		dropped = x.Builder().Scalar(dtype.F32, 0)
	}
	return y, balance{graph.StopGradient(graph.Sum(to.chosen, 0)), graph.Sum(to.probs, 0), graph.Sum(graph.Square(to.lse)), dropped}
}

// expertLayer applies to rows [N, D] the experts s32 [N, k] that they chose, and
// adds up by weights f32 [N, k], given the stored matrices. dropped f32 is this
// device's share of the choices that were left out; nil if none ever is.
type expertLayer interface {
	apply(x, weights, experts *graph.Value, stored []*graph.Value) (y, dropped *graph.Value)
}

func (m *Model) expertLayer() expertLayer {
	c, p := m.Config.MoE, m.Placement
	if c.CapacityFactor > 0 {
		return boundedFFN{c.Experts, c.TopK, c.CapacityFactor, p}
	}
	g := groupedFFN{experts: c.Experts, topK: c.TopK, block: m.Options.ExpertBlock, tiles: m.Options.ExpertTiles, place: p}
	if !m.Options.PlainExperts {
		g.kernels = m.Options.Kernels
	}
	if p.Experts().Alone() {
		return g
	}
	return exchangedFFN{g, p.Experts(), p.Tokens(), m.Options.ExpertBuffer}
}

// stacked puts what the routers of some layers did together, layers first.
func stacked(ls []balance) balance {
	var rows [4][]*graph.Value // of the fields, over layers
	for _, l := range ls {
		for f, x := range l.fields() {
			if l.chosen.Rank() == 1 { // of a single layer
				x = graph.ExpandDims(x, 0)
			}
			rows[f] = append(rows[f], x)
		}
	}
	return balanceOf([]*graph.Value{graph.Concat(0, rows[0]...), graph.Concat(0, rows[1]...), graph.Concat(0, rows[2]...), graph.Concat(0, rows[3]...)})
}

// plus adds what the routers of further layers did, layers first.
func (r balance) plus(layers balance) balance {
	return balance{
		graph.Add(r.chosen, graph.Sum(layers.chosen, 0)), graph.Add(r.probs, graph.Sum(layers.probs, 0)),
		graph.Add(r.z, graph.Sum(layers.z)), graph.Add(r.dropped, graph.Sum(layers.dropped)),
	}
}

// routerLosses returns the load-balancing loss of Switch Transformers (Fedus et
// al., 2021) over all layers together, as Hugging Face computes it: E times the
// sum over experts of the share of tokens times the mean probability; and the
// z-loss (Zoph et al., 2022), the mean squared log of the denominators. r is summed
// over layers, own is the number of tokens that this device routes in every layer.
func (m *Model) routerLosses(r balance, own int) (aux, z *graph.Value) {
	group, stages := m.Placement.Tokens(), m.Placement.Stages()
	sum := func(x *graph.Value) *graph.Value { return group.Sum(stages.Sum(stages.FromLast(x))) }
	sparse, _ := m.Config.SparseLayers()
	total := r.z.Builder().Scalar(dtype.F32, float64(own)*float64(group.Devices())*float64(len(sparse)))
	share := graph.Div(sum(r.chosen), total)
	aux = graph.MulScalar(graph.Sum(graph.Mul(share, graph.Div(sum(r.probs), total))), float64(m.Config.MoE.Experts))
	return aux, graph.Div(sum(r.z), total)
}

// BalanceRouter returns the router's biases after a step in which so many tokens
// chose each expert: bias and chosen f32 [layers, E]. An expert with more than its
// share is made less attractive by rate and one with fewer more, which balances
// experts without a loss that pulls at the model (Wang et al., 2024, "Auxiliary-
// Loss-Free Load Balancing Strategy for Mixture-of-Experts"; DeepSeek-V3).
func BalanceRouter(bias, chosen *graph.Value, rate float64) *graph.Value {
	mean := graph.ExpandDims(graph.Mean(chosen, -1), -1)
	return graph.Add(bias, graph.MulScalar(graph.Sign(graph.Sub(mean, chosen)), rate))
}
