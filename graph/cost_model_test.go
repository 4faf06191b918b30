package graph_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// stack is a decoder stack for counting: per layer an attention and a gated
// feed-forward block, residual stream x[b,s,d].
type stack struct {
	layers, batch, seq, dim, heads, headDim, ffn int
	unroll, forward                              bool
	remat                                        bool
	weight                                       func(w *Value, kind string) *Value // what a layer does to a weight before use
	act                                          func(x *Value) *Value              // and to the residual stream
	inner                                        func(x *Value) *Value              // to what is split over heads or hidden units
	spec                                         func(kind string) PortOption
}

// decoder has sizes that all differ, so that no formula is right by chance.
var decoder = stack{layers: 3, batch: 16, seq: 6, dim: 40, heads: 8, headDim: 10, ffn: 48}

// weights lists kind and shape of a layer's weights.
func (c stack) weights() []struct {
	kind  string
	shape []int
} {
	return []struct {
		kind  string
		shape []int
	}{
		{"q", []int{c.dim, c.heads, c.headDim}}, {"k", []int{c.dim, c.heads, c.headDim}}, {"v", []int{c.dim, c.heads, c.headDim}},
		{"o", []int{c.heads, c.headDim, c.dim}},
		{"gate", []int{c.dim, c.ffn}}, {"up", []int{c.dim, c.ffn}}, {"down", []int{c.ffn, c.dim}},
	}
}

// params is the number of parameters of one layer.
func (c stack) params() float64 {
	return float64(4*c.dim*c.heads*c.headDim + 3*c.dim*c.ffn)
}

func (c stack) tokens() float64 { return float64(c.batch * c.seq) }

// attention is the arithmetic of scores and weighted sums of one layer, forward.
func (c stack) attention() float64 {
	return 2 * 2 * float64(c.batch*c.heads*c.seq*c.seq*c.headDim)
}

// plainNorm keeps the products of a layer from adding their cotangents to the
// residual stream's one by one.
func plainNorm(x *Value) *Value {
	return Mul(x, ExpandDims(Rsqrt(AddScalar(Mean(Square(x), -1), 1e-5)), -1))
}

func (c stack) layer(x *Value, w []*Value) *Value {
	if c.weight != nil {
		for i, k := range c.weights() {
			w[i] = c.weight(w[i], k.kind)
		}
	}
	n := plainNorm(x)
	inner := func(x *Value) *Value {
		if c.inner != nil {
			return c.inner(x)
		}
		return x
	}
	q, k, v := inner(Einsum("bsd,dhk->bshk", n, w[0])), inner(Einsum("bsd,dhk->bshk", n, w[1])), inner(Einsum("bsd,dhk->bshk", n, w[2]))
	p := Softmax(Einsum("bqhk,bshk->bhqs", q, k), -1)
	o := inner(Einsum("bhqs,bshk->bqhk", p, v))
	x = Add(x, Einsum("bshk,hkd->bsd", o, w[3]))
	if c.act != nil {
		x = c.act(x)
	}
	n = plainNorm(x)
	h := Mul(Silu(inner(Einsum("bsd,df->bsf", n, w[4]))), inner(Einsum("bsd,df->bsf", n, w[5])))
	x = Add(x, Einsum("bsf,fd->bsd", h, w[6]))
	if c.act != nil {
		x = c.act(x)
	}
	return x
}

