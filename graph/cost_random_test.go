package graph_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// randomProgram records the same program for the same seed; specs draws the
// shardings of inputs, constraints and outputs, nil for none.
func randomProgram(seed uint64, specs func(rank int) sharding.Spec) func(b *Builder) {
	return func(b *Builder) {
		r := rand.New(rand.NewPCG(seed, 7))
		port := func(rank int) PortOption {
			if specs == nil {
				return nil
			}
			return Sharded(specs(rank))
		}
		var inputs []*Value
		for i := range 4 {
			inputs = append(inputs, b.Input(fmt.Sprint("x", i), T(F32, 8, 16), port(2)))
		}
		pool := append([]*Value(nil), inputs...) // all f32[8,16]
		pick := func(pool []*Value) *Value { return pool[r.IntN(len(pool))] }
		var step func(pool []*Value, depth int) *Value
		step = func(pool []*Value, depth int) *Value {
			x, y := pick(pool), pick(pool)
			n := 11
			if depth > 1 {
				n = 8
			}
			switch r.IntN(n) {
			case 0:
				return Mul(Sin(x), y)
			case 1:
				return Mul(x, Sum(y, 0))
			case 2:
				return Einsum("ab,bc->ac", Einsum("ab,cb->ac", x, y), x)
			case 3:
				return b.Checkpoint(SaveNothing(), func() []*Value {
					return []*Value{Reshape(Exp(Reshape(x, 128)), 8, 16)}
				})[0]
			case 4:
				return Reshape(Transpose(Reshape(x, 8, 4, 4), 0, 2, 1), 8, 16)
			case 5:
				return Concat(1, SliceDim(x, 1, 0, 4), SliceDim(y, 1, 4, 16))
			case 6:
				return Add(Softmax(x, 1), Cumsum(y, 0))
			case 7:
				if specs == nil || r.IntN(2) == 0 {
					return Neg(x)
				}
				return Constrain(x, specs(2))
			case 8:
				rows, _ := b.Scan([]*Value{Sum(y, 0)}, []*Value{x}, func(c, row []*Value) (next, ys []*Value) {
					return []*Value{Add(Sin(c[0]), row[0])}, nil
				})
				return Add(x, rows[0])
			case 9:
				out, ys := b.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) {
					z := step([]*Value{c[0], y}, depth+1)
					return []*Value{z}, []*Value{Sum(z)}
				}, Iterations(3))
				return Add(out[0], Sum(ys[0]))
			default:
				return b.Cond(Greater(Sum(x), Sum(y)), func() []*Value {
					return []*Value{step([]*Value{x, y}, depth+1)}
				}, func() []*Value { return []*Value{x} })[0]
			}
		}
		for range 12 {
			pool = append(pool, step(pool, 0))
		}
		loss := Sum(Mul(pool[len(pool)-1], pool[len(pool)-2]))
		b.Output("loss", loss)
		for i, g := range Grad(loss, inputs...) {
			b.Output(fmt.Sprint("g", i), g, port(2))
		}
	}
}

// TestCostOfRandomPrograms: what is to be computed does not depend on how it is
// split, and no device does less than its share.
func TestCostOfRandomPrograms(t *testing.T) {
	m := costMesh(t, "dp", 2, "tp", 4)
	names := []any{nil, "dp", "tp", []string{"dp", "tp"}, []string{"tp", "dp"}, sharding.Any}
	draw := func(seed uint64) func(int) sharding.Spec {
		r := rand.New(rand.NewPCG(seed, 8))
		return func(rank int) sharding.Spec {
			for {
				dims := make([]any, rank)
				for i := range dims {
					dims[i] = names[r.IntN(len(names))]
				}
				s := sharding.P(dims...)
				if s.Validate(m, []int{8, 16}) == nil {
					return s
				}
			}
		}
	}
	count := func(m *mesh.Mesh, seed uint64, specs func(int) sharding.Spec) Cost {
		mod, err := Trace("random", m, func(b *Builder) error { randomProgram(seed, specs)(b); return nil })
		require.NoError(t, err)
		return mod.Cost()
	}
	split := 0
	for seed := range uint64(30) {
		// Constraints draw from the program's own generator as well: all variants
		// must have them.
		none := func(rank int) sharding.Spec { return sharding.Replicated(rank) }
		one := count(costMesh(t, "dp", 1, "tp", 1), seed, none)
		require.Equal(t, one.Global, one.Device)
		require.Empty(t, one.Collectives)
		whole := count(m, seed, none)
		require.Equal(t, one.Global, whole.Global)
		require.Equal(t, one.Global, whole.Device, "every device computes everything")
		require.Empty(t, whole.Collectives)
		for variant := range uint64(3) {
			c := count(m, seed, draw(seed*10+variant))
			require.Equal(t, one.Global, c.Global)
			require.Equal(t, 8, c.Devices)
			for k := range c.Global {
				g, d := c.Global[k], c.Device[k]
				require.GreaterOrEqual(t, d.Flops*8*(1+1e-12), g.Flops, CostClass(k).String())
				require.GreaterOrEqual(t, d.Bytes*8*(1+1e-12), g.Bytes, CostClass(k).String())
				require.LessOrEqual(t, d.Flops, g.Flops*(1+1e-12))
				require.LessOrEqual(t, d.Bytes, g.Bytes*(1+1e-12))
			}
			if c.Device.Flops() < c.Global.Flops() {
				split++
			}
			require.Equal(t, c, count(m, seed, draw(seed*10+variant)), "the same every time")
			var sum, total float64
			for _, op := range c.Ops {
				for _, cc := range op.Collectives {
					sum += cc.Wire
				}
			}
			for _, cc := range c.Collectives {
				require.Positive(t, cc.Bytes)
				total += cc.Wire
			}
			require.InEpsilon(t, sum+1, total+1, 1e-9)
		}
	}
	require.Greater(t, split, 75, "nearly every drawing splits something")
}
