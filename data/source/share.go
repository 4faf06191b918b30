package source

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Share maps a document to [0, 1), evenly and by its text alone, so that a
// share of a corpus can be picked in any order of reading. Picks with different
// seeds are independent.
func Share(text []byte, seed uint64) float64 {
	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint64(nil, seed))
	h.Write(text)
	return float64(binary.LittleEndian.Uint64(h.Sum(nil))>>11) / math.Exp2(53)
}
