package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
)

// What a program holds, counted by hand: in units of an f32 [256, 256].
func TestFootprint(t *testing.T) {
	const unit = 4 * 256 * 256
	square := T(F32, 256, 256)
	for name, c := range map[string]struct {
		f    func(b *Builder, x, w *Value) *Value
		temp float64
	}{
		// The first product, its tanh for the second, which leaves.
		"elementwise work is held for a product": {func(_ *Builder, x, w *Value) *Value {
			return Einsum("ij,jk->ik", Tanh(Einsum("ij,jk->ik", x, w)), w)
		}, 2},
		"elementwise work is not held for itself": {func(_ *Builder, x, w *Value) *Value {
			return Tanh(Exp(AddScalar(Einsum("ij,jk->ik", x, w), 1)))
		}, 1},
		"views are not held": {func(_ *Builder, x, w *Value) *Value {
			y := Name(Reshape(Einsum("ij,jk->ik", x, w), 256*256), "y")
			return Exp(Reshape(Barrier(y)[0], 256, 256))
		}, 1},
		// Of ten iterations: the stack, and one row at a time besides the carry, which
		// goes in and comes out.
		"a loop's stack": {func(b *Builder, x, w *Value) *Value {
			_, ys := b.Scan([]*Value{Exp(x)}, nil, func(c, _ []*Value) (next, ys []*Value) {
				y := Einsum("ij,jk->ik", c[0], w)
				return []*Value{y}, []*Value{y}
			}, Iterations(10))
			return Sum(ys[0], 0)
		}, 10 + 3},
		"a loop without a stack": {func(b *Builder, x, w *Value) *Value {
			c, _ := b.Scan([]*Value{Exp(x)}, nil, func(c, _ []*Value) (next, ys []*Value) {
				return []*Value{Einsum("ij,jk->ik", c[0], w)}, nil
			}, Iterations(10))
			return Exp(c[0])
		}, 3},
	} {
		m := trace(t, nil, func(b *Builder) {
			x, w := b.Input("x", square), b.Input("w", square, Donated())
			b.Output("y", c.f(b, x, w), Into(w))
		})
		f := m.Footprint()
		require.EqualValues(t, 2*unit, f.Arguments, name)
		require.EqualValues(t, unit, f.Outputs, name)
		require.EqualValues(t, unit, f.Donated, name)
		require.InDelta(t, c.temp, float64(f.Temp)/unit, 0.001, name)
		require.Equal(t, 2*unit+f.Temp, f.InUse(), name)
	}
}

// What the policies of a model's layers keep, with the compiler's account beside the
// estimate; what is moved to the host is not on the device.
func TestFootprintOfPolicies(t *testing.T) {
	nothing, kept, moved := SaveNothing(), SaveNames("attn_out"), OffloadNames("attn_out")
	sizes := map[string]Footprint{}
	for name, policy := range map[string]*Policy{"none": nil, "nothing": &nothing, "kept": &kept, "moved": &moved} {
		m, err := Trace("step", nil, small(32, true, policy).step)
		require.NoError(t, err)
		sizes[name] = m.Footprint()
		if name != "moved" {
			s, err := xlatest.Compile(t, xlatest.CPU(t), m.StableHLO(), 1).MemoryStats()
			require.NoError(t, err)
			t.Logf("%s: estimated %.1f MiB, compiled %.1f MiB", name, mib(sizes[name].Temp), mib(s.Temp))
			require.InEpsilon(t, s.Temp, sizes[name].Temp, 0.3, name)
		}
	}
	c := small(32, true, nil)
	stack := int64(4 * c.layers * c.batch * c.seq * c.heads * c.headDim)
	require.Equal(t, stack, sizes["moved"].Host)
	require.InDelta(t, sizes["kept"].Temp-stack, sizes["moved"].Temp, 0.1*float64(stack))
	require.InEpsilon(t, stack, sizes["kept"].Temp-sizes["nothing"].Temp, 0.25)
	require.Zero(t, sizes["kept"].Host)
}