func (c stack) trace(t *testing.T, m *mesh.Mesh) *Module {
	t.Helper()
	if c.spec == nil {
		c.spec = func(string) PortOption { return nil }
	}
	return costed(t, m, func(b *Builder) {
		x := b.Input("x", T(F32, c.batch, c.seq, c.dim), c.spec("x"))
		var ws, flat []*Value // stacked for the loop, one by one unrolled
		for _, w := range c.weights() {
			if !c.unroll {
				ws = append(ws, b.Input(w.kind, T(F32, append([]int{c.layers}, w.shape...)...), c.spec(w.kind)))
				continue
			}
			for i := range c.layers {
				flat = append(flat, b.Input(fmt.Sprint(w.kind, i), T(F32, w.shape...), c.spec(w.kind)))
			}
		}
		layer := func(x *Value, w []*Value) *Value {
			if c.remat {
				return b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{c.layer(x, w)} })[0]
			}
			return c.layer(x, w)
		}
		y := x
		if c.unroll {
			for i := range c.layers {
				var w []*Value
				for k := range c.weights() {
					w = append(w, flat[k*c.layers+i])
				}
				y = layer(y, w)
			}
			ws = flat
		} else {
			out, _ := b.Scan([]*Value{x}, ws, func(cs, r []*Value) (next, ys []*Value) { return []*Value{layer(cs[0], r)}, nil })
			y = out[0]
		}
		if c.forward {
			b.Output("y", y)
			return
		}
		loss := Sum(Square(y))
		b.Output("loss", loss)
		wrt := append([]*Value{x}, ws...)
		for i, g := range Grad(loss, wrt...) {
			b.Output(fmt.Sprint("g", i), g, c.spec(kindOf(c, i)))
		}
	})
}

// kindOf is the kind of the i-th value that is differentiated for.
func kindOf(c stack, i int) string {
	if i == 0 {
		return "x"
	}
	if c.unroll {
		return c.weights()[(i-1)/c.layers].kind
	}
	return c.weights()[i-1].kind
}

// TestCostOfDecoder: 2·P·T + attention forward, three times that with the
// gradient (Kaplan et al. 2020, "Scaling Laws for Neural Language Models").
func TestCostOfDecoder(t *testing.T) {
	for _, unroll := range []bool{false, true} {
		c := decoder
		c.unroll = unroll
		forward := float64(c.layers) * (2*c.params()*c.tokens() + c.attention())
		require.Equal(t, 3*forward, c.trace(t, nil).Cost().Global[CostContraction].Flops)
		c.forward = true
		require.Equal(t, forward, c.trace(t, nil).Cost().Global[CostContraction].Flops)
	}
}

// TestCostScannedIsUnrolled: a loop costs its iterations and nothing else.
func TestCostScannedIsUnrolled(t *testing.T) {
	c := decoder
	c.forward = true
	loop := c.trace(t, nil).Cost()
	c.unroll = true
	unrolled := c.trace(t, nil).Cost()
	require.Equal(t, unrolled.Global, loop.Global)
	c.forward, c.unroll = false, false
	loop = c.trace(t, nil).Cost()
	c.unroll = true
	unrolled = c.trace(t, nil).Cost()
	require.Equal(t, unrolled.Global[CostContraction], loop.Global[CostContraction])
}

// TestCostOfCheckpoint: full checkpointing computes the forward pass once more,
// but for the layer's last contraction, whose result no derivative needs.
func TestCostOfCheckpoint(t *testing.T) {
	for _, unroll := range []bool{false, true} {
		c := decoder
		c.unroll = unroll
		plain := c.trace(t, nil).Cost().Global[CostContraction].Flops
		c.remat = true
		remat := c.trace(t, nil).Cost().Global[CostContraction].Flops
		last := 2 * c.tokens() * float64(c.ffn*c.dim)
		forward := 2*c.params()*c.tokens() + c.attention()
		require.Equal(t, float64(c.layers)*(forward-last), remat-plain)
	}
	// Where every result is needed, it is the whole forward pass.
	full := func(remat bool) Cost {
		return costed(t, nil, func(b *Builder) {
			x, w := b.Input("x", T(F32, 6, 6)), b.Input("w", T(F32, 6, 6))
			f := func() []*Value { return []*Value{Sin(MatMul(Sin(MatMul(x, w)), w))} }
			y := Sum(f()[0])
			if remat {
				y = Sum(b.Checkpoint(SaveNothing(), f)[0])
			}
			b.Output("y", y)
			b.Output("g", Grad(y, w)[0])
		}).Cost()
	}
	require.Equal(t, 2*2*6*6*6., full(true).Global[CostContraction].Flops-full(false).Global[CostContraction].Flops)
}

