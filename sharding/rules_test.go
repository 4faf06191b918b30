package sharding

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

var meshNames = []string{"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"}

// decoderRules is a table as a decoder family would have it.
var decoderRules = Rules{
	{Logical: "batch", Mesh: [][]string{{"dp_replicate", "dp_shard"}}},
	{Logical: "sequence", Mesh: [][]string{{"cp", "tp"}, {"cp"}}},
	{Logical: "embed", Mesh: [][]string{{"dp_shard"}}},
	{Logical: "heads", Mesh: [][]string{{"tp"}}},
	{Logical: "kv_heads", Mesh: [][]string{{"tp"}}, SkipUneven: true},
	{Logical: "mlp", Mesh: [][]string{{"tp"}}},
	{Logical: "vocab", Mesh: [][]string{{"tp", "dp_shard"}, {"tp"}, {}}, SkipUneven: true},
	{Logical: "expert", Mesh: [][]string{{"ep"}, {"dp_shard"}}},
	{Logical: "head_dim"},
	{Logical: "free", Mesh: [][]string{{"?"}}},
	{Logical: "rest", Mesh: [][]string{{"tp", "?"}}},
}

func TestRules(t *testing.T) {
	require.NoError(t, decoderRules.Validate(meshNames))
	m := newMesh(t, mesh.Axis{Name: "dp_replicate", Size: 1}, mesh.Axis{Name: "dp_shard", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	for _, c := range []struct {
		logical []string
		shape   []int
		want    Spec
		notes   []string
	}{
		{[]string{"embed", "mlp"}, []int{64, 128}, P("dp_shard", "tp"), nil},
		{[]string{"", "embed", "heads", "head_dim"}, []int{32, 64, 8, 16}, P(nil, "dp_shard", "tp"), nil},
		// Axes of size 1 and absent ones are left out.
		{[]string{"batch", "sequence", "head_dim"}, []int{8, 64, 64}, P("dp_shard", "tp"), nil},
		// An alternative of which nothing is left is passed over.
		{[]string{"expert", "head_dim", "mlp"}, []int{8, 64, 128}, P("dp_shard", nil, "tp"), nil},
		// The first dimension wins.
		{[]string{"batch", "embed"}, []int{8, 64}, P("dp_shard"),
			[]string{`dimension 1 (logical axis "embed") is not split over "dp_shard", which splits dimension 0 ("batch")`}},
		{[]string{"embed", "heads", "mlp"}, []int{64, 8, 128}, P("dp_shard", "tp"),
			[]string{`dimension 2 (logical axis "mlp") is not split over "tp", which splits dimension 1 ("heads")`}},
		// An alternative without conflict goes before one with.
		{[]string{"embed", "vocab"}, []int{64, 1000}, P("dp_shard", "tp"), nil},
		// Uneven: the next alternative, or no split.
		{[]string{"vocab"}, []int{1000}, P([]string{"tp", "dp_shard"}), nil},
		{[]string{"vocab"}, []int{1002}, P("tp"),
			[]string{`dimension 0 of size 1002 does not divide over tp=2 × dp_shard=4 (8 shards); the nearest sizes that do are 1000 and 1008: logical axis "vocab" is not split so`}},
		{[]string{"embed", "kv_heads"}, []int{64, 1}, P("dp_shard"),
			[]string{`dimension 1 of size 1 does not divide over tp=2 (2 shards); the nearest size that does is 2: logical axis "kv_heads" is not split so`}},
		{[]string{"embed", "free"}, []int{64, 3}, P("dp_shard", Any), nil},
		{[]string{"embed", "rest"}, []int{64, 4}, P("dp_shard", OpenAfter("tp")), nil},
		{nil, nil, P(), nil},
	} {
		s, notes, err := decoderRules.Resolve(c.logical, m, c.shape)
		require.NoError(t, err, "%q", c.logical)
		require.True(t, c.want.Equal(s), "%q: %v", c.logical, s)
		require.Equal(t, c.notes, notes, "%q", c.logical)
		again, err := decoderRules.Spec(c.logical, m, c.shape)
		require.NoError(t, err)
		require.True(t, s.Equal(again))
	}
}

// The second axis of a conflicting alternative is still used.
func TestRulesPartialConflict(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp_shard", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	rules := Rules{
		{Logical: "embed", Mesh: [][]string{{"dp_shard"}}},
		{Logical: "vocab", Mesh: [][]string{{"dp_shard", "tp"}}},
	}
	s, notes, err := rules.Resolve([]string{"embed", "vocab"}, m, []int{8, 10})
	require.NoError(t, err)
	require.Equal(t, `P("dp_shard", "tp")`, s.String())
	require.Len(t, notes, 1)
	// The size must divide over what is left only.
	_, err = rules.Spec([]string{"embed", "vocab"}, m, []int{8, 9})
	require.ErrorContains(t, err, "dimension 1 of size 9 does not divide over tp=2 (2 shards)")
	// Without the conflict it must divide over both.
	_, err = rules.Spec([]string{"vocab"}, m, []int{10})
	require.ErrorContains(t, err, "dp_shard=4 × tp=2 (8 shards)")
	require.ErrorContains(t, err, `"vocab"`)
	require.ErrorContains(t, err, "skip_uneven")
}

func TestRulesRefuse(t *testing.T) {
	m := newMesh(t, mesh.Axis{Name: "dp_shard", Size: 4}, mesh.Axis{Name: "tp", Size: 2})
	_, err := decoderRules.Spec([]string{"embed", "haeds"}, m, []int{64, 8})
	require.ErrorContains(t, err, `dimension 1 of shape [64 8]`)
	require.ErrorContains(t, err, `"haeds"`)
	require.ErrorContains(t, err, `did you mean "heads"?`)
	_, err = decoderRules.Spec([]string{"embed"}, m, []int{64, 8})
	require.ErrorContains(t, err, `1 logical axes ["embed"]`)
	require.ErrorContains(t, err, "2 dimensions")
	_, err = decoderRules.Spec([]string{"embed"}, m, []int{63})
	require.ErrorContains(t, err, "dimension 0 of size 63 does not divide over dp_shard=4")
	_, err = decoderRules.Spec([]string{"embed"}, nil, []int{64})
	require.ErrorContains(t, err, "no mesh")
	_, err = decoderRules.Spec([]string{"head_dim"}, m, []int{-4})
	require.ErrorContains(t, err, "negative")
}

func TestRulesValidate(t *testing.T) {
	for _, c := range []struct {
		rules Rules
		want  string
	}{
		{Rules{{Logical: "a"}, {Mesh: [][]string{{"tp"}}}}, "rule 1 has no logical axis"},
		{Rules{{Logical: "a"}, {Logical: "b"}, {Logical: "a"}}, `rules 0 and 2 are both for the logical axis "a"`},
		{Rules{{Logical: "a", Mesh: [][]string{{"tp"}, {"cp", "ep", "cp"}}}}, `alternative 1 of the rule for "a" has the axis "cp" twice`},
		{Rules{{Logical: "a", Mesh: [][]string{{"dp_shart"}}}}, `"dp_shart", which no mesh has; did you mean "dp_shard"?`},
	} {
		require.ErrorContains(t, c.rules.Validate(meshNames), c.want)
	}
	require.NoError(t, Rules{{Logical: "a", Mesh: [][]string{{"whatever"}}}}.Validate(nil))
	require.Equal(t, []string{"batch", "sequence"}, decoderRules.Names()[:2])
}
