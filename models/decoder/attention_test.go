package decoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/pjrt"
)

// program runs a traced function of f32 and s32 arrays on one device.
func program(t *testing.T, inputs []graph.Type, data [][]byte, f func(b *graph.Builder, in []*graph.Value) []*graph.Value) [][]float32 {
	t.Helper()
	mod, err := graph.Trace("test", nil, func(b *graph.Builder) error {
		var in []*graph.Value
		for i, typ := range inputs {
			in = append(in, b.Input(fmt.Sprintf("in%d", i), typ))
		}
		for i, v := range f(b, in) {
			b.Output(fmt.Sprintf("out%d", i), graph.Convert(v, dtype.F32))
		}
		return nil
	})
	require.NoError(t, err)
	var args []xlatest.Array
	for i, typ := range inputs {
		args = append(args, xlatest.Array{DType: typ.DType, Dims: typ.Shape, Data: data[i]})
	}
	outs := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), 1, [][]xlatest.Array{args})
	var res [][]float32
	for _, o := range outs[0] {
		x := make([]float32, len(o.Data)/4)
		copy(pjrt.AsBytes(x), o.Data)
		res = append(res, x)
	}
	return res
}

func normals(r *rand.Rand, n int) []byte {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return pjrt.AsBytes(x)
}

// plainAttention is the definition, with all scores at once, differentiated by
// the rules of its parts.
func plainAttention(q, k, v, segments *graph.Value) *graph.Value {
	b := q.Builder()
	B, S, H, h, K := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3), k.Dim(2)
	qg := graph.Reshape(q, B, S, K, H/K, h)
	s := graph.MulScalar(graph.Einsum("bqkrh,bskh->bkrqs", qg, k), 1/math.Sqrt(float64(h)))
	t := graph.T(dtype.S32, S, S)
	mask := graph.GreaterEqual(b.Iota(t, 0), b.Iota(t, 1))
	s = graph.Select(mask, s, b.Scalar(dtype.F32, -1e30))
	if segments != nil {
		same := graph.Equal(graph.BroadcastInDim(segments, s.Shape(), []int{0, 3}), graph.BroadcastInDim(segments, s.Shape(), []int{0, 4}))
		s = graph.Select(same, s, b.Scalar(dtype.F32, -1e30))
	}
	return graph.Reshape(graph.Einsum("bkrqs,bskh->bqkrh", graph.Softmax(s, -1), v), B, S, H, h)
}

func requireClose(t *testing.T, want, got []float32, tolerance float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	most := 0.0
	for _, x := range want {
		most = max(most, math.Abs(float64(x)))
	}
	for i := range want {
		require.InDelta(t, want[i], got[i], tolerance*most, "%s[%d], largest %g", what, i, most)
	}
}

func TestAttention(t *testing.T) {
	const B, S, H, K, h = 2, 64, 6, 3, 8
	r := rand.New(rand.NewPCG(1, 2))
	types := []graph.Type{
		graph.T(dtype.F32, B, S, H, h), graph.T(dtype.F32, B, S, K, h), graph.T(dtype.F32, B, S, K, h), graph.T(dtype.F32, B, S, H, h), graph.T(dtype.S32, B, S),
	}
	segments := make([]int32, B*S)
	for i := range segments {
		segments[i] = int32(i / 13) // borders inside blocks and across rows
	}
	data := [][]byte{normals(r, B*S*H*h), normals(r, B*S*K*h), normals(r, B*S*K*h), normals(r, B*S*H*h), pjrt.AsBytes(segments)}
	run := func(isolated bool, f func(q, k, v, s *graph.Value) *graph.Value) [][]float32 {
		return program(t, types, data, func(b *graph.Builder, in []*graph.Value) []*graph.Value {
			var s *graph.Value
			if isolated {
				s = in[4]
			}
			out := f(in[0], in[1], in[2], s)
			// The last input is the cotangent.
			return append([]*graph.Value{out}, graph.VJP([]*graph.Value{out}, []*graph.Value{in[3]}, in[:3])...)
		})
	}
	for _, isolated := range []bool{false, true} {
		want := run(isolated, plainAttention)
		for _, c := range []struct {
			name string
			o    AttentionOptions
		}{
			{"one block", AttentionOptions{}},
			{"blocks", AttentionOptions{Block: 16}},
			{"uneven blocks", AttentionOptions{Block: 24}},
			{"rows in groups", AttentionOptions{Block: 16, Rows: 4}},
			{"loops", AttentionOptions{Block: 2}},
			{"loops and groups", AttentionOptions{Block: 2, Rows: 2}},
		} {
			t.Run(fmt.Sprintf("%s isolated=%v", c.name, isolated), func(t *testing.T) {
				got := run(isolated, func(q, k, v, s *graph.Value) *graph.Value { return attention(q, k, v, s, c.o, nil) })
				for i, what := range []string{"output", "dq", "dk", "dv"} {
					requireClose(t, want[i], got[i], 2e-6, what)
				}
			})
		}
	}
}

// Many blocks are looped over and few written out; odd lengths are always
// written out.
func TestAttentionBlocks(t *testing.T) {
	require.Equal(t, staticBlocks{128}, AttentionOptions{}.block(512))
	require.Equal(t, staticBlocks{128}, AttentionOptions{}.block(2048))
	require.Equal(t, staticBlocks{256}, AttentionOptions{}.block(4096))
	require.Equal(t, loopedBlocks{128}, AttentionOptions{}.block(8192))
	require.Equal(t, staticBlocks{626}, AttentionOptions{}.block(10001))
	require.Equal(t, staticBlocks{7}, AttentionOptions{}.block(7))
}

func TestPlanLayers(t *testing.T) {
	kinds := func(s string) (out []bool) {
		for _, c := range s {
			out = append(out, c == 's')
		}
		return out
	}
	for _, c := range []struct {
		kinds    string
		multiple int
		want     plan
	}{
		{"ssssss", 1, plan{0, 1, 6}},
		{"s", 1, plan{1, 0, 0}},
		{"dsss", 1, plan{1, 1, 3}},
		{"dsdsds", 1, plan{0, 2, 3}},
		{"ddssss", 1, plan{2, 1, 4}},
		{"dsdsdss", 1, plan{0, 2, 3}},
		{"ssssss", 2, plan{0, 2, 3}},
		{"sssssss", 3, plan{0, 3, 2}},
	} {
		require.Equal(t, c.want, planLayers(kinds(c.kinds), c.multiple), "%s by %d", c.kinds, c.multiple)
	}
}
