package graph_test

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	. "titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/sharding"
)

// goldenArray is an array as JAX gave it, little-endian.
type goldenArray struct {
	DType, Hex string
	Shape      []int
}

func (g goldenArray) decode(t testing.TB) xlatest.Array {
	d, err := dtype.Parse(g.DType)
	require.NoError(t, err)
	data, err := hex.DecodeString(g.Hex)
	require.NoError(t, err)
	return xlatest.Array{DType: d, Dims: g.Shape, Data: data}
}

// goldenCase is one case of testdata/indexing.json; indexing.py, beside it,
// says what the fields mean.
type goldenCase struct {
	Op, Name               string
	Inputs, Outputs, Grads []goldenArray
	Cotangent              goldenArray
	Diff                   []int

	Dims struct {
		Offset          []int `json:"offset_dims"`
		Collapsed       []int `json:"collapsed_slice_dims"`
		OperandBatching []int `json:"operand_batching_dims"`
		StartBatching   []int `json:"start_indices_batching_dims"`
		StartMap        []int `json:"start_index_map"`
	}
	IndexVectorDim      int `json:"index_vector_dim"`
	Sizes               []int
	Kind                string
	Unique              bool
	Dim, K              int
	Descending, Reverse bool
	Seed                string
	Folds               []uint64
	Lo, Hi              float64
}

func (c goldenCase) gatherDims() GatherDims {
	return GatherDims{OffsetDims: c.Dims.Offset, CollapsedSliceDims: c.Dims.Collapsed, OperandBatchingDims: c.Dims.OperandBatching,
		StartIndicesBatchingDims: c.Dims.StartBatching, StartIndexMap: c.Dims.StartMap, IndexVectorDim: c.IndexVectorDim}
}

func (c goldenCase) key(t testing.TB) Key {
	seed, err := strconv.ParseUint(c.Seed, 10, 64)
	require.NoError(t, err)
	k := NewKey(seed)
	for _, f := range c.Folds {
		k = k.Fold(f)
	}
	return k
}

// runGolden runs all cases of an op in one program and compares results and
// gradients with JAX's: NaN equals NaN, tolerances are relative to the larger of
// 1 and the element.
func runGolden(t *testing.T, op string, tolerance float64, f func(b *Builder, c goldenCase, x []*Value) []*Value) {
	t.Helper()
	runGoldenOn(t, nil, op, tolerance, f)
}

// runGoldenOn is runGolden with equal copies of everything on the devices of m,
// for the cases with batching dimensions.
func runGoldenOn(t *testing.T, m *mesh.Mesh, op string, tolerance float64, f func(b *Builder, c goldenCase, x []*Value) []*Value) {
	t.Helper()
	var copies PortOption
	devices := 1
	if m != nil {
		copies, devices = Sharded(sharding.P()), m.Size()
	}
	raw, err := os.ReadFile("testdata/indexing.json")
	require.NoError(t, err)
	var all, cases []goldenCase
	require.NoError(t, json.Unmarshal(raw, &all))
	for _, c := range all {
		if c.Op == op && (m == nil || len(c.Dims.OperandBatching) > 0) {
			cases = append(cases, c)
		}
	}
	require.NotEmpty(t, cases)
	var args []xlatest.Array
	mod := trace(t, m, func(b *Builder) {
		xs := make([][]*Value, len(cases))
		for i, c := range cases {
			for _, g := range c.Inputs {
				a := g.decode(t)
				args = append(args, a)
				xs[i] = append(xs[i], b.Input(c.Name, T(a.DType, a.Dims...), copies))
			}
		}
		for i, c := range cases {
			outs := f(b, c, xs[i])
			require.Len(t, outs, len(c.Outputs), c.Name)
			for _, o := range outs {
				b.Output(c.Name, o, copies)
			}
			if c.Diff == nil {
				continue
			}
			ct := c.Cotangent.decode(t)
			var wrt []*Value
			for _, k := range c.Diff {
				wrt = append(wrt, xs[i][k])
			}
			for _, g := range VJP(outs[:1], []*Value{b.Const(T(ct.DType, ct.Dims...), ct.Data)}, wrt) {
				b.Output(c.Name, g, copies)
			}
		}
	})
	outs := xlatest.Run(t, xlatest.CPU(t), mod.StableHLO(), devices, xlatest.Same(devices, args...))[0]
	for _, c := range cases {
		want := append(append([]goldenArray(nil), c.Outputs...), c.Grads...)
		got := outs[:len(want)]
		outs = outs[len(want):]
		t.Run(c.Name+" "+c.Kind, func(t *testing.T) {
			for i, w := range want {
				requireSameArray(t, w.decode(t), got[i], tolerance, "result %d", i)
			}
		})
	}
}

