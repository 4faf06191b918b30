package recipekey

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrors(t *testing.T) {
	require.EqualError(t, Errorf("a.b", "is %d", 3), "a.b: is 3")
	require.NoError(t, OneOf("a", "x", "x", "y"))
	require.EqualError(t, OneOf("a", "alway", "always", "never"), `a: is "alway", which is not possible; did you mean "always"?`)
	require.NoError(t, Positive("a", 1))
	require.EqualError(t, Positive("a", 0), "a: is 0 and must be positive")
	require.Equal(t, "a.b[2].c", Index("a.b", 2, "c"))
}

func TestFlatten(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	require.Nil(t, Flatten(nil))
	require.Equal(t, []error{a}, Flatten(a))
	require.Equal(t, []error{a, b, c}, Flatten(errors.Join(errors.Join(a, nil, b), c)))
	wrapped := fmt.Errorf("with words: %w", errors.Join(a, b))
	require.Equal(t, []error{wrapped}, Flatten(wrapped), "the words stay")
}
