package graph_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// Elements of an array with more than 2³² of them depend on the high word of
// their index too.
func TestRandomBeyond32Bits(t *testing.T) {
	const rows, cols = 1 << 20, 1 << 20
	got := run(t, trace(t, nil, func(b *Builder) {
		key := NewKey(9)
		huge := []int{rows, cols}
		at := func(row, col int64) []*Value { return []*Value{b.Int(S64, row), b.Int(S64, col)} }
		b.Output("start", b.RandomBitsAt(key, U32, huge, at(0, 0), []int{2, 3}))
		b.Output("small", b.RandomBits(key, T(U32, 3)))
		b.Output("high", b.RandomBitsAt(key, U32, huge, at(4096, 0), []int{1, 3}))
		b.Output("end", b.RandomBitsAt(key, U32, huge, at(rows-1, cols-2), []int{1, 2}))
		// The same places in another shape with the same row-major order.
		b.Output("flat", b.RandomBitsAt(key, U32, []int{rows * cols}, []*Value{b.Int(U64, rows*cols-2)}, []int{2}))
		b.Output("flat high", b.RandomBitsAt(key, U32, []int{rows * cols}, []*Value{b.Int(S64, 1<<32)}, []int{3}))
		// The compiler makes only what is used of the whole.
		b.Output("whole", Slice(b.RandomBits(key, T(U32, 1<<17, 1<<16)), []int{1 << 16, 0}, []int{1<<16 + 1, 3}, nil))
	}))
	require.Equal(t, got[1].data, got[0].data[:3])
	require.NotEqual(t, got[0].data[:3], got[2].data)
	require.Equal(t, got[3].data, got[4].data)
	require.Equal(t, got[2].data, got[5].data)
	require.Equal(t, got[2].data, got[6].data)
}

// Moments and bounds of the distributions, with fixed keys: a sample of a
// quarter million has a standard error of a five-hundredth.
func TestDistributions(t *testing.T) {
	const n = 1 << 18
	types := []DType{F64, F32, BF16, F16}
	got := run(t, trace(t, nil, func(b *Builder) {
		k := NewKey(3)
		for _, d := range types {
			k := k.Named(d.String())
			b.Output("uniform", Convert(b.RandomUniform(k.Named("u"), T(d, n), -1, 3), F64))
			b.Output("normal", Convert(b.RandomNormal(k.Named("n"), T(d, n)), F64))
			b.Output("truncated", Convert(b.RandomTruncatedNormal(k.Named("t"), T(d, n), -1, 2), F64))
			b.Output("tail", Convert(b.RandomTruncatedNormal(k.Named("i"), T(d, n), math.Inf(-1), 0), F64))
		}
		b.Output("bernoulli", Convert(b.Bernoulli(k.Named("b"), 0.3, []int{n}), F64))
		b.Output("always", Convert(b.Bernoulli(k, 1, []int{n}), F64))
		b.Output("never", Convert(b.Bernoulli(k, 0, []int{n}), F64))
		b.Output("dropout", Dropout(b.Full(T(F64, n), 3), 0.25, k.Named("d")))
	}))
	moments := func(a array) (mean, variance, lo, hi float64) {
		lo, hi = math.Inf(1), math.Inf(-1)
		for _, x := range a.data {
			mean += x / n
			variance += x * x / n
			lo, hi = min(lo, x), max(hi, x)
		}
		return mean, variance - mean*mean, lo, hi
	}
	near := func(want, got float64, what string, d DType) {
		tol := 1e-2
		if d == BF16 {
			tol = 1.5e-2
		}
		require.InDelta(t, want, got, tol, "%s of %v", what, d)
	}
	phi := func(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }
	mass := func(x float64) float64 { return (1 + math.Erf(x/math.Sqrt2)) / 2 }
	z := mass(2) - mass(-1)
	mean := (phi(-1) - phi(2)) / z
	for i, d := range types {
		m, v, lo, hi := moments(got[4*i])
		near(1, m, "mean of uniform", d)
		near(16.0/12, v, "variance of uniform", d)
		require.GreaterOrEqual(t, lo, -1.0)
		require.Less(t, hi, 3.0, "%v", d)
		require.Greater(t, hi, 2.98)
		m, v, lo, hi = moments(got[4*i+1])
		near(0, m, "mean of normal", d)
		near(1, v, "variance of normal", d)
		require.Greater(t, hi, 4.0)
		require.Less(t, hi, 6.5)
		require.Less(t, lo, -4.0)
		m, v, lo, hi = moments(got[4*i+2])
		near(mean, m, "mean of truncated", d)
		near(1+(-phi(-1)-2*phi(2))/z-mean*mean, v, "variance of truncated", d)
		require.Greater(t, lo, -1.0, "%v", d)
		require.Less(t, hi, 2.0, "%v", d)
		m, _, lo, hi = moments(got[4*i+3])
		near(-math.Sqrt(2/math.Pi), m, "mean of half", d)
		require.Less(t, hi, 0.0)
		require.Greater(t, lo, -6.5, "a finite tail")
	}
	rest := got[4*len(types):]
	m, _, _, _ := moments(rest[0])
	near(0.3, m, "Bernoulli", F64)
	m, _, _, _ = moments(rest[1])
	require.Equal(t, 1.0, m)
	m, _, _, _ = moments(rest[2])
	require.Equal(t, 0.0, m)
	m, _, lo, hi := moments(rest[3])
	near(3, m, "dropout", F64)
	require.Equal(t, []float64{0, 4}, []float64{lo, hi})
}

