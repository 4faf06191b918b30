package graph_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireClose wants two arrays equal up to a relative difference.
func requireClose(t testing.TB, want, got array, tol float64, format string, args ...any) {
	t.Helper()
	require.NoError(t, differ(want, got, tol), fmt.Sprintf(format, args...))
}
