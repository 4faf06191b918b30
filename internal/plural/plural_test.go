package plural

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlural(t *testing.T) {
	require.Equal(t, "1 token", Of(1, "token"))
	for n, want := range map[int]string{0: "0 tokens", 2: "2 tokens", 11: "11 tokens", -1: "-1 tokens"} {
		require.Equal(t, want, Of(n, "token"))
	}
	require.Equal(t, "token", Noun(int64(1), "token"))
	require.Equal(t, "tokens", Noun(int64(1)<<40, "token"))
}