// TestCostOfDataParallelism: each of n devices takes its part of the batch and
// sums all gradients: one all-reduce of the parameters.
func TestCostOfDataParallelism(t *testing.T) {
	c := decoder
	c.spec = func(kind string) PortOption {
		if kind == "x" {
			return Sharded(sharding.P("dp"))
		}
		return Sharded(sharding.P())
	}
	for _, unroll := range []bool{false, true} {
		c.unroll = unroll
		whole := decoder
		whole.unroll = unroll
		alone := whole.trace(t, nil).Cost()
		got := c.trace(t, costMesh(t, "dp", 8)).Cost()
		require.Equal(t, 8, got.Devices)
		require.Equal(t, alone.Global[CostContraction], got.Global[CostContraction])
		require.Equal(t, alone.Global[CostContraction].Flops/8, got.Device[CostContraction].Flops)
		require.Equal(t, 4*(float64(c.layers)*c.params()+1), costSent(got, "all_reduce", "dp"), "gradients and the loss")
		require.Len(t, got.Collectives, 1)
		require.True(t, got.Collectives[0].Implied)
		x := 4 * c.tokens() * float64(c.dim)
		require.Equal(t, 4*float64(c.layers)*c.params()+x/8, got.Inputs.Device)
	}
}

// TestCostOfFSDP: parameters and gradients are sharded; each layer gathers its
// weights in bf16 and scatters its gradients in f32 (Zhao et al. 2023, "PyTorch
// FSDP"): P gathered forward, again backward if not kept, P scattered.
func TestCostOfFSDP(t *testing.T) {
	for _, remat := range []bool{false, true} {
		for _, unroll := range []bool{false, true} {
			c := decoder
			c.unroll, c.remat = unroll, remat
			split := func(lead bool) sharding.Spec {
				if lead {
					return sharding.P(nil, "dp")
				}
				return sharding.P("dp")
			}
			c.spec = func(kind string) PortOption {
				if kind == "x" {
					return Sharded(sharding.P("dp"))
				}
				return Sharded(split(!unroll))
			}
			c.weight = func(w *Value, kind string) *Value {
				return Constrain(Convert(w, BF16), sharding.P(), Cotangent(split(false)), GradIn(F32))
			}
			c.act = func(x *Value) *Value { return Constrain(Convert(x, F32), sharding.P("dp")) }
			got := c.trace(t, costMesh(t, "dp", 8)).Cost()
			p := float64(c.layers) * c.params()
			gathers := 1.
			if remat {
				gathers = 2
			}
			require.Equal(t, 2*gathers*p, costSent(got, "all_gather", "dp"))
			require.Equal(t, 4*p, costSent(got, "reduce_scatter", "dp"))
			require.Equal(t, 4., costSent(got, "all_reduce", "dp"), "the loss")
			require.Equal(t, got.Global[CostContraction].Flops/8, got.Device[CostContraction].Flops)
			require.Equal(t, (4*p+4*c.tokens()*float64(c.dim))/8, got.Inputs.Device)
		}
	}
}

// TestCostOfTensorParallelism: heads and hidden units are split; two all-reduces
// of the activations a layer forward and two backward (Shoeybi et al. 2019,
// "Megatron-LM", figure 4), also where three or two products share the input.
func TestCostOfTensorParallelism(t *testing.T) {
	for _, unroll := range []bool{false, true} {
		for _, forward := range []bool{true, false} {
			c := decoder
			c.unroll, c.forward = unroll, forward
			c.spec = func(kind string) PortOption {
				var dims []any
				switch kind {
				case "x":
					return Sharded(sharding.P())
				case "o", "down":
					dims = []any{"tp"}
				default:
					dims = []any{nil, "tp"}
				}
				if !unroll {
					dims = append([]any{nil}, dims...)
				}
				return Sharded(sharding.P(dims...))
			}
			c.act = func(x *Value) *Value { return Constrain(x, sharding.P()) }
			got := c.trace(t, costMesh(t, "tp", 4)).Cost()
			require.Equal(t, got.Global[CostContraction].Flops/4, got.Device[CostContraction].Flops)
			times := 2.
			if !forward {
				times = 4
			}
			activation := 4 * c.tokens() * float64(c.dim)
			require.Equal(t, times*float64(c.layers)*activation, costSent(got, "all_reduce", "tp"))
			require.Len(t, got.Collectives, 1)
		}
	}
}

