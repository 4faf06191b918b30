package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// A letter outside ASCII takes two bytes of the spec: "αβ" is not a spec of rank 4.
func TestEinsumSpecIsOfLetters(t *testing.T) {
	for _, spec := range []string{"αβ,β->α", "...a,ab->...b", "a1,1b->ab", "a\tb,b->a"} {
		_, err := Trace("e", nil, func(b *Builder) error {
			b.Output("o", Einsum(spec, b.Zeros(T(F32, 2, 2, 2, 2)), b.Zeros(T(F32, 2, 2))))
			return nil
		})
		require.ErrorContains(t, err, "is no letter a…z or A…Z", spec)
	}
}
