package sharding

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

// source is where random cases come from: a generator or a fuzzer's bytes.
type source interface{ IntN(n int) int }

// bytesSource reads choices from a fuzzer's input, zeros after its end.
type bytesSource struct{ data []byte }

func (b *bytesSource) IntN(n int) int {
	if len(b.data) == 0 {
		return 0
	}
	v := int(b.data[0])
	b.data = b.data[1:]
	return v % n
}

// randomMesh has up to four axes and 36 positions.
func randomMesh(t testing.TB, r source) *mesh.Mesh {
	var axes []mesh.Axis
	size := 1
	for i := range 1 + r.IntN(4) {
		n := 1 + r.IntN(4)
		if size*n > 36 {
			n = 1
		}
		size *= n
		axes = append(axes, mesh.Axis{Name: string(rune('a' + i)), Size: n})
	}
	return newMesh(t, axes...)
}

// randomSpec splits dimensions of an array of the given rank over axes of m.
func randomSpec(m *mesh.Mesh, r source, rank int) Spec {
	s := Replicated(rank)
	axes := m.Axes()
	for i := len(axes) - 1; i > 0; i-- {
		j := r.IntN(i + 1)
		axes[i], axes[j] = axes[j], axes[i]
	}
	for _, a := range axes {
		if rank > 0 && r.IntN(4) > 0 {
			d := r.IntN(rank)
			s.Dims[d] = append(s.Dims[d], a.Name)
		}
	}
	return s
}

// randomShape divides over all specs given and has at most a few thousand
// elements.
func randomShape(r source, rank int, layouts ...struct {
	m *mesh.Mesh
	s Spec
}) []int {
	shape := make([]int, rank)
	for d := range shape {
		shape[d] = 1
		for _, l := range layouts {
			n := 1
			for _, a := range l.s.Dim(d) {
				n *= l.m.AxisSize(a)
			}
			shape[d] = lcm(shape[d], n)
		}
		if product(shape[:d+1]) < 500 {
			shape[d] *= 1 + r.IntN(3)
		}
		if r.IntN(40) == 1 {
			shape[d] = 0
		}
	}
	return shape
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

func product(xs []int) int {
	n := 1
	for _, x := range xs {
		n *= x
	}
	return n
}

// numbered returns an array whose elements all differ.
func numbered(elements, elemSize int) []byte {
	data := make([]byte, elements*elemSize)
	for i := range data {
		data[i] = byte(i/elemSize*31 + i/elemSize>>8*7 + i%elemSize*101)
	}
	return data
}

// cut takes a region of an array element by element: the plain meaning of what
// the fast copies do.
func cut(data []byte, shape []int, r Region, elemSize int) []byte {
	out := make([]byte, 0, r.Elements()*elemSize)
	for i := range r.Elements() {
		at, stride, rest := 0, 1, i
		for d := len(shape) - 1; d >= 0; d-- {
			at += (r.Offset[d] + rest%r.Size[d]) * stride
			stride *= shape[d]
			rest /= r.Size[d]
		}
		out = append(out, data[at*elemSize:(at+1)*elemSize]...)
	}
	return out
}

type split = struct {
	m *mesh.Mesh
	s Spec
}

// checkSplit draws a case and checks Split, Join and the numbering of shards.
func checkSplit(t testing.TB, r source) {
	m := randomMesh(t, r)
	rank := r.IntN(7)
	spec := randomSpec(m, r, rank)
	shape := randomShape(r, rank, split{m, spec})
	elemSize := []int{1, 2, 4, 8, 16, 3}[r.IntN(6)]
	what := fmt.Sprintf("%v of %v over %v, %d bytes an element", spec, shape, m, elemSize)

	data := numbered(product(shape), elemSize)
	shards, err := Split(data, elemSize, shape, spec, m)
	require.NoError(t, err, what)
	require.Len(t, shards, m.Size())
	l, err := NewLayout(m, spec, shape)
	require.NoError(t, err)
	require.Equal(t, m.Size(), l.Shards()*l.Replicas())
	for p, s := range shards {
		require.Equal(t, cut(data, shape, l.Region(p), elemSize), s, "%s, position %d", what, p)
		holders := l.Holders(l.Shard(p))
		require.Len(t, holders, l.Replicas())
		require.True(t, slices.IsSorted(holders))
		require.Equal(t, p, holders[l.Replica(p)])
	}
	back, err := Join(shards, elemSize, shape, spec, m)
	require.NoError(t, err, what)
	require.Equal(t, data, back, what)

	// One replica of each shard is enough.
	for p := range shards {
		if l.Replica(p) != 0 {
			shards[p] = nil
		}
	}
	back, err = l.Join(shards, elemSize)
	require.NoError(t, err, what)
	require.Equal(t, data, back, what)
}

func TestSplitJoin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		checkSplit(t, r)
	}
}