// TestCostOfSequenceParallelism: as above, but the residual stream is split over
// the sequence: reduce-scatters instead of all-reduces, and gathers before the
// products, forward and backward (Korthikanti et al. 2022, "Reducing Activation
// Recomputation in Large Transformer Models", figure 5). The backward loop
// gathers the products' input once more; unrolled it is still there.
func TestCostOfSequenceParallelism(t *testing.T) {
	for _, unroll := range []bool{false, true} {
		c := decoder
		c.unroll, c.seq = unroll, 8
		c.spec = func(kind string) PortOption {
			var dims []any
			switch kind {
			case "x":
				return Sharded(sharding.P(nil, "tp"))
			case "o", "down":
				dims = []any{"tp"}
			default:
				dims = []any{nil, "tp"}
			}
			if !unroll {
				dims = append([]any{nil}, dims...)
			}
			return Sharded(sharding.P(dims...))
		}
		c.act = func(x *Value) *Value { return Constrain(x, sharding.P(nil, "tp")) }
		// Without this the products would go on splitting the sequence, and gather
		// the weights.
		c.inner = func(x *Value) *Value { return Constrain(x, sharding.P(nil, nil, "tp")) }
		got := c.trace(t, costMesh(t, "tp", 4)).Cost()
		require.Equal(t, got.Global[CostContraction].Flops/4, got.Device[CostContraction].Flops)
		layer := float64(c.layers) * 4 * c.tokens() * float64(c.dim)
		require.Equal(t, 4*layer, costSent(got, "reduce_scatter", "tp"))
		gathers := 6.
		if unroll {
			gathers = 4
		}
		require.Equal(t, gathers*layer, costSent(got, "all_gather", "tp"))
		require.Equal(t, 4., costSent(got, "all_reduce", "tp"), "the loss")
		require.Len(t, got.Collectives, 3)
	}
}

// TestCostOfTwoDimensions: fully sharded over dp and split over tp at once.
func TestCostOfTwoDimensions(t *testing.T) {
	c := decoder
	full := func(kind string, gathered, lead bool) sharding.Spec {
		dims := []any{"dp", "tp"}
		if kind == "o" || kind == "down" {
			dims = []any{"tp", "dp"}
			if kind == "o" { // heads over tp, the model dimension over dp
				dims = []any{"tp", nil, "dp"}
			}
		}
		for i, d := range dims {
			if gathered && d == "dp" {
				dims[i] = nil
			}
		}
		if lead {
			dims = append([]any{nil}, dims...)
		}
		return sharding.P(dims...)
	}
	c.spec = func(kind string) PortOption {
		if kind == "x" {
			return Sharded(sharding.P("dp"))
		}
		return Sharded(full(kind, false, true))
	}
	c.weight = func(w *Value, kind string) *Value {
		return Constrain(Convert(w, BF16), full(kind, true, false), Cotangent(full(kind, false, false)), GradIn(F32))
	}
	c.act = func(x *Value) *Value { return Constrain(Convert(x, F32), sharding.P("dp")) }
	got := c.trace(t, costMesh(t, "dp", 8, "tp", 4)).Cost()
	p := float64(c.layers) * c.params()
	require.Equal(t, got.Global[CostContraction].Flops/32, got.Device[CostContraction].Flops)
	require.Equal(t, 2*p/4, costSent(got, "all_gather", "dp"), "each device gathers its columns")
	require.Equal(t, 4*p/4, costSent(got, "reduce_scatter", "dp"))
	require.Equal(t, 4*float64(c.layers)*4*c.tokens()*float64(c.dim)/8, costSent(got, "all_reduce", "tp"))
	require.Equal(t, 4., costSent(got, "all_reduce", "dp"), "the loss")
	require.Len(t, got.Collectives, 4)
}