func requireSameArray(t testing.TB, want, got xlatest.Array, tolerance float64, msg string, args ...any) {
	t.Helper()
	require.Equal(t, want.DType, got.DType, append([]any{msg}, args...)...)
	require.True(t, slices.Equal(want.Dims, got.Dims), append([]any{msg}, args...)...)
	if !want.DType.IsFloat() {
		require.Equal(t, want.Data, got.Data, append([]any{msg}, args...)...)
		return
	}
	for i := range want.Len() {
		x, y := dtype.Float(want.DType, want.Data, i), dtype.Float(got.DType, got.Data, i)
		if x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= tolerance*max(1, math.Abs(x)) {
			continue
		}
		require.Failf(t, "differs from JAX", msg+": element %d is %v, want %v", append(args, i, y, x)...)
	}
}

var combines = map[string]Combine{"set": CombineSet, "add": CombineAdd, "mul": CombineMul, "min": CombineMin, "max": CombineMax}

func TestGatherLikeJAX(t *testing.T) {
	runGolden(t, "gather", 1e-14, func(_ *Builder, c goldenCase, x []*Value) []*Value {
		return []*Value{Gather(x[0], x[1], c.gatherDims(), c.Sizes)}
	})
}

func TestScatterLikeJAX(t *testing.T) {
	// On several devices batching dimensions are spelt differently.
	for _, m := range []*mesh.Mesh{nil, newMesh(t, axis("d", 2))} {
		runGoldenOn(t, m, "scatter", 1e-14, func(_ *Builder, c goldenCase, x []*Value) []*Value {
			var opts []IndexOption
			if c.Unique {
				opts = append(opts, UniqueIndices())
			}
			return []*Value{Scatter(x[0], x[1], x[2], combines[c.Kind], c.gatherDims(), opts...)}
		})
	}
}

func TestTakeLikeJAX(t *testing.T) {
	runGolden(t, "take", 1e-14, func(_ *Builder, c goldenCase, x []*Value) []*Value { return []*Value{Take(x[0], x[1], c.Dim)} })
	runGolden(t, "take_along", 1e-14, func(_ *Builder, c goldenCase, x []*Value) []*Value { return []*Value{TakeAlong(x[0], x[1], c.Dim)} })
}

func sortOptions(c goldenCase) []SortOption {
	if c.Descending {
		return []SortOption{Descending()}
	}
	return nil
}

func TestSortLikeJAX(t *testing.T) {
	runGolden(t, "sort", 0, func(_ *Builder, c goldenCase, x []*Value) []*Value {
		return []*Value{Sort(x[0], c.Dim, sortOptions(c)...)}
	})
	runGolden(t, "argsort", 0, func(_ *Builder, c goldenCase, x []*Value) []*Value {
		return []*Value{Argsort(x[0], c.Dim, sortOptions(c)...)}
	})
	runGolden(t, "top_k", 0, func(_ *Builder, c goldenCase, x []*Value) []*Value {
		v, i := TopK(x[0], c.K)
		return []*Value{v, i}
	})
}

func TestArgReduceLikeJAX(t *testing.T) {
	runGolden(t, "argmax", 0, func(_ *Builder, c goldenCase, x []*Value) []*Value { return []*Value{ArgMax(x[0], c.Dim)} })
	runGolden(t, "argmin", 0, func(_ *Builder, c goldenCase, x []*Value) []*Value { return []*Value{ArgMin(x[0], c.Dim)} })
}

func TestCumsumLikeJAX(t *testing.T) {
	runGolden(t, "cumsum", 1e-5, func(_ *Builder, c goldenCase, x []*Value) []*Value {
		var opts []CumsumOption
		if c.Reverse {
			opts = append(opts, FromEnd())
		}
		return []*Value{Cumsum(x[0], c.Dim, opts...)}
	})
}

// Bits and uniform numbers are JAX's bit for bit, also from keys that are known
// only at run time; normal ones to the accuracy of erf⁻¹.
func TestRandomLikeJAX(t *testing.T) {
	draw := func(op string, tolerance float64, f func(b *Builder, c goldenCase, k Key, t Type) *Value) {
		for _, traced := range []bool{false, true} {
			runGolden(t, op, tolerance, func(b *Builder, c goldenCase, _ []*Value) []*Value {
				k := c.key(t)
				if traced {
					seed, err := strconv.ParseUint(c.Seed, 10, 64)
					require.NoError(t, err)
					k = KeyOf(Stack(0, b.Int(U32, int64(seed>>32)), b.Int(U32, int64(uint32(seed)))))
					for i, n := range c.Folds {
						if i == 0 {
							k = k.FoldIn(b.Int(U32, int64(n)))
						} else {
							k = k.Fold(n)
						}
					}
				}
				want := c.Outputs[0].decode(t)
				return []*Value{f(b, c, k, T(want.DType, want.Dims...))}
			})
		}
	}
	draw("bits", 0, func(b *Builder, _ goldenCase, k Key, t Type) *Value { return b.RandomBits(k, t) })
	draw("uniform", 0, func(b *Builder, c goldenCase, k Key, t Type) *Value { return b.RandomUniform(k, t, c.Lo, c.Hi) })
	draw("normal", 1e-6, func(b *Builder, _ goldenCase, k Key, t Type) *Value { return b.RandomNormal(k, t) })
	draw("truncated_normal", 1e-6, func(b *Builder, c goldenCase, k Key, t Type) *Value {
		return b.RandomTruncatedNormal(k, t, c.Lo, c.Hi)
	})
}
