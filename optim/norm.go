package optim

import "titan/graph"

// globalNorm is the Euclidean norm of all elements of the f32 gradients.
func globalNorm(b *graph.Builder, grads []*graph.Value) *graph.Value {
	sum := b.Scalar(graph.F32, 0)
	for _, g := range grads {
		sum = graph.Add(sum, graph.Sum(graph.Square(g)))
	}
	return graph.Sqrt(sum)
}
