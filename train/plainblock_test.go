package train

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Plain attention treats a quarter of a sequence at once, less where scores are large,
// whole lanes always; for tpu7x not four blocks of one size, which libtpu cannot
// compile at little effort.
func TestPlainBlock(t *testing.T) {
	for _, c := range []struct {
		heads, S int
		kind     string
		want     int
	}{
		{32, 1024, "v5e", 256}, {64, 2048, "v6e", 512}, {64, 2048, "tpu7x", 640}, {32, 1024, "tpu7x", 384},
		{64, 8192, "v5e", 128}, {32, 8192, "tpu7x", 256}, {8, 100, "v5e", 128}, {8, 512, "tpu7x", 256},
	} {
		require.Equal(t, c.want, plainBlock(c.heads, c.S, c.kind), "%+v", c)
	}
}
