package sharding

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

func newMesh(t testing.TB, axes ...mesh.Axis) *mesh.Mesh {
	t.Helper()
	m, err := mesh.New(axes, nil)
	require.NoError(t, err)
	return m
}

func TestSpec(t *testing.T) {
	s := P("dp_shard", nil, []string{"tp", "cp"}, Any, OpenAfter("ep"), []string{})
	require.Equal(t, 6, s.Rank())
	require.Equal(t, []string{"dp_shard"}, s.Dim(0))
	require.Empty(t, s.Dim(1))
	require.Equal(t, []string{"tp", "cp"}, s.Dim(2))
	require.Empty(t, s.Dim(6))
	require.Empty(t, s.Dim(-1))
	require.False(t, s.IsOpen(0))
	require.True(t, s.IsOpen(3))
	require.True(t, s.IsOpen(4))
	require.False(t, s.IsOpen(6))
	require.Equal(t, []string{"dp_shard", "tp", "cp", "ep"}, s.Axes())
	require.Equal(t, `P("dp_shard", nil, ("tp", "cp"), ?, ("ep", ?), nil)`, s.String())
	require.Equal(t, "P()", P().String())
	require.Equal(t, "P(nil, nil)", Replicated(2).String())
	require.Equal(t, "P()", Replicated(-1).String())

	axes := []string{"a", "b"}
	s = P(axes)
	axes[0] = "changed"
	require.Equal(t, []string{"a", "b"}, s.Dim(0))
}

func TestSpecShardy(t *testing.T) {
	require.Equal(t, `<@mesh, [{"dp"}, {}, {?}]>`, P("dp", nil, Any).Shardy("mesh", 3))
	require.Equal(t, `<@m, [{"tp", "cp"}, {"ep", ?}, {}, {}]>`, P([]string{"tp", "cp"}, OpenAfter("ep")).Shardy("m", 4))
	require.Equal(t, `<@mesh, []>`, P().Shardy("mesh", 0))
	require.Equal(t, `<@mesh, [{?}]>`, Spec{Open: []bool{true}}.Shardy("mesh", 1))
}

func TestSpecEqual(t *testing.T) {
	require.True(t, P("a").Equal(P("a", nil, nil)))
	require.True(t, P("a").Equal(P([]string{"a"})))
	require.True(t, Spec{}.Equal(Replicated(3)))
	require.False(t, P("a").Equal(P("a", Any)))
	require.False(t, P("a").Equal(P(OpenAfter("a"))))
	require.False(t, P([]string{"a", "b"}).Equal(P([]string{"b", "a"})))
	require.False(t, P(3).Equal(P(3)), "a spec that cannot be used equals none")
}

func TestSpecWithout(t *testing.T) {
	s := P([]string{"dp", "tp"}, "cp", Any)
	require.Equal(t, `P("tp", nil, ?)`, s.Without("dp", "cp").String())
	require.Equal(t, `P(("dp", "tp"), "cp", ?)`, s.String())
	require.True(t, s.Without("pp").Equal(s))
	require.ErrorContains(t, P(1).Without("a").Validate(newMesh(t, mesh.Axis{Name: "a", Size: 1}), []int{1}), "int")
}

func TestValidate(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp_shard", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	for _, c := range []struct {
		spec  Spec
		shape []int
		want  []string
	}{
		{P("dp_shrad"), []int{8}, []string{"dimension 0", `"dp_shrad"`, `did you mean "dp_shard"?`}},
		{P(nil, "sequence"), []int{8, 8}, []string{"dimension 1", `"sequence"`, "dp_shard=4 × tp=2"}},
		{P("tp", "tp"), []int{8, 8}, []string{`"tp"`, "dimension 0", "dimension 1"}},
		{P([]string{"tp", "tp"}), []int{8}, []string{`"tp"`, "used once"}},
		{P(nil, nil, "tp"), []int{8, 8}, []string{`P(nil, nil, "tp")`, "3 dimensions", "[8 8]", "has 2"}},
		{P(nil, "dp_shard"), []int{3, 10}, []string{"dimension 1 of size 10 does not divide over dp_shard=4 (4 shards)", "8 and 12"}},
		{P([]string{"dp_shard", "tp"}), []int{12}, []string{"size 12", "dp_shard=4 × tp=2 (8 shards)", "8 and 16"}},
		{P("dp_shard"), []int{3}, []string{"size 3", "the nearest size that does is 4"}},
		{P(), []int{8, -1}, []string{"dimension 1", "[8 -1]", "negative"}},
		{P(nil, 7), []int{8, 8}, []string{"dimension 1", "int"}},
		{P(true, 7), []int{8, 8}, []string{"dimension 0", "bool"}},
		{Spec{Open: []bool{false, true}}, []int{8}, []string{"2 dimensions"}},
	} {
		err := c.spec.Validate(m, c.shape)
		require.Error(t, err, "%v", c.spec)
		for _, w := range c.want {
			require.ErrorContains(t, err, w)
		}
		_, err = c.spec.Shard(m, c.shape)
		require.Error(t, err)
	}
	require.ErrorContains(t, P().Validate(nil, nil), "no mesh")

	require.NoError(t, P().Validate(m, nil))
	require.NoError(t, P("tp").Validate(m, []int{0, 3}))
	require.NoError(t, P(OpenAfter("tp"), Any).Validate(m, []int{2, 3}))
}

func TestShard(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	local, err := P([]string{"tp", "dp"}, nil).Shard(m, []int{64, 10, 3})
	require.NoError(t, err)
	require.Equal(t, []int{8, 10, 3}, local)
	local, err = P().Shard(m, []int{})
	require.NoError(t, err)
	require.Empty(t, local)
	_, err = P(nil, Any).Shard(m, []int{8, 8})
	require.ErrorContains(t, err, "dimension 1")
	require.ErrorContains(t, err, "open")
}

func TestBytesPerDevice(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	n, err := BytesPerDevice(m, []int{64, 10, 3}, P("dp"), 2)
	require.NoError(t, err)
	require.Equal(t, 64/4*10*3*2, n)
	n, err = BytesPerDevice(m, []int{0, 10}, P("dp"), 4)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = BytesPerDevice(m, nil, P(), 4)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	for _, bad := range []int{-1, 0, 17} {
		_, err = BytesPerDevice(m, []int{8}, P(), bad)
		require.ErrorContains(t, err, "1 to 16")
	}
	_, err = BytesPerDevice(m, []int{math.MaxInt / 2, 8}, P(nil, "dp"), 1)
	require.ErrorContains(t, err, "elements")
	_, err = BytesPerDevice(m, []int{math.MaxInt / 2, 8, 0}, P(nil, "dp"), 1)
	require.NoError(t, err)
	_, err = BytesPerDevice(m, []int{7}, P("dp"), 1)
	require.ErrorContains(t, err, "size 7")
}
