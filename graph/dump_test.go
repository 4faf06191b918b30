package graph

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/sharding"
)

var updateDumps = flag.Bool("update-dumps", false, "rewrite testdata/dump")

func TestDumpGolden(t *testing.T) {
	two, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		mesh *mesh.Mesh
		f    func(b *Builder) error
	}{
		{"ops", nil, func(b *Builder) error {
			x := b.Input("x", T(F32, 4, 6), Donated())
			h := b.Input("kept on host", T(BF16, 3), OnHost())
			y := Transpose(Slice(x, []int{0, 1}, []int{4, 6}, []int{2, 1}), 1, 0)
			y = Pad(Reverse(y, 1), b.Scalar(F32, -0.5), []int{1, 0}, nil, nil)
			y = Concat(1, y, BroadcastTo(b.ConstF32([]int{2}, []float32{1.5, -2}), 6, 2), Convert(b.Iota(T(S32, 6, 2), 0), F32))
			y = Select(Less(y, b.Scalar(F32, 3)), y, ReducePrecision(y, 8, 7))
			y = DynamicSliceDim(y, 0, b.Int(S32, 2), 3)
			y = DynamicUpdateSliceDim(y, Reshape(Convert(ToDevice(h), F32), 3, 1), 1, b.Int(S32, 1))
			both := Barrier(y, Sum(y, 1))
			z := b.CustomCall(CustomCallSpec{Target: "vendor.code", Results: []Type{T(F32, 3), T(S32)}}, both...)
			table := b.ConstS32([]int{12}, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
			b.Output("x", x, Into(x))
			b.Output("y", Name(Einsum("ab,cb->ac", y, y, As(F64), WithPrecision(Highest)), "scores"))
			b.Output("z", z[0])
			b.Output("table", table)
			return nil
		}},
		{"indexing", nil, func(b *Builder) error {
			table, ids := b.Input("table", T(F32, 10, 4)), b.Input("ids", T(S32, 2, 3))
			x := Embedding(table, ids)
			b.Output("x", x)
			b.Output("added", IndexAdd(table, ids, x, 0))
			b.Output("along", TakeAlong(table, Argsort(table, 0, Descending()), 0))
			b.Output("arg", ArgMin(table, 0))
			b.Output("sums", Cumsum(table, 0, FromEnd()))
			return nil
		}},
		{"regions", nil, func(b *Builder) error {
			x := b.Input("x", T(F32, 8, 4))
			w := b.Input("w", T(F32, 4, 4))
			carry, ys := b.Scan([]*Value{b.Zeros(T(F32, 4))}, []*Value{x}, func(c, r []*Value) (next, ys []*Value) {
				h := b.Checkpoint(SaveNames("h").And(OffloadNames("g")).And(SaveDots()), func() []*Value {
					h := Name(Sin(MatMul(ExpandDims(r[0], 0), w)), "h")
					return []*Value{Reshape(h, 4)}
				})[0]
				return []*Value{Add(c[0], h)}, []*Value{h, c[0]}
			}, InReverse())
			loss := Sum(ys[0])
			picked := b.Cond(Greater(loss, Sum(carry[0])), func() []*Value { return []*Value{Neg(loss)} }, func() []*Value { return []*Value{loss} })
			n := b.While([]*Value{b.Int(S32, 0)}, func(c []*Value) *Value { return Less(Convert(c[0], F32), picked[0]) },
				func(c []*Value) []*Value { return []*Value{Add(c[0], b.Int(S32, 1))} })
			sq := CustomVJP([]*Value{picked[0]}, func(a []*Value) (outs, res []*Value) { return []*Value{Mul(a[0], a[0])}, a },
				func(res, cts []*Value) []*Value { return []*Value{Mul(cts[0], res[0])} })
			b.Output("sq", sq[0])
			b.Output("n", n[0])
			b.Output("gw", Grad(sq[0], w)[0])
			return nil
		}},
		{"manual", two, func(b *Builder) error {
			x := b.Input("x", T(F32, 8, 4), Sharded(sharding.P("dp")))
			w := b.Input("w", T(F32, 4, 4), Sharded(sharding.P("dp", "tp")))
			g := Constrain(w, sharding.P(nil, "tp"), Cotangent(sharding.P("dp", "tp")), GradIn(F64))
			y := b.ShardMap([]*Value{x, g}, []sharding.Spec{sharding.P("dp"), sharding.P(nil, "tp")}, []sharding.Spec{sharding.P("dp", "tp"), sharding.P()}, func(l []*Value) []*Value {
				y := Mul(MatMul(l[0], l[1]), Convert(b.AxisIndex("tp"), F32))
				y = Shift(AllToAll(AllGather(y, 1, "tp"), 1, 1, "tp"), 1, "tp")
				return []*Value{y, AllReduceMax(ReduceMax(ReduceScatter(AllGatherSame(y, 0, "dp"), 0, "dp")), "dp", "tp")}
			})
			b.Output("y", Add(y[0], y[1]))
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Trace(c.name, c.mesh, c.f)
			require.NoError(t, err)
			got := m.String()
			file := filepath.Join("testdata", "dump", c.name+".txt")
			if *updateDumps {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "run with -update-dumps if this is meant")
			again, err := Trace(c.name, c.mesh, c.f)
			require.NoError(t, err)
			require.Equal(t, got, again.String())
		})
	}
}

func TestDumpHasLines(t *testing.T) {
	var line int
	m, err := Trace("lines", nil, func(b *Builder) error {
		x := b.Input("x", T(F32, 2))
		ys, _ := b.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) {
			_, _, line, _ = runtime.Caller(0)
			return []*Value{Sin(c[0])}, nil // line + 1
		}, Iterations(3))
		b.Output("y", ys[0])
		return nil
	})
	require.NoError(t, err)
	var sin string
	for s := range strings.Lines(m.Dump()) {
		if strings.Contains(s, "= sin ") {
			sin = strings.TrimSpace(s)
		}
	}
	require.Equal(t, fmt.Sprintf("%%3 f32[2] = sin %%2  // graph/dump_test.go:%d", line+1), sin)
}

// TestDumpOfBrokenProgram: a dump is what one reads when a pass went wrong.
func TestDumpOfBrokenProgram(t *testing.T) {
	m := everything(t)
	scan, cond, add, dot, manual := find(m, opScan, 0), find(m, opCond, 0), find(m, opAdd, 0), find(m, opDot, 0), find(m, opShardMap, 0)
	scan.blocks[0].yields[0] = nil
	cond.blocks[1] = nil
	add.operands = []*Value{nil}
	dot.results[0], dot.kind = nil, numKinds
	manual.operands, manual.attr = nil, nil
	s := m.Dump()
	require.Contains(t, s, "%undefined")
	require.Contains(t, s, "op of unknown kind")
	require.Contains(t, s, "no region")
}
