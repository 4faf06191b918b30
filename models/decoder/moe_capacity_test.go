package decoder

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/parallel"
	"titan/pjrt"
)

func floatsOf(raw []byte) []float32 {
	x := make([]float32, len(raw)/4)
	copy(pjrt.AsBytes(x), raw)
	return x
}

// choices are the experts that each token chooses, the likeliest first, plainly.
func (p *expertProblem) choices() [][]int {
	D, E := p.config.Dim, p.config.MoE.Experts
	x, router, bias := floatsOf(p.data["x"]), floatsOf(p.data["layers.router"]), floatsOf(p.data[RouterBias])
	var out [][]int
	for n := range p.B * p.S {
		scores, sum := make([]float64, E), 0.0
		for e := range E {
			for d := range D {
				scores[e] += float64(x[n*D+d]) * float64(router[d*E+e])
			}
		}
		most := slices.Max(scores)
		for e := range E {
			scores[e] = math.Exp(scores[e] - most)
			sum += scores[e]
		}
		order := make([]int, E)
		for e := range E {
			order[e] = e
			scores[e] /= sum
			if len(bias) > 0 {
				scores[e] += float64(bias[e])
			}
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case scores[a] > scores[b]:
				return -1
			case scores[a] < scores[b]:
				return 1
			}
			return 0
		})
		out = append(out, order[:p.config.MoE.TopK])
	}
	return out
}

// plain computes every expert for every token, and of each token's choices adds up
// those that kept says: the definition, differentiated by the rules of its parts.
func (p *expertProblem) plain(t *testing.T, kept func(token, choice int) bool) expertResult {
	c := p.config.MoE
	N, D, E, F := p.B*p.S, p.config.Dim, c.Experts, c.HiddenDim
	chosen, used, dropped := make([]float32, N*E), make([]float32, N*E), float32(0)
	counts := make([]float32, E)
	for n, es := range p.choices() {
		for k, e := range es {
			chosen[n*E+e] = 1
			counts[e]++
			if kept(n, k) {
				used[n*E+e] = 1
			} else {
				dropped++
			}
		}
	}
	types := []graph.Type{
		graph.T(dtype.F32, N, D), graph.T(dtype.F32, D, E), graph.T(dtype.F32, E, D, F), graph.T(dtype.F32, E, D, F), graph.T(dtype.F32, E, F, D),
		graph.T(dtype.F32, N, D), graph.T(dtype.F32, N, E), graph.T(dtype.F32, N, E),
	}
	data := [][]byte{p.data["x"], p.data["layers.router"]}
	for _, n := range expertNames {
		data = append(data, p.data[n])
	}
	data = append(data, p.data["ct"], pjrt.AsBytes(chosen), pjrt.AsBytes(used))
	out := program(t, types, data, func(b *graph.Builder, in []*graph.Value) []*graph.Value {
		w := graph.Mul(graph.Softmax(graph.Einsum("nd,de->ne", in[0], in[1]), -1), in[6])
		if c.NormTopK {
			w = graph.Div(w, graph.ExpandDims(graph.Sum(w, -1), -1))
		}
		w = graph.Mul(w, in[7])
		h := graph.Mul(graph.Silu(graph.Einsum("nd,edf->nef", in[0], in[2])), graph.Einsum("nd,edf->nef", in[0], in[3]))
		y := graph.Einsum("ned,ne->nd", graph.Einsum("nef,efd->ned", h, in[4]), w)
		return append([]*graph.Value{y}, graph.VJP([]*graph.Value{y}, []*graph.Value{in[5]}, in[:5])...)
	})
	res := expertResult{"output": out[0], "chosen": counts, "dropped": {dropped}, "x": out[1], "layers.router": out[2]}
	for i, n := range expertNames {
		res[n] = out[3+i]
	}
	return res
}

// With a capacity, an expert takes the first of each device's tokens that choose it.
func TestCapacity(t *testing.T) {
	const B, S = 4, 16
	for _, c := range []struct {
		factor float64
		axes   []mesh.Axis
		groups int // of tokens that are together before they are sent
		skew   []float32
	}{
		{factor: 1, groups: 1},
		{factor: 0.5, groups: 1, skew: []float32{3, 0, 0, 2}},
		{factor: 100, groups: 1}, // no drops
		{factor: 1, groups: 2, axes: []mesh.Axis{axis(parallel.AxisExpert, 2)}},
		{factor: 1.25, groups: 4, axes: []mesh.Axis{axis(parallel.AxisReplicate, 1), axis(parallel.AxisShard, 2), axis(parallel.AxisExpert, 2), axis(parallel.AxisTensor, 2)}, skew: []float32{2, 1, -1, 0}},
	} {
		t.Run(fmt.Sprint(c.factor, c.axes), func(t *testing.T) {
			moe := MoE{Experts: 4, TopK: 2, HiddenDim: 16, NormTopK: true, CapacityFactor: c.factor}
			p := newExpertProblem(moe, B, S, 8, c.skew)
			each := B * S / c.groups
			room := int(math.Ceil(c.factor * float64(each*moe.TopK) / float64(moe.Experts)))
			taken := make([]int, c.groups*moe.Experts)
			left := map[[2]int]bool{}
			for n, es := range p.choices() {
				for k, e := range es {
					at := n/each*moe.Experts + e
					if taken[at]++; taken[at] > room {
						left[[2]int{n, k}] = true
					}
				}
			}
			require.Equal(t, c.factor < 100, len(left) > 0, "the case must have drops")
			want := p.plain(t, func(token, choice int) bool { return !left[[2]int{token, choice}] })
			want.requireEqual(t, p.run(t, c.axes...), 1e-5)
		})
	}
}

// The router's bias changes which experts tokens choose, and not the weights of
// those they choose.
func TestRouterBias(t *testing.T) {
	moe := MoE{Experts: 4, TopK: 2, HiddenDim: 16, BiasRate: 1e-3}
	p := newExpertProblem(moe, 2, 16, 8, nil)
	before := p.choices()
	p.data[RouterBias] = pjrt.AsBytes([]float32{-1, 0.3, 0, 0.05})
	require.NotEqual(t, before, p.choices())
	want := p.plain(t, func(int, int) bool { return true })
	require.Zero(t, want["chosen"][0])
	want.requireEqual(t, p.run(t), 1e-5)
}

func TestBalanceRouter(t *testing.T) {
	bias, chosen := []float32{0.5, -0.5, 0, 0.25, 1, 2}, []float32{10, 2, 6, 5, 5, 5}
	got := program(t, []graph.Type{graph.T(dtype.F32, 2, 3), graph.T(dtype.F32, 2, 3)}, [][]byte{pjrt.AsBytes(bias), pjrt.AsBytes(chosen)}, func(_ *graph.Builder, in []*graph.Value) []*graph.Value {
		return []*graph.Value{BalanceRouter(in[0], in[1], 0.125)}
	})[0]
	require.Equal(t, []float32{0.375, -0.375, 0, 0.25, 1, 2}, got)
}