func FuzzSplitJoin(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 1, 2, 1, 1, 5, 1, 2, 3, 0, 1, 2, 3, 1, 1, 0, 2, 2, 1, 4})
	f.Fuzz(func(t *testing.T, data []byte) { checkSplit(t, &bytesSource{data}) })
}

func TestSplitExample(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 2}, mesh.Axis{Name: "tp", Size: 2})
	shards, err := Split([]byte{0, 1, 2, 3, 4, 5, 6, 7}, 1, []int{2, 4}, P(nil, "dp"), m)
	require.NoError(t, err)
	require.Equal(t, [][]byte{{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}, {2, 3, 6, 7}}, shards)
	shards, err = Split([]byte{9, 8}, 2, nil, P(), m)
	require.NoError(t, err)
	require.Equal(t, [][]byte{{9, 8}, {9, 8}, {9, 8}, {9, 8}}, shards)
}

func TestSplitDoesNotShareMemory(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 2})
	data := []byte{1, 2, 3, 4}
	whole, err := Split(data, 1, []int{4}, P(), m)
	require.NoError(t, err)
	parts, err := Split(data, 1, []int{4}, P("dp"), m)
	require.NoError(t, err)
	clear(data)
	require.Equal(t, [][]byte{{1, 2, 3, 4}, {1, 2, 3, 4}}, whole)
	require.Equal(t, [][]byte{{1, 2}, {3, 4}}, parts)
}

func TestSplitRefuses(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 2})
	_, err := Split(make([]byte, 7), 2, []int{4}, P("dp"), m)
	require.ErrorContains(t, err, "7 bytes")
	require.ErrorContains(t, err, "has 8 bytes")
	_, err = Split(make([]byte, 8), 2, []int{3}, P("dp"), m)
	require.ErrorContains(t, err, "does not divide")
	_, err = Split(nil, 0, []int{4}, P("dp"), m)
	require.ErrorContains(t, err, "0 bytes")
	_, err = Join(nil, 2, []int{3}, P("dp"), m)
	require.ErrorContains(t, err, "does not divide")
	_, err = Join([][]byte{nil}, 2, []int{4}, P("dp"), m)
	require.ErrorContains(t, err, "1 shards")
	require.ErrorContains(t, err, "2 positions")
	_, err = Join([][]byte{make([]byte, 4), make([]byte, 3)}, 2, []int{4}, P("dp"), m)
	require.ErrorContains(t, err, "position 1 has 3 bytes; one of shape [2] has 4")
	_, err = Join([][]byte{make([]byte, 4), nil}, 2, []int{4}, P("dp"), m)
	require.ErrorContains(t, err, "region [2:4]")
	require.ErrorContains(t, err, "positions [1]")
	_, err = Join([][]byte{nil, nil}, 0, []int{4}, P("dp"), m)
	require.Error(t, err)
	l, err := NewLayout(m, P("dp"), []int{4})
	require.NoError(t, err)
	_, err = l.Split(make([]byte, 4), 1, []int{0, 2})
	require.ErrorContains(t, err, "no position 2")
	_, err = l.Join([][]byte{nil, nil}, 99)
	require.Error(t, err)
	empty, err := Join([][]byte{nil, nil}, 4, []int{0, 3}, P("dp"), m)
	require.NoError(t, err)
	require.Empty(t, empty)
}

