package decoder

import (
	"math"

	"titan/dtype"
	"titan/graph"
)

// frequencies returns the rotary embedding's angle per position for each pair of
// a head's dimensions: theta^(-2i/h) (Su et al., 2021), stretched as Llama 3.1
// does where the config says so. Values are rounded to f32 where the reference
// implementations round.
func (c *Config) frequencies() []float32 {
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		power := float32(math.Pow(c.RopeTheta, float64(2*i)/float64(c.HeadDim)))
		f := float64(1 / power)
		if s := c.RopeScaling; s != nil {
			f = s.scale(f)
		}
		out[i] = float32(f)
	}
	return out
}

// scale leaves high frequencies alone, divides low ones by Factor, and
// interpolates between.
func (s *RopeScaling) scale(f float64) float64 {
	wavelength := 2 * math.Pi / f
	old := float64(s.OriginalMaxSeqLen)
	switch {
	case wavelength < old/s.HighFreqFactor:
		return f
	case wavelength > old/s.LowFreqFactor:
		return f / s.Factor
	}
	smooth := (old/wavelength - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return (1-smooth)*f/s.Factor + smooth*f
}

// rope holds the tables of the rotary embedding, f32 [B or 1, S, 1, h]: cosines,
// and sines with the sign that the rotation gives the first half.
type rope struct {
	cos, sin *graph.Value
	// swap is the matrix bf16 [h, h] that exchanges the halves of rows; nil: they are
	// not exchanged by a product.
	swap *graph.Value
}

// newRope makes the tables for s32 positions [B, S] or [S]; by product as
// Options.RopeProduct.
func (c *Config) newRope(b *graph.Builder, positions *graph.Value, product bool) rope {
	f := c.frequencies()
	signed := make([]float32, 0, c.HeadDim)
	for range f {
		signed = append(signed, -1)
	}
	for range f {
		signed = append(signed, 1)
	}
	inv := b.ConstF32([]int{c.HeadDim}, append(append([]float32(nil), f...), f...))
	if positions.Rank() == 1 {
		positions = graph.ExpandDims(positions, 0)
	}
	angle := graph.Mul(graph.ExpandDims(graph.Convert(positions, dtype.F32), -1), inv)
	angle = graph.ExpandDims(angle, 2)
	sign := b.ConstF32([]int{c.HeadDim}, signed)
	// Behind a barrier: compilers would compute the sines again for every head of
	// every layer.
	tables := graph.Barrier(graph.Cos(angle), graph.Mul(graph.Sin(angle), sign))
	r := rope{cos: tables[0], sin: tables[1]}
	if product {
		r.swap = graph.Barrier(swapMatrix(b, c.HeadDim))[0]
	}
	return r
}

// apply turns the pairs (x[i], x[i+h/2]) of x [B, S, H, h] by their angles.
func (r rope) apply(x *graph.Value) *graph.Value {
	if r.swap == nil || x.DType() != dtype.BF16 { // a product of f32 may be rounded
		r.swap = nil
		return r.turned(x)
	}
	// What is turned back is turned by the angle's opposite.
	return graph.CustomVJP([]*graph.Value{x, r.cos, r.sin, r.swap},
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			return []*graph.Value{rope{args[1], args[2], args[3]}.turned(args[0])}, args[1:]
		},
		func(res, cts []*graph.Value) []*graph.Value {
			back := rope{res[0], graph.Neg(res[1]), res[2]}
			return []*graph.Value{back.turned(cts[0]), nil, nil, nil}
		})[0]
}

func (r rope) turned(x *graph.Value) *graph.Value {
	var exchanged *graph.Value
	if r.swap != nil {
		exchanged = exchangeByProduct(x, r.swap)
	} else {
		exchanged = exchangeHalves(x)
	}
	straight := graph.Mul(graph.Convert(x, dtype.F32), r.cos)
	return graph.Convert(graph.Add(straight, graph.Mul(exchanged, r.sin)), x.DType())
}

// exchangeHalves exchanges the halves of x [B, S, H, h], in f32, by a reversal,
// which compilers for CPUs fuse where they would not fuse slices put together.
func exchangeHalves(x *graph.Value) *graph.Value {
	shape := x.Shape()
	n := len(shape)
	halves := append(append([]int(nil), shape[:n-1]...), 2, shape[n-1]/2)
	return graph.Reshape(graph.Reverse(graph.Reshape(graph.Convert(x, dtype.F32), halves...), n-1), shape...)
}

// exchangeByProduct is exchangeHalves of bf16 by a product with a matrix of zeros
// and ones, which is exact. XLA's compiler for TPU makes of all of apply one
// operation then, and of a reversal, or of slices put together, several with copies
// between them: for Llama 8B on v6e that was a tenth of a step (libtpu 0.0.52).
func exchangeByProduct(x, swap *graph.Value) *graph.Value {
	return graph.Einsum("bshk,kj->bshj", x, swap, graph.As(dtype.F32))
}

// swapMatrix is the matrix of exchangeByProduct, bf16 [h, h]. It is computed: written
// out, once for every use, it would be most of the program's text.
func swapMatrix(b *graph.Builder, h int) *graph.Value {
	t := graph.T(dtype.S32, h, h)
	apart := graph.Abs(graph.Sub(b.Iota(t, 0), b.Iota(t, 1)))
	return graph.Convert(graph.Equal(apart, b.Int(dtype.S32, int64(h/2))), dtype.BF16)
}
