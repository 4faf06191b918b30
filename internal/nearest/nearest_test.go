package nearest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestName(t *testing.T) {
	axes := []string{"dp_replicate", "dp_shard", "tp", "cp", "ep"}
	require.Equal(t, "dp_shard", Name("dp_sahrd", axes))
	require.Equal(t, "dp_shard", Name("DP_SHARD", axes))
	require.Equal(t, "dp_replicate", Name("dp_replicat", axes))
	require.Equal(t, "tp", Name("pt", axes), "a swap is one edit")
	require.Equal(t, "", Name("sequence", axes))
	require.Equal(t, "", Name("x", nil))
	require.Equal(t, "", Name("", axes))
}

func TestHint(t *testing.T) {
	require.Equal(t, `; did you mean "tp"?`, Hint("tpp", []string{"dp", "tp"}))
	require.Equal(t, `; known are "dp", "tp"`, Hint("sequence", []string{"dp", "tp"}))
	require.Equal(t, "", Hint("x", nil))
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		d    int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3},
		{"ab", "ba", 1}, {"ca", "abc", 3}, {"heads", "head", 1},
	} {
		require.Equal(t, c.d, distance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.d, distance(c.b, c.a), "%q %q", c.b, c.a)
	}
}