func TestCheckReplicas(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 2}, mesh.Axis{Name: "tp", Size: 2})
	l, err := NewLayout(m, P(nil, "tp"), []int{2, 4})
	require.NoError(t, err)
	shards, err := l.Split(numbered(8, 2), 2, nil)
	require.NoError(t, err)
	require.NoError(t, l.CheckReplicas(shards, 2))
	other := slices.Clone(shards[3])
	other[5]++ // element 2 of a 2×2 shard at column 2: global [1, 2]
	shards[3] = other
	err = l.CheckReplicas(shards, 2)
	require.ErrorContains(t, err, "positions 1 and 3")
	require.ErrorContains(t, err, "[0:2, 2:4]")
	require.ErrorContains(t, err, "element [1 2]")
	_, err = Join(shards, 2, []int{2, 4}, P(nil, "tp"), m)
	require.ErrorContains(t, err, "positions 1 and 3")
	shards[1] = nil
	require.NoError(t, l.CheckReplicas(shards, 2))
	require.Error(t, l.CheckReplicas(shards[1:], 2))
}

// A host makes its own shards and never sees the rest of the array.
func TestRead(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	shape := []int{8, 6}
	l, err := NewLayout(m, P("dp"), shape)
	require.NoError(t, err)
	data := numbered(48, 4)
	var asked []Region
	shards, err := l.Read([]int{5, 2, 4}, 4, func(r Region, dst []byte) error {
		asked = append(asked, r)
		copy(dst, cut(data, shape, r, 4))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []Region{
		{Offset: []int{4, 0}, Size: []int{2, 6}},
		{Offset: []int{2, 0}, Size: []int{2, 6}},
	}, asked, "positions 4 and 5 hold the same shard")
	for i, p := range []int{5, 2, 4} {
		require.Equal(t, cut(data, shape, l.Region(p), 4), shards[i])
	}
	cause := errors.New("disk full")
	_, err = l.Read(nil, 4, func(r Region, _ []byte) error {
		if r.Offset[0] == 4 {
			return cause
		}
		return nil
	})
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "[4:6, 0:6]")
	_, err = l.Read(nil, 0, nil)
	require.Error(t, err)
	none, err := l.Read([]int{}, 4, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestSplitLarge(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	shape := []int{64, 512, 64} // 8 MiB in f32: several goroutines
	data := numbered(product(shape), 4)
	for _, spec := range []Spec{P("dp", "tp"), P(nil, nil, []string{"tp", "dp"}), P()} {
		shards, err := Split(data, 4, shape, spec, m)
		require.NoError(t, err)
		back, err := Join(shards, 4, shape, spec, m)
		require.NoError(t, err)
		require.True(t, slices.Equal(data, back), "%v", spec)
	}
	l, err := NewLayout(m, P("dp", "tp"), shape)
	require.NoError(t, err)
	cause := errors.New("no")
	_, err = l.make(nil, 4, 4, func(Region, []byte) error { return cause })
	require.ErrorIs(t, err, cause)
}

func TestLayout(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 2}, mesh.Axis{Name: "tp", Size: 3})
	l, err := NewLayout(m, P(nil, "tp"), []int{4, 6})
	require.NoError(t, err)
	require.Equal(t, []int{4, 6}, l.Shape())
	require.Equal(t, []int{4, 2}, l.Local())
	require.Equal(t, 3, l.Shards())
	require.Equal(t, 2, l.Replicas())
	require.Equal(t, []int{1, 4}, l.Holders(1))
	require.Same(t, m, l.Mesh())
	require.Equal(t, `P(nil, "tp")`, l.Spec().String())
	for _, p := range []int{-1, 6} {
		require.Equal(t, -1, l.Shard(p))
		require.Equal(t, -1, l.Replica(p))
		require.Equal(t, Region{}, l.Region(p))
	}
	for _, n := range []int{-1, 3} {
		require.Nil(t, l.Holders(n))
		require.Equal(t, Region{}, l.ShardRegion(n))
	}
	l.Shape()[0] = 99
	l.Local()[0] = 99
	require.Equal(t, []int{4, 6}, l.Shape())
	require.Equal(t, []int{4, 2}, l.Local())
	_, err = Slices(m, []int{4}, P("tp"))
	require.Error(t, err)
}
