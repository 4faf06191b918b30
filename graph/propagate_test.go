package graph

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/sharding"
)

func TestReshapeFactors(t *testing.T) {
	for _, c := range []struct {
		in, out []int
		want    string // sizes, dimensions of the operand, of the result
	}{
		{[]int{6, 4}, []int{2, 12}, "[2 3 4] [[0 1] [2]] [[0] [1 2]]"},
		{[]int{8, 16}, []int{128}, "[8 16] [[0] [1]] [[0 1]]"},
		{[]int{128}, []int{8, 16}, "[8 16] [[0 1]] [[0] [1]]"},
		{[]int{4, 1, 6}, []int{4, 6, 1}, "[4 6] [[0] [] [1]] [[0] [1] []]"},
		{[]int{2, 3, 8}, []int{3, 2, 8}, "[8] [[] [] [0]] [[] [] [0]]"},
		{[]int{4, 6}, []int{6, 4}, "[2] [[0] []] [[0] []]"},
		{[]int{0, 3}, []int{3, 0}, "[] [[] []] [[] []]"},
		{nil, []int{1, 1}, "[] [] [[] []]"},
	} {
		r := &rule{maps: [][][]int{make([][]int, len(c.in)), make([][]int, len(c.out))}}
		r.reshape(c.in, c.out)
		require.Equal(t, c.want, fmt.Sprint(r.sizes, r.maps[0], r.maps[1]), "%v → %v", c.in, c.out)
	}
}

func newMesh(t *testing.T, axes ...mesh.Axis) *mesh.Mesh {
	m, err := mesh.New(axes, nil)
	require.NoError(t, err)
	return m
}

// splitOf gives a value's layout as a spec, for reading.
func (p *layouts) splitOf(v *Value) string {
	var dims []any
	for _, d := range p.get(v).dims {
		var names []string
		for _, a := range d {
			names = append(names, p.m.axes[a])
		}
		dims = append(dims, names)
	}
	return sharding.P(dims...).String()
}

