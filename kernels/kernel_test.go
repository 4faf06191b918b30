package kernels_test

import (
	"encoding/base64"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/kernels"
)

// allOps uses every op on blocks [8, 128] of x and y [16, 256] and of n, s32.
func allOps() *kernels.Kernel {
	k := kernels.New("all_ops")
	t, ti := graph.T(dtype.F32, 16, 256), graph.T(dtype.S32, 16, 256)
	i, j := k.Grid(2, kernels.Parallel), k.Grid(2, kernels.Sequential)
	swap := k.Prefetch("swap", 2)
	block := []int{8, 128}
	x, y := k.In("x", t, block, swap.At(i), j), k.In("y", t, block, i, j)
	n := k.In("n", ti, block, i, kernels.Rem(j, k.Int(2)))
	out, whole := k.Out("out", t, block, i, j), k.Out("whole", ti, block, i, j)
	turned := k.Out("turned", graph.T(dtype.F32, 256, 16), []int{128, 16}, j, k.Int(0))
	halves := k.Scratch("halves", graph.T(dtype.F32, 16, 128))
	last := k.Scratch("last", graph.T(dtype.F32, 8, 128))

	a, b := x.Load(), y.Load()
	v := kernels.Div(kernels.Add(kernels.Exp(kernels.Min(a, b)), kernels.Tanh(a)), kernels.Add(k.F32(2), kernels.Logistic(b)))
	v = kernels.Sub(v, kernels.Log(kernels.Add(kernels.Mul(b, b), k.F32(1))))
	v = kernels.Mul(v, kernels.Rsqrt(kernels.Add(kernels.Max(a, k.F32(0)), k.F32(1))))
	v = kernels.Add(v, kernels.Sum(a, 0))
	v = kernels.Sub(v, kernels.ReduceMax(b, 1))
	v = kernels.Add(v, kernels.Convert(kernels.Convert(a, dtype.BF16), dtype.F32))
	square := kernels.Dot(a, 1, b, 1) // [8, 8]
	v = kernels.Add(v, kernels.Dot(square, 0, a, 0))
	cond := kernels.Or(kernels.And(kernels.Less(a, b), kernels.Not(kernels.GreaterEqual(b, k.F32(1)))), kernels.LessEqual(a, k.F32(-1)))
	v = kernels.Select(kernels.Or(cond, kernels.Greater(a, k.F32(2))), v, kernels.Transpose(kernels.Transpose(a)))
	k.If(kernels.Equal(j, k.Int(0)), func() { last.Store(k.Zeros(graph.T(dtype.F32, 8, 128))) })
	out.Store(kernels.Add(v, last.Load()))
	k.If(kernels.NotEqual(j, k.Int(1)), func() { last.Store(kernels.Convert(kernels.Add(k.Iota(8, 128, 1), i), dtype.F32)) })
	whole.Store(kernels.Rem(kernels.Div(kernels.Mul(n.Load(), k.Int(3)), kernels.Add(k.Iota(8, 128, 0), k.Int(1))), k.Int(5)))
	k.If(kernels.Equal(i, k.Int(1)), func() {}) // nothing to do
	halves.StoreRows(8, k.Full(graph.T(dtype.F32, 8, 128), 7))
	halves.StoreRows(0, kernels.Sub(halves.LoadRows(8, 8), k.F32(3)))
	turned.Store(kernels.Transpose(halves.Load()))
	return k
}

func allOpsProgram(t *testing.T, target kernels.Target) string {
	t.Helper()
	m, err := graph.Trace("all_ops", nil, func(b *graph.Builder) error {
		f := graph.T(dtype.F32, 16, 256)
		args := []*graph.Value{b.Input("swap", graph.T(dtype.S32, 2)), b.Input("x", f), b.Input("y", f), b.Input("n", graph.T(dtype.S32, 16, 256))}
		for _, o := range allOps().Call(target, args...) {
			b.Output("out", o)
		}
		return nil
	})
	require.NoError(t, err)
	return m.StableHLO()
}

