package hf

import (
	"encoding/binary"
	"fmt"

	"titan/dtype"
)

// convertible reports whether elements of one type may become another: of the
// same, or both floating point.
func convertible(from, to dtype.DType) bool { return from == to || from.IsFloat() && to.IsFloat() }

// convert returns the elements of data in another floating point type, rounded
// to nearest even. data itself is returned if there is nothing to do.
func convert(data []byte, from, to dtype.DType) ([]byte, error) {
	if from == to {
		return data, nil
	}
	if !convertible(from, to) {
		return nil, fmt.Errorf("hf: %v cannot become %v", from, to)
	}
	n := len(data) / from.Size()
	out := make([]byte, n*to.Size())
	le := binary.LittleEndian
	switch {
	case from == dtype.BF16 && to == dtype.F32:
		for i := range n {
			le.PutUint32(out[4*i:], uint32(le.Uint16(data[2*i:]))<<16)
		}
	case from == dtype.F32 && to == dtype.BF16:
		for i := range n {
			le.PutUint16(out[2*i:], roundBF16(le.Uint32(data[4*i:])))
		}
	default:
		out = out[:0]
		for i := range n {
			out = dtype.AppendFloat(out, to, dtype.Float(from, data, i))
		}
	}
	return out, nil
}

// roundBF16 rounds an f32 to its upper half, to nearest even. NaNs become the
// quiet NaN that dtype.AppendFloat writes.
func roundBF16(b uint32) uint16 {
	if b&0x7fffffff > 0x7f800000 {
		return 0x7fc0
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
