package sharding

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

// checkReshard draws two layouts of one array and makes the shards of the
// second from those of the first.
func checkReshard(t testing.TB, r source) {
	rank := r.IntN(7)
	var sides [2]split
	for i := range sides {
		m := randomMesh(t, r)
		sides[i] = split{m, randomSpec(m, r, rank)}
	}
	shape := randomShape(r, rank, sides[:]...)
	elemSize := []int{1, 2, 4, 8, 16, 3}[r.IntN(6)]
	from, err := NewLayout(sides[0].m, sides[0].s, shape)
	require.NoError(t, err)
	to, err := NewLayout(sides[1].m, sides[1].s, shape)
	require.NoError(t, err)
	plan, err := Reshard(from, to)
	require.NoError(t, err)

	data := numbered(product(shape), elemSize)
	sources, err := from.Split(data, elemSize, nil)
	require.NoError(t, err)
	wanted, err := to.Split(data, elemSize, nil)
	require.NoError(t, err)
	for p := range wanted {
		covered := 0
		got, err := plan.Assemble(p, elemSize, func(piece Piece, dst []byte) error {
			covered += piece.Region.Elements()
			src := from.ShardRegion(piece.Shard)
			common, ok := src.Intersect(piece.Region)
			require.True(t, ok)
			require.Equal(t, piece.Region, common, "a piece lies in its source shard")
			holder := sources[from.Holders(piece.Shard)[0]]
			return CopyRegion(dst, piece.Region, holder, src, elemSize)
		})
		require.NoError(t, err)
		require.Equal(t, wanted[p], got, "%v over %v to %v over %v of %v, position %d",
			from.spec, from.mesh, to.spec, to.mesh, shape, p)
		require.Equal(t, to.Region(p).Elements(), covered, "no element is read twice")

		// The same by copying between shards in place.
		direct := make([]byte, len(got))
		for _, piece := range plan.Pieces(p) {
			require.NoError(t, CopyRegion(direct, to.Region(p), sources[from.Holders(piece.Shard)[0]], from.ShardRegion(piece.Shard), elemSize))
		}
		require.Equal(t, got, direct)
	}
}

func TestReshard(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 1000 {
		checkReshard(t, r)
	}
}

func FuzzReshard(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{4, 1, 2, 3, 1, 2, 1, 3, 3, 1, 2, 0, 1, 3, 2, 1, 1, 2, 3, 5, 2, 1, 0, 1, 2, 2, 1})
	f.Fuzz(func(t *testing.T, data []byte) { checkReshard(t, &bytesSource{data}) })
}

func TestReshardPieces(t *testing.T) {
	three := newMesh(t, mesh.Axis{Name: "dp", Size: 3})
	four := newMesh(t, mesh.Axis{Name: "dp", Size: 4})
	from, err := NewLayout(three, P("dp"), []int{12, 2})
	require.NoError(t, err)
	to, err := NewLayout(four, P("dp"), []int{12, 2})
	require.NoError(t, err)
	plan, err := Reshard(from, to)
	require.NoError(t, err)
	require.Equal(t, []Piece{
		{Shard: 0, Region: Region{Offset: []int{3, 0}, Size: []int{1, 2}}},
		{Shard: 1, Region: Region{Offset: []int{4, 0}, Size: []int{2, 2}}},
	}, plan.Pieces(1))
	require.Nil(t, plan.Pieces(4))
	require.Nil(t, plan.Pieces(-1))
}

func TestReshardRefuses(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 2})
	a, err := NewLayout(m, P("dp"), []int{4})
	require.NoError(t, err)
	b, err := NewLayout(m, P("dp"), []int{4, 1})
	require.NoError(t, err)
	_, err = Reshard(a, b)
	require.ErrorContains(t, err, "[4]")
	require.ErrorContains(t, err, "[4 1]")
	_, err = Reshard(nil, b)
	require.Error(t, err)
	plan, err := Reshard(a, a)
	require.NoError(t, err)
	_, err = plan.Assemble(0, 0, nil)
	require.Error(t, err)
	_, err = plan.Assemble(2, 1, nil)
	require.ErrorContains(t, err, "no position 2")
	cause := errors.New("gone")
	_, err = plan.Assemble(1, 1, func(Piece, []byte) error { return cause })
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "[2:4]")
	require.ErrorContains(t, err, "source shard 1")
}

func TestRegion(t *testing.T) {
	a := Region{Offset: []int{0, 2}, Size: []int{4, 4}}
	require.Equal(t, "[0:4, 2:6]", a.String())
	require.Equal(t, "[]", Whole(nil).String())
	require.Equal(t, 1, Whole(nil).Elements())
	_, ok := a.Intersect(Region{Offset: []int{4, 0}, Size: []int{1, 9}})
	require.False(t, ok, "touching is not overlapping")
	_, ok = a.Intersect(Whole([]int{4}))
	require.False(t, ok)
	c, ok := a.Intersect(Region{Offset: []int{3, 0}, Size: []int{9, 3}})
	require.True(t, ok)
	require.Equal(t, Region{Offset: []int{3, 2}, Size: []int{1, 1}}, c)
}

func TestCopyRegionRefuses(t *testing.T) {
	four := Whole([]int{4})
	buf := make([]byte, 4)
	require.NoError(t, CopyRegion(buf, four, []byte{1, 2, 3, 4}, four, 1))
	require.Equal(t, []byte{1, 2, 3, 4}, buf)
	require.NoError(t, CopyRegion(buf, four, []byte{9}, Region{Offset: []int{4}, Size: []int{1}}, 1))
	require.Equal(t, []byte{1, 2, 3, 4}, buf, "nothing in common")
	require.ErrorContains(t, CopyRegion(buf, four, buf, four, 0), "0 bytes")
	require.ErrorContains(t, CopyRegion(buf[1:], four, buf, four, 1), "destination buffer has 3 bytes")
	require.ErrorContains(t, CopyRegion(buf, four, buf[1:], four, 1), "source buffer has 3 bytes")
	require.ErrorContains(t, CopyRegion(buf, four, buf, Whole([]int{2, 2}), 1), "different rank")
	require.ErrorContains(t, CopyRegion(buf, Region{Offset: []int{0, 0}, Size: []int{4}}, buf, four, 1), "2 offsets and 1 sizes")
	require.ErrorContains(t, CopyRegion(buf, Region{Offset: []int{0}, Size: []int{-4}}, buf, four, 1), "size -4 in dimension 0")
	require.ErrorContains(t, CopyRegion(buf, four, buf, Whole([]int{1 << 40, 1 << 40}), 1), "more than")
}
