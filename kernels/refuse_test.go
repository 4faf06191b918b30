package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/kernels"
	"titan/mesh"
)

// double is a kernel on blocks of an f32 array [rows, columns].
func double(rows, columns int, block ...int) *kernels.Kernel {
	k := kernels.New("double")
	t := graph.T(dtype.F32, rows, columns)
	i, j := k.Grid(rows/block[0], kernels.Parallel), k.Grid(columns/block[1], kernels.Parallel)
	x, out := k.In("x", t, block, i, j), k.Out("out", t, block, i, j)
	out.Store(kernels.Add(x.Load(), x.Load()))
	return k
}

func callError(m *mesh.Mesh, target kernels.Target, k *kernels.Kernel, inputs ...graph.Type) error {
	_, err := graph.Trace("refused", m, func(b *graph.Builder) error {
		var args []*graph.Value
		for _, t := range inputs {
			args = append(args, b.Input("x", t))
		}
		b.Output("out", k.Call(target, args...)[0])
		return nil
	})
	return err
}

func on(t *testing.T, kind string) kernels.Target {
	t.Helper()
	target, err := kernels.For(kind)
	require.NoError(t, err)
	return target
}

// What a chip cannot run is refused by us, with the numbers.
func TestRefusedOnTPU(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: "fsdp", Size: 4}}, nil)
	require.NoError(t, err)
	x := func(rows, columns int) graph.Type { return graph.T(dtype.F32, rows, columns) }
	v5p := on(t, "v5p")

	outside := `"double" works on one device's part of the data, but axis "fsdp" is not manual here; put it inside a ShardMap`
	require.ErrorContains(t, callError(m, v5p, double(16, 256, 8, 128), x(16, 256)), outside)
	require.ErrorContains(t, callError(m, kernels.Target{}, double(16, 256, 8, 128), x(16, 256)), outside, "interpreted as well")
	require.NoError(t, callError(nil, v5p, double(16, 256, 8, 128), x(16, 256)))

	require.ErrorContains(t, callError(nil, v5p, double(16, 256, 8, 64), x(16, 256)),
		`kernel "double": input "x" f32[16,256]: a block of 8×64 has 64 in dimension 1, which must be a multiple of 128 (the tile of f32 is 8×128) or all 256`)
	require.ErrorContains(t, callError(nil, v5p, double(16, 256, 4, 128), x(16, 256)), "a block of 4×128 has 4 in dimension 0, which must be a multiple of 8 (the tile of f32 is 8×128) or all 16")
	require.NoError(t, callError(nil, v5p, double(6, 100, 6, 100), x(6, 100)), "whole dimensions are padded")
	require.NoError(t, callError(nil, kernels.Target{}, double(16, 256, 4, 64), x(16, 256)), "interpreted, there are no tiles")

	// 2·2·4096·1024·4 bytes of blocks.
	err = callError(nil, v5p, double(8192, 1024, 4096, 1024), x(8192, 1024))
	require.ErrorContains(t, err, `kernel "double" needs 64.0 MiB of vector memory, v5p gives a kernel 57.6 MiB of its 64.0 MiB: "x" 2×16.0 MiB, "out" 2×16.0 MiB; take smaller tiles`)
	require.NoError(t, callError(nil, on(t, "v6e"), double(8192, 1024, 4096, 1024), x(8192, 1024)), "has twice as much")

	k := kernels.New("rows")
	in, to := k.In("x", x(16, 128), []int{16, 128}, k.Int(0), k.Int(0)), k.Out("out", x(8, 128), []int{8, 128}, k.Int(0), k.Int(0))
	to.Store(in.LoadRows(4, 8))
	require.ErrorContains(t, callError(nil, v5p, k, x(16, 128)), `kernel "rows": rows of "x" from row 4 on, which must be a multiple of 8 (the tile of f32 is 8×128)`)

	k = kernels.New("scalars")
	i := k.Grid(2, kernels.Sequential)
	n := k.Prefetch("n", 1<<18)
	k.Out("out", x(16, 128), []int{8, 128}, n.At(i), k.Int(0)).Store(k.Zeros(x(8, 128)))
	require.ErrorContains(t, callError(nil, v5p, k, graph.T(dtype.S32, 1<<18)), `kernel "scalars" prefetches 1048576 bytes into scalar memory, of which v5p has 1048576, half for kernels' operands`)

	_, err = kernels.For("v99")
	require.ErrorContains(t, err, `unknown TPU kind "v99"`)
}

