package decoder

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"titan/dtype"
	"titan/graph"
	"titan/pjrt"
)

// The loss in parts equals the loss at once, with and without tied embeddings.
func TestTokenLoss(t *testing.T) {
	const B, S, D, V = 2, 12, 6, 17
	r := rand.New(rand.NewPCG(7, 8))
	labels, valid := make([]int32, B*S), make([]float32, B*S)
	for i := range labels {
		labels[i] = int32(r.IntN(V))
		if i%5 != 0 {
			valid[i] = 1
		}
	}
	for _, tied := range []bool{false, true} {
		w := graph.T(dtype.F32, D, V)
		if tied {
			w = graph.T(dtype.F32, V, D)
		}
		types := []graph.Type{graph.T(dtype.F32, B, S, D), w, graph.T(dtype.S32, B, S), graph.T(dtype.F32, B, S), graph.T(dtype.F32, B, S)}
		data := [][]byte{normals(r, B*S*D), normals(r, D*V), pjrt.AsBytes(labels), pjrt.AsBytes(valid), normals(r, B*S)}
		run := func(f func(in []*graph.Value) *graph.Value) [][]float32 {
			return program(t, types, data, func(_ *graph.Builder, in []*graph.Value) []*graph.Value {
				out := f(in)
				return append([]*graph.Value{out}, graph.VJP([]*graph.Value{out}, []*graph.Value{in[4]}, in[:2])...)
			})
		}
		want := run(func(in []*graph.Value) *graph.Value {
			spec := "bsd,dv->bsv"
			if tied {
				spec = "bsd,vd->bsv"
			}
			logits := graph.Einsum(spec, in[0], in[1])
			nll := graph.Neg(graph.Sum(graph.Mul(graph.LogSoftmax(logits, -1), graph.OneHot(in[2], V, dtype.F32)), -1))
			return graph.Mul(nll, in[3])
		})
		for _, chunks := range []int{0, 1, 3, 5, 12} {
			t.Run(fmt.Sprintf("tied=%v chunks=%d", tied, chunks), func(t *testing.T) {
				m := &Model{Config: Config{VocabSize: V, Dim: D, TieEmbeddings: tied}, Placement: Single{}, Options: Options{LossChunks: chunks}}
				got := run(func(in []*graph.Value) *graph.Value { return m.tokenLoss(in[0], in[2], in[3], in[1]) })
				for i, what := range []string{"loss", "dx", "dw"} {
					requireClose(t, want[i], got[i], 2e-6, what)
				}
			})
		}
	}
}