// TestPropagation: each program marks values with Name; the split that
// propagation gives them is compared.
func TestPropagation(t *testing.T) {
	ms := newMesh(t, mesh.Axis{Name: "dp", Size: 2}, mesh.Axis{Name: "tp", Size: 4}, mesh.Axis{Name: "one", Size: 1})
	in := func(b *Builder, name string, s sharding.Spec, shape ...int) *Value {
		return b.Input(name, T(F32, shape...), Sharded(s))
	}
	free := func(b *Builder, name string, shape ...int) *Value { return b.Input(name, T(F32, shape...)) }
	P := sharding.P
	for _, c := range []struct {
		name string
		f    func(b *Builder) []*Value
		want []string
	}{
		{"elementwise both ways", func(b *Builder) []*Value {
			x, y := in(b, "x", P("dp", nil), 8, 8), free(b, "y", 8, 8)
			z := Add(x, Exp(y))
			return []*Value{y, z, Constrain(Neg(z), P("dp", "tp"))}
		}, []string{`P("dp", "tp")`, `P("dp", "tp")`, `P("dp", "tp")`}},
		{"axes of size one split nothing", func(b *Builder) []*Value {
			return []*Value{Neg(in(b, "x", P(nil, []string{"one", "dp"}), 8, 8))}
		}, []string{`P(nil, "dp")`}},
		{"a constraint stops", func(b *Builder) []*Value {
			x := in(b, "x", P("dp"), 8)
			y := Constrain(Exp(x), P(nil))
			return []*Value{y.op.operands[0], y, Neg(y)}
		}, []string{`P("dp")`, `P(nil)`, `P(nil)`}},
		{"an open constraint does not", func(b *Builder) []*Value {
			y := Constrain(in(b, "x", P("dp", "tp"), 8, 8), P(sharding.Any, nil))
			return []*Value{y}
		}, []string{`P("dp", nil)`}},
		{"transpose and reshape", func(b *Builder) []*Value {
			x := in(b, "x", P("dp", "tp"), 2, 8)
			y := Transpose(x, 1, 0)
			return []*Value{y, Reshape(y, 16), Reshape(x, 16), Reshape(x, 2, 4, 2), Reshape(x, 2, 2, 4)}
		}, []string{`P("tp", "dp")`, `P("tp")`, `P(("dp", "tp"))`, `P("dp", "tp", nil)`, `P("dp", nil, nil)`}},
		{"reshape backward", func(b *Builder) []*Value {
			x := free(b, "x", 16)
			return []*Value{x, Constrain(Reshape(x, 2, 8), P("dp", "tp"))}
		}, []string{`P(("dp", "tp"))`}},
		{"dot", func(b *Builder) []*Value {
			x, w := in(b, "x", P("dp", nil), 8, 16), in(b, "w", P(nil, "tp"), 16, 8)
			h := Einsum("bi,io->bo", x, w)
			v := in(b, "v", P("tp", nil), 8, 16)
			return []*Value{h, Einsum("bo,oi->bi", h, v)}
		}, []string{`P("dp", "tp")`, `P("dp", nil)`}},
		{"contracted dimensions agree", func(b *Builder) []*Value {
			x, w := free(b, "x", 8, 16), in(b, "w", P("tp", nil), 16, 8)
			return []*Value{x, Einsum("bi,io->bo", x, w)}
		}, []string{`P(nil, "tp")`}},
		{"batch dimensions", func(b *Builder) []*Value {
			q, k := in(b, "q", P("dp", nil, "tp"), 4, 6, 8, 2), free(b, "k", 4, 6, 8, 2)
			return []*Value{Einsum("bqhd,bkhd->bhqk", q, k), k}
		}, []string{`P("dp", "tp", nil, nil)`, `P("dp", nil, "tp", nil)`}},
		{"the larger value wins", func(b *Builder) []*Value {
			x, w := in(b, "x", P("dp"), 64, 8), in(b, "w", P(nil, "dp"), 8, 16)
			return []*Value{Einsum("bi,io->bo", x, w)}
		}, []string{`P("dp", nil)`}},
		{"reduce and back", func(b *Builder) []*Value {
			x := in(b, "x", P("dp", "tp"), 8, 8)
			s := Sum(x, 1)
			return []*Value{s, BroadcastTo(ExpandDims(s, 1), 8, 8)}
		}, []string{`P("dp")`, `P("dp", nil)`}},
		{"a small value does not split a large one", func(b *Builder) []*Value {
			x, scale := in(b, "x", P("dp", nil), 8, 64), in(b, "scale", P("dp"), 64)
			y := Mul(Exp(x), scale)
			return []*Value{y, y.op.operands[1]}
		}, []string{`P("dp", nil)`, `P("dp", nil)`}},
		{"slice, pad and concatenate", func(b *Builder) []*Value {
			x := in(b, "x", P("dp", "tp"), 8, 8)
			return []*Value{SliceDim(x, 0, 0, 4), Pad(x, b.Scalar(F32, 0), []int{0, 1}, nil, nil), Concat(0, x, x), Reverse(x, 0)}
		}, []string{`P(nil, "tp")`, `P("dp", nil)`, `P(nil, "tp")`, `P(nil, "tp")`}},
		{"dynamic slices", func(b *Builder) []*Value {
			x := in(b, "x", P("dp", "tp"), 8, 8)
			i := b.Int(S32, 0)
			u := free(b, "u", 1, 8)
			return []*Value{DynamicSliceDim(x, 0, i, 2), DynamicUpdateSliceDim(x, u, 0, i), u}
		}, []string{`P(nil, "tp")`, `P("dp", "tp")`, `P(nil, "tp")`}},
		{"embedding", func(b *Builder) []*Value {
			table := in(b, "table", P("tp", nil), 16, 8)
			ids := b.Input("ids", T(S32, 4, 6), Sharded(P("dp")))
			return []*Value{Embedding(table, ids)}
		}, []string{`P("dp", nil, nil)`}},
		{"scan", func(b *Builder) []*Value {
			w := in(b, "w", P(nil, nil, "tp"), 3, 8, 8)
			var row *Value
			c, ys := b.Scan([]*Value{in(b, "x", P("dp"), 4, 8)}, []*Value{w}, func(c, r []*Value) (next, ys []*Value) {
				row = r[0]
				h := MatMul(c[0], r[0])
				return []*Value{Constrain(Neg(h), P("dp", nil))}, []*Value{h}
			})
			return []*Value{row, c[0], ys[0]}
		}, []string{`P(nil, "tp")`, `P("dp", nil)`, `P(nil, "dp", "tp")`}},
		{"scan backward", func(b *Builder) []*Value {
			w := free(b, "w", 3, 8, 8)
			_, ys := b.Scan(nil, []*Value{w}, func(_, r []*Value) (next, ys []*Value) {
				return nil, []*Value{Constrain(Exp(r[0]), P("tp"))}
			})
			return []*Value{w, ys[0]}
		}, []string{`P(nil, "tp", nil)`}},
		{"cond, while, checkpoint", func(b *Builder) []*Value {
			x := in(b, "x", P("dp"), 8)
			p := b.Input("p", T(Bool))
			y := b.Cond(p, func() []*Value { return []*Value{Exp(x)} }, func() []*Value { return []*Value{x} })[0]
			z := b.While([]*Value{y}, func(c []*Value) *Value { return Less(Sum(c[0]), b.Scalar(F32, 1)) }, func(c []*Value) []*Value { return []*Value{Neg(c[0])} })[0]
			return []*Value{y, z, b.Checkpoint(SaveNothing(), func() []*Value { return []*Value{Sin(z)} })[0]}
		}, []string{`P("dp")`, `P("dp")`, `P("dp")`}},
		{"manual region", func(b *Builder) []*Value {
			x := free(b, "x", 8, 8)
			y := b.ShardMap([]*Value{x}, []sharding.Spec{P("dp")}, []sharding.Spec{P(nil, "dp")}, func(l []*Value) []*Value { return []*Value{Transpose(l[0], 1, 0)} }, ManualOver("dp", "one"))[0]
			return []*Value{x, y, Constrain(Neg(y), P("tp", "dp"))}
		}, []string{`P("dp", "tp")`, `P("tp", "dp")`, `P("tp", "dp")`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var vs []*Value
			m, err := Trace("p", ms, func(b *Builder) error {
				vs = c.f(b)
				for i, v := range vs {
					if v.block == b.m.main {
						b.Output(fmt.Sprint(i), v)
					}
				}
				return nil
			})
			require.NoError(t, err)
			p := newLayouts(m)
			var got []string
			vs = vs[:len(c.want)] // the others only had to stay in the program
			for _, v := range vs {
				got = append(got, p.splitOf(v))
			}
			require.Equal(t, c.want, got)
			require.Equal(t, got, func() (again []string) {
				for _, v := range vs {
					again = append(again, newLayouts(m).splitOf(v))
				}
				return again
			}(), "the same every time")
		})
	}
}