// Mistakes in a definition come back from Trace with the line that made them.
func TestMistakesInDefinitions(t *testing.T) {
	tt := graph.T(dtype.F32, 16, 128)
	for _, c := range []struct {
		wrong func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref)
		want  string
	}{
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			kernels.Add(x.Load(), k.Zeros(graph.T(dtype.F32, 4, 128)))
		}, "broadcast: f32[4,128] does not spread to [8 128]"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { kernels.Add(x.Load(), i) }, "add: of f32[8,128] and s32[]"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			kernels.Exp(kernels.Convert(x.Load(), dtype.BF16))
		}, "exp: of bf16[8,128]; arithmetic is in f32, Convert the operand"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			kernels.Dot(x.Load(), 1, x.Load(), 0)
		}, "dot: contracts 128 elements of f32[8,128] with 8 of f32[8,128]"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { x.Store(x.Load()) }, `store: "x" is input and cannot be changed`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { out.Store(k.F32(0)) }, `store: f32[] to "out", whose tile is f32[8,128]`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { x.LoadRows(4, 5) }, `load: 5 rows from row 4 of "x", f32[8,128]`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { out.StoreRows(1, x.Load()) }, `store: f32[8,128] to "out" from row 1, whose tile is f32[8,128]`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { n.Load() }, `load: "n" is in scalar memory; take single elements with At`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			var inner *kernels.Value
			k.If(kernels.Equal(i, k.Int(0)), func() { inner = x.Load() })
			out.Store(inner)
		}, "store: an operand of type f32[8,128] was computed inside an If that has ended"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { k.If(i, func() {}) }, "if: the condition has type s32[], not bool"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			k.In("y", tt, []int{5, 128}, i, k.Int(0))
		}, `input: "y" of type f32[16,128]: dimension 0 of 16 is no multiple of the block's 5`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { k.In("y", tt, []int{8, 128}, i) }, "1 indices for 2 dimensions"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			k.In("y", graph.T(dtype.F32, 4, 1, 16, 128), []int{2, 1, 16, 128}, i, i, i, i)
		}, "the block has 2 in dimension 0; all but the last three must be 1"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			k.In("y", graph.T(dtype.F32, 4, 16, 128), []int{2, 16, 128}, i, i, i).Load()
		}, `load: the block of "y" has 2 sheets; take one with Sheet`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { x.Sheet(i).Load() }, `sheet: s32[] of "x", whose block [8 128] has 1`},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			k.In("y", graph.T(dtype.S32, 1, 1), []int{1, 1}, i, k.F32(0))
		}, "index 1 is no s32 scalar made of grid steps, constants and prefetched values"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) { k.DynamicGrid(2, 3) }, "grid: dimension 1 has at most 2 steps, 3 expected"},
		{func(k *kernels.Kernel, i *kernels.Value, x, out, n *kernels.Ref) {
			out.Store(kernels.Add(x.Load(), kernels.New("other").F32(0)))
		}, `belongs to another kernel, "other"`},
	} {
		k := kernels.New("wrong")
		i := k.Grid(2, kernels.Sequential)
		n := k.Prefetch("n", 3)
		x, out := k.In("x", tt, []int{8, 128}, i, k.Int(0)), k.Out("out", tt, []int{8, 128}, i, k.Int(0))
		c.wrong(k, i, x, out, n)
		err := callError(nil, kernels.Target{}, k, graph.T(dtype.S32, 3), tt)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, `kernel "wrong" at kernels/refuse_test.go:`)
	}
	err := callError(nil, kernels.Target{}, double(16, 256, 8, 128), graph.T(dtype.F32, 16, 128))
	require.ErrorContains(t, err, `kernel "double": operand 0, x, has type f32[16,128], not f32[16,256]`)
	err = callError(nil, kernels.Target{}, double(16, 256, 8, 128), graph.T(dtype.F32, 16, 256), tt)
	require.ErrorContains(t, err, `kernel "double" takes 1 operands (x), got 2`)
}

// Costs are counted from the definition and reach the program's and the compiler's
// account.
func TestCost(t *testing.T) {
	k := kernels.New("product")
	i, j := k.Grid(4, kernels.Parallel), k.DynamicGrid(8, 2)
	x := k.In("x", graph.T(dtype.BF16, 64, 256), []int{16, 256}, i, k.Int(0))
	y := k.In("y", graph.T(dtype.BF16, 256, 1024), []int{256, 128}, k.Int(0), j)
	out := k.Out("out", graph.T(dtype.F32, 64, 1024), []int{16, 128}, i, j)
	out.Store(kernels.Exp(kernels.Dot(x.Load(), 1, y.Load(), 0)))
	want := kernels.Cost{
		Flops:           4 * 2 * 2 * 16 * 256 * 128,
		Transcendentals: 4 * 2 * 16 * 128,
		Bytes:           4*16*256*2 + 8*256*128*2 + 8*16*128*4, // x is copied once for all steps along j
	}
	require.Equal(t, want, k.Cost())
	m, err := graph.Trace("cost", nil, func(b *graph.Builder) error {
		args := []*graph.Value{b.Input("n", graph.T(dtype.S32)), b.Input("x", graph.T(dtype.BF16, 64, 256)), b.Input("y", graph.T(dtype.BF16, 256, 1024))}
		b.Output("out", k.Call(on(t, "v5e"), args...)[0])
		return nil
	})
	require.NoError(t, err)
	got := m.Cost().Device[graph.CostCustomCall]
	require.Equal(t, graph.Work{Flops: want.Flops, Bytes: want.Bytes}, got)
	require.Contains(t, m.StableHLO(), `\22cost_estimate\22:{\22bytes_accessed\22:622592,\22flops\22:8388608,\22transcendentals\22:16384}`)
}
