package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// rmsNorm divides x by the root of the mean of its squares along the last
// dimension and multiplies by w (Zhang and Sennrich, 2019), in f32.
func rmsNorm(x, w *graph.Value, eps float64) *graph.Value {
	f := graph.Convert(x, dtype.F32)
	r := graph.Rsqrt(graph.AddScalar(graph.Mean(graph.Square(f), -1), eps))
	return graph.Convert(graph.Mul(graph.Mul(f, graph.ExpandDims(r, -1)), w), x.DType())
}