// Every op, interpreted, computes what its name says, block by block.
func TestOpsInterpreted(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	x, y := floats(r, 16*256), floats(r, 16*256)
	n := make([]int32, 16*256)
	for i := range n {
		n[i] = int32(r.IntN(1000) - 500)
	}
	program := allOpsProgram(t, kernels.Target{})
	got := xlatest.Run(t, xlatest.CPU(t), program, 1, xlatest.Same(1, xlatest.S32([]int32{1, 0}), xlatest.F32(x, 16, 256), xlatest.F32(y, 16, 256), xlatest.S32(n, 16, 256)))[0]
	want := make([]float32, 16*256)
	whole := make([]int32, 16*256)
	for i := range 2 {
		for j := range 2 {
			A := func(r, c int) float64 { return float64(x[((1-i)*8+r)*256+j*128+c]) }
			B := func(r, c int) float64 { return float64(y[(i*8+r)*256+j*128+c]) }
			for r := range 8 {
				most := math.Inf(-1)
				for c := range 128 {
					most = max(most, B(r, c))
				}
				for c := range 128 {
					a, b := A(r, c), B(r, c)
					v := (math.Exp(min(a, b)) + math.Tanh(a)) / (2 + 1/(1+math.Exp(-b)))
					v = (v - math.Log(b*b+1)) / math.Sqrt(max(a, 0)+1)
					for s := range 8 {
						v += A(s, c)
						square := 0.0
						for z := range 128 {
							square += A(s, z) * B(r, z)
						}
						v += square * A(s, c)
					}
					v -= most
					v += float64(math.Float32frombits((math.Float32bits(float32(a)) + 0x7FFF + math.Float32bits(float32(a))>>16&1) &^ 0xFFFF))
					if !(a < b && !(b >= 1) || a <= -1 || a > 2) {
						v = a
					}
					if j == 1 {
						v += float64(c + i)
					}
					at := (i*8+r)*256 + j*128 + c
					want[at] = float32(v)
					whole[at] = n[at] * 3 / int32(r+1) % 5
				}
			}
		}
	}
	requireClose(t, want, got[0].Float32s(), 1e-4, "out")
	require.Equal(t, whole, got[1].Int32s())
	for i, v := range got[2].Float32s() {
		require.EqualValues(t, 4+3*(i%16/8), v)
	}
}

// The same definition, printed, is a kernel that the compiler takes, every op of
// it; the text is kept so that a change shows.
func TestOpsPrinted(t *testing.T) {
	target, err := kernels.For("v5e")
	require.NoError(t, err)
	program := allOpsProgram(t, target)
	body := regexp.MustCompile(`body\\22:\\22([^\\]*)\\22`).FindStringSubmatch(program)
	require.NotNil(t, body, program)
	text, err := base64.StdEncoding.DecodeString(body[1])
	require.NoError(t, err)
	const golden = "testdata/all_ops.mlir"
	if os.Getenv("TITAN_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, text, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text))
	compileProgram(t, program, "v5e:2x2", 1)
}

// What a TPU leaves undefined is poisoned by the strict interpreter.
func TestStrictInterpreterPoisons(t *testing.T) {
	run := func(k *kernels.Kernel, target kernels.Target) []float32 {
		m, err := graph.Trace("poison", nil, func(b *graph.Builder) error {
			b.Output("out", k.Call(target, b.Input("x", graph.T(dtype.F32, 4, 2)))[0])
			return nil
		})
		require.NoError(t, err)
		return xlatest.Run(t, xlatest.CPU(t), m.StableHLO(), 1, xlatest.Same(1, xlatest.F32([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2)))[0][0].Float32s()
	}
	poisoned := func(x []float32) (n int) {
		for _, v := range x {
			if math.IsNaN(float64(v)) {
				n++
			}
		}
		return n
	}
	tt := graph.T(dtype.F32, 4, 2)

	k := kernels.New("uses_scratch_before_it_is_set")
	i := k.Grid(2, kernels.Sequential)
	x, out := k.In("x", tt, []int{2, 2}, i, k.Int(0)), k.Out("out", tt, []int{2, 2}, i, k.Int(0))
	s := k.Scratch("s", graph.T(dtype.F32, 2, 2))
	out.Store(kernels.Add(x.Load(), s.Load()))
	s.Store(x.Load())
	require.Equal(t, []float32{1, 2, 3, 4, 6, 8, 10, 12}, run(k, kernels.Target{}))
	require.Equal(t, 4, poisoned(run(k, strict)), "of the first step")

	returns := func(order func(k *kernels.Kernel, i, j *kernels.Value) *kernels.Value) *kernels.Kernel {
		k := kernels.New("adds_twice_to_a_block")
		i, j := k.Grid(2, kernels.Sequential), k.Grid(2, kernels.Sequential)
		at := order(k, i, j)
		first := kernels.Equal(kernels.Add(kernels.Add(i, j), kernels.Mul(at, k.Int(-1))), k.Int(0))
		x, out := k.In("x", tt, []int{2, 2}, at, k.Int(0)), k.Out("out", tt, []int{2, 2}, at, k.Int(0))
		old := kernels.Select(first, k.Zeros(graph.T(dtype.F32, 2, 2)), out.Load())
		out.Store(kernels.Add(old, x.Load()))
		return k
	}
	right := returns(func(_ *kernels.Kernel, i, _ *kernels.Value) *kernels.Value { return i })
	require.Equal(t, []float32{2, 4, 6, 8, 10, 12, 14, 16}, run(right, strict))
	wrong := returns(func(_ *kernels.Kernel, _, j *kernels.Value) *kernels.Value { return j })
	require.Equal(t, 8, poisoned(run(wrong, strict)), "comes back to blocks that have been left")
}
