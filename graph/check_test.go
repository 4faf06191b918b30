package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	. "titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// long is set for the sweeps that take minutes: TITAN_LONG=1.
var long = os.Getenv("TITAN_LONG") != ""

// array is a whole (global) array; elements of every type are held as float64.
type array struct {
	Type
	data []float64
}

// arr makes an array of the given elements.
func arr(t Type, xs ...float64) array {
	if len(xs) != t.Elements() {
		panic(fmt.Sprintf("%d elements for %v", len(xs), t))
	}
	return array{t, xs}
}

// normal is a float64 array of standard normal numbers that depend on seed only.
func normal(seed uint64, shape ...int) array {
	r := rand.New(rand.NewPCG(seed, 1))
	a := array{T(F64, shape...), nil}
	for range a.Elements() {
		a.data = append(a.data, r.NormFloat64())
	}
	return a
}

// uniform is a float64 array of numbers in [lo, hi).
func uniform(seed uint64, lo, hi float64, shape ...int) array {
	r := rand.New(rand.NewPCG(seed, 2))
	a := array{T(F64, shape...), nil}
	for range a.Elements() {
		a.data = append(a.data, lo+(hi-lo)*r.Float64())
	}
	return a
}

// as gives a's elements another type, rounded to it.
func (a array) as(d DType) array {
	return decode(Type{DType: d, Shape: a.Shape}, a.encode(d))
}

// encode gives the elements as bytes of type d.
func (a array) encode(d DType) []byte {
	var out []byte
	for _, x := range a.data {
		out = dtype.AppendFloat(out, d, x)
	}
	return out
}

func decode(t Type, raw []byte) array {
	a := array{t, make([]float64, t.Elements())}
	for i := range a.data {
		a.data[i] = dtype.Float(t.DType, raw, i)
	}
	return a
}

func newMesh(t testing.TB, axes ...mesh.Axis) *mesh.Mesh {
	t.Helper()
	m, err := mesh.New(axes, nil)
	require.NoError(t, err)
	return m
}

func axis(name string, size int) mesh.Axis { return mesh.Axis{Name: name, Size: size} }

// program is a traced program, compiled for as many devices as its mesh has.
type program struct {
	*Module
	exe *pjrt.LoadedExecutable
	n   int
}

// trace records f, which must not fail.
func trace(t testing.TB, m *mesh.Mesh, f func(b *Builder)) *Module {
	t.Helper()
	mod, err := Trace("test", m, func(b *Builder) error { f(b); return nil })
	require.NoError(t, err)
	return mod
}

// traceError records f, which must fail, and returns the message.
func traceError(t testing.TB, m *mesh.Mesh, f func(b *Builder)) string {
	t.Helper()
	_, err := Trace("test", m, func(b *Builder) error { f(b); return nil })
	require.Error(t, err)
	return err.Error()
}

func compile(t testing.TB, m *Module) *program {
	t.Helper()
	n := 1
	if m.Mesh() != nil {
		n = m.Mesh().Size()
	}
	return &program{m, xlatest.Compile(t, xlatest.CPU(t), m.StableHLO(), n), n}
}

// run compiles m and runs it on whole arrays, which are split and joined as the
// program's shardings say.
func run(t testing.TB, m *Module, inputs ...array) []array {
	t.Helper()
	return compile(t, m).run(t, inputs...)
}

func (p *program) run(t testing.TB, inputs ...array) []array {
	t.Helper()
	require.Len(t, inputs, len(p.Inputs()))
	args := make([][]xlatest.Array, p.n)
	for i, in := range p.Inputs() {
		require.True(t, in.Type.Equal(inputs[i].Type), "input %d is %v, got %v", i, in.Type, inputs[i].Type)
		for d, part := range split(t, p.Mesh(), in.Spec, inputs[i]) {
			args[d] = append(args[d], part)
		}
	}
	outs := xlatest.RunExecutable(t, p.exe, args)
	res := make([]array, len(p.Outputs()))
	for k, out := range p.Outputs() {
		parts := make([]xlatest.Array, p.n)
		for d := range parts {
			parts[d] = outs[d][k]
		}
		res[k] = join(t, p.Mesh(), out.Spec, out.Type, parts)
	}
	return res
}

// each calls f for every index of an array of the given shape, in order.
func each(shape []int, f func(ix []int)) {
	ix := make([]int, len(shape))
	for range T(F32, shape...).Elements() {
		f(ix)
		for i := len(ix) - 1; i >= 0; i-- {
			if ix[i]++; ix[i] < shape[i] {
				break
			}
			ix[i] = 0
		}
	}
}

// layout is how a port's array lies on the devices; without a spec, or without
// a mesh, every device holds all of it.
func layout(t testing.TB, m *mesh.Mesh, spec *sharding.Spec, shape []int) *sharding.Layout {
	t.Helper()
	if spec == nil {
		spec = &sharding.Spec{}
	}
	if m == nil {
		m = newMesh(t, axis("one", 1))
	}
	l, err := sharding.NewLayout(m, *spec, shape)
	require.NoError(t, err)
	return l
}

func split(t testing.TB, m *mesh.Mesh, spec *sharding.Spec, a array) (parts []xlatest.Array) {
	t.Helper()
	l := layout(t, m, spec, a.Shape)
	shards, err := l.Split(a.encode(a.DType), a.DType.Size(), nil)
	require.NoError(t, err)
	for _, s := range shards {
		parts = append(parts, xlatest.Array{DType: a.DType, Dims: l.Local(), Data: s})
	}
	return parts
}

// join puts the devices' parts together; copies must be equal bit for bit.
func join(t testing.TB, m *mesh.Mesh, spec *sharding.Spec, typ Type, parts []xlatest.Array) array {
	t.Helper()
	l := layout(t, m, spec, typ.Shape)
	var shards [][]byte
	for d, p := range parts {
		require.Equal(t, typ.DType, p.DType)
		require.True(t, slices.Equal(l.Local(), p.Dims), "device %d holds %v, not %v", d, p.Dims, l.Local())
		shards = append(shards, p.Data)
	}
	require.NoError(t, l.CheckReplicas(shards, typ.DType.Size()))
	raw, err := l.Join(shards, typ.DType.Size())
	require.NoError(t, err)
	return decode(typ, raw)
}

// differ compares element by element, relative to the larger of 1 and the
// largest element, and says what differs.
func differ(want, got array, tol float64) error {
	if !want.Type.Equal(got.Type) {
		return fmt.Errorf("it is %v, not %v", got.Type, want.Type)
	}
	scale := 1.0
	for _, x := range want.data {
		if !math.IsInf(x, 0) && !math.IsNaN(x) {
			scale = max(scale, math.Abs(x))
		}
	}
	for i, x := range want.data {
		y := got.data[i]
		if math.IsNaN(x) && math.IsNaN(y) || x == y {
			continue
		}
		if !(math.Abs(x-y) <= tol*scale) {
			return fmt.Errorf("element %d of %v is %v, want %v (tolerance %v)", i, got.Type, y, x, tol*scale)
		}
	}
	return nil
}
