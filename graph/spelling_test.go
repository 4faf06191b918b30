package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// Every spelling of regions and collectives, with and without locations, must
// be one that the TPU compiler takes too.
func TestSpellingsCompileForTPU(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 4}}, nil)
	require.NoError(t, err)
	programs := map[string]func(b *Builder) error{
		"moe-ish": func(b *Builder) error {
			x := b.Input("x", T(F32, 16, 8), Sharded(sharding.P("dp")))
			w := b.Input("w", T(F32, 4, 8, 8), Sharded(sharding.P("tp")))
			full := SaveNames("h")
			ys := b.Checkpoint(full, func() []*Value {
				return b.ShardMap([]*Value{x, w}, []sharding.Spec{sharding.P("dp"), sharding.P("tp")}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value {
					i := b.AxisIndex("tp")
					h := Name(Tanh(Einsum("bi,eio->beo", l[0], l[1])), "h")
					s := Sum(h, 1)
					c, _ := b.Scan([]*Value{s}, nil, func(c, _ []*Value) ([]*Value, []*Value) {
						r := b.Cond(Less(i, b.Int(S32, 2)), func() []*Value { return []*Value{Sin(c[0])} }, func() []*Value { return []*Value{Mul(c[0], c[0])} })
						return []*Value{Add(r[0], MulScalar(Shift(c[0], 1, "tp"), 0.5))}, nil
					}, Iterations(3))
					return []*Value{AllReduce(c[0], "tp")}
				})
			})
			loss := Sum(Square(ys[0]))
			g := Grad(loss, x, w)
			b.Output("l", loss)
			b.Output("gx", g[0])
			b.Output("gw", g[1])
			return nil
		},
		"partial": func(b *Builder) error {
			x := b.Input("x", T(F32, 16, 8), Sharded(sharding.P("dp")))
			w := b.Input("w", T(F32, 8, 8), Sharded(sharding.P(nil, "tp")))
			ys := b.ShardMap([]*Value{x, w}, []sharding.Spec{sharding.P("dp"), sharding.P()}, []sharding.Spec{sharding.P("dp")}, func(l []*Value) []*Value {
				h := Tanh(Einsum("bi,io->bo", l[0], l[1]))
				h = Constrain(h, sharding.P(nil, "tp"))
				m := AllReduceMean(h, "dp")
				return []*Value{Add(h, Mul(m, h))}
			}, ManualOver("dp"))
			loss := Sum(Square(ys[0]))
			g := Grad(loss, x, w)
			b.Output("l", loss)
			b.Output("gx", g[0])
			b.Output("gw", g[1])
			return nil
		},
		"index": func(b *Builder) error {
			table := b.Input("table", T(BF16, 64, 8), Sharded(sharding.P("tp")))
			ids := b.Input("ids", T(S32, 16, 4), Sharded(sharding.P("dp")))
			x := Embedding(table, ids)
			top, at := TopK(Convert(x, F32), 2)
			y := TakeAlong(Sort(x, 1), at, 2)
			loss := Add(Sum(Square(top)), Sum(Convert(Square(y), F32)))
			loss = Add(loss, Sum(Mul(b.RandomNormal(NewKey(1, "noise"), top.Type()), top)))
			loss = Add(loss, Sum(Cumsum(Convert(x, F32), 1)))
			b.Output("loss", loss)
			b.Output("best", ArgMax(x, -1))
			b.Output("g", Grad(loss, table)[0])
			return nil
		},
		"while": func(b *Builder) error {
			x := b.Input("x", T(F32, 16, 8), Sharded(sharding.P("dp")))
			out := b.While([]*Value{x, b.Int(S32, 0)}, func(c []*Value) *Value { return Less(c[1], b.Int(S32, 5)) },
				func(c []*Value) []*Value { return []*Value{Add(c[0], x), Add(c[1], b.Int(S32, 1))} })
			b.Output("y", out[0])
			return nil
		},
		"collectives": func(b *Builder) error {
			x := b.Input("x", T(BF16, 16, 8), Sharded(sharding.P("dp", "tp")))
			ys := b.ShardMap([]*Value{x}, []sharding.Spec{sharding.P("dp", "tp")}, []sharding.Spec{sharding.P("dp", "tp"), sharding.P(nil, nil), sharding.P([]string{"dp", "tp"})}, func(l []*Value) []*Value {
				a := AllGather(l[0], 1, "tp")
				r := ReduceScatter(a, 1, "tp")
				e := AllToAll(a, 0, 1, "tp")
				s := AllGatherSame(AllGatherSame(l[0], 1, "tp"), 0, "dp")
				_ = e
				return []*Value{Max(r, l[0]), s, Sum(e, 1)}
			})
			loss := Sum(Add(Convert(ys[0], F32), Convert(ys[1], F32)))
			loss = Add(loss, Sum(Convert(ys[2], F32)))
			b.Output("l", loss)
			b.Output("g", Grad(loss, x)[0])
			return nil
		},
	}
	topo, err := xlatest.TPU(t).NewTopology("v5e:2x4", nil)
	require.NoError(t, err)
	for name, f := range programs {
		prog, err := Trace(name, m, f)
		require.NoError(t, err, name)
		for _, text := range []string{prog.StableHLO(), prog.StableHLOWithLocations()} {
			x, err := topo.Compile([]byte(text), pjrt.CompileOptions{Partitions: 8, Shardy: true, OptLevel: pjrt.LevelO0})
			require.NoError(t, err, "%s:\n%s", name, text)
			require.NoError(t, x.Close())
		}
	}
	require.NoError(t, topo.Close())
}