// Keys that are made differently differ, and equal ones agree, also where they
// are known only at run time: in a loop over layers, and from an input.
func TestKeys(t *testing.T) {
	k := NewKey(1, "dropout")
	require.Equal(t, NewKey(1).Named("dropout"), k)
	seen := map[Key]string{}
	for name, k := range map[string]Key{
		"seed": NewKey(1), "other seed": NewKey(2), "high seed": NewKey(1 << 32), "name": NewKey(1, "a"), "two names": NewKey(1, "a", "b"),
		"order": NewKey(1, "b", "a"), "joined": NewKey(1, "ab"), "fold": NewKey(1).Fold(1), "fold high": NewKey(1).Fold(1 << 32), "fold 0": NewKey(1).Fold(0),
	} {
		require.NotContains(t, seen, k, "%s and %s", name, seen[k])
		seen[k] = name
	}
	mod := trace(t, nil, func(b *Builder) {
		step, words := b.Input("step", T(S64)), b.Input("words", T(U32, 2))
		_, ys := b.Scan(nil, []*Value{b.Iota(T(S32, 3), 0)}, func(_, i []*Value) (next, ys []*Value) {
			return nil, []*Value{b.RandomBits(KeyOf(words).Named("dropout").FoldIn(step).FoldIn(i[0]), T(U32, 4))}
		})
		b.Output("scan", ys[0])
		var rows []*Value
		for i := range uint64(3) {
			rows = append(rows, b.RandomBits(NewKey(1<<32+1, "dropout").Fold(5<<32+2).Fold(i), T(U32, 4)))
		}
		b.Output("unrolled", Stack(0, rows...))
	})
	got := run(t, mod, arr(T(S64), 5<<32+2), arr(T(U32, 2), 1, 1))
	require.Equal(t, got[1].data, got[0].data)
	require.NotEqual(t, got[0].data[:4], got[0].data[4:8])
}

// Dropout keeps its mask for the backward pass, or draws the same one again.
func TestDropoutGradient(t *testing.T) {
	mask := func(b *Builder, x *Value, i *Value) *Value {
		return Mul(Dropout(x, 0.5, NewKey(4).FoldIn(i)), x)
	}
	checkAll(t, nil, []checked{
		{name: "plain", in: []array{normal(1, 4, 6)}, f: func(b *Builder, x []*Value) []*Value { return []*Value{mask(b, x[0], b.Int(S32, 1))} }},
		{name: "scan of checkpoint", in: []array{normal(1, 6), normal(2, 3, 6)}, f: func(b *Builder, x []*Value) []*Value {
			c, _ := b.Scan([]*Value{x[0]}, []*Value{x[1], b.Iota(T(S32, 3), 0)}, func(c, r []*Value) (next, ys []*Value) {
				return b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{mask(b, Add(c[0], r[0]), r[1])} }), nil
			})
			return c
		}},
	})
}
