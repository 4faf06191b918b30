package graph

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
)

// The known answers that the authors publish with Random123 (kat_vectors,
// threefry2x32, 20 rounds): counter, key, result.
func TestThreefryKnownAnswers(t *testing.T) {
	vectors := []struct{ ctr, key, want [2]uint32 }{
		{[2]uint32{0, 0}, [2]uint32{0, 0}, [2]uint32{0x6b200159, 0x99ba4efe}},
		{[2]uint32{0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff}, [2]uint32{0x1cb996fc, 0xbb002be7}},
		{[2]uint32{0x243f6a88, 0x85a308d3}, [2]uint32{0x13198a2e, 0x03707344}, [2]uint32{0xc4923a9c, 0x483df7a0}},
	}
	m, err := Trace("kat", nil, func(b *Builder) error {
		for _, v := range vectors {
			word := func(w uint32) *Value { return b.Int(U32, int64(w)) }
			x0, x1 := threefry(word(v.key[0]), word(v.key[1]), word(v.ctr[0]), word(v.ctr[1]))
			b.Output("x", Stack(0, x0, x1))
		}
		return nil
	})
	require.NoError(t, err)
	outs := xlatest.Run(t, xlatest.CPU(t), m.StableHLOWithLocations(), 1, [][]xlatest.Array{{}})[0]
	for i, v := range vectors {
		x0, x1 := threefryWords(v.key[0], v.key[1], v.ctr[0], v.ctr[1])
		require.Equal(t, v.want, [2]uint32{x0, x1}, "in Go, vector %d", i)
		le := binary.LittleEndian
		require.Equal(t, v.want, [2]uint32{le.Uint32(outs[i].Data), le.Uint32(outs[i].Data[4:])}, "on the device, vector %d", i)
	}
}
