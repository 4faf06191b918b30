package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
)

// FromFloat32 encodes xs as little-endian elements of d, rounding to nearest
// even. Integer types truncate towards zero and saturate. It is meant for
// constants and host-side preparation, not for bulk conversion of weights.
func FromFloat32(d DType, xs []float32) ([]byte, error) {
	if !d.Valid() {
		return nil, fmt.Errorf("dtype: cannot encode to %v", d)
	}
	out := make([]byte, 0, len(xs)*d.Size())
	for _, x := range xs {
		out = AppendFloat(out, d, float64(x))
	}
	return out, nil
}

// AppendFloat appends x encoded as one element of d. An invalid d appends
// nothing.
func AppendFloat(out []byte, d DType, x float64) []byte {
	le := binary.LittleEndian
	switch d {
	case Bool:
		if x != 0 {
			return append(out, 1)
		}
		return append(out, 0)
	case S8:
		return append(out, byte(clampInt(x, math.MinInt8, math.MaxInt8)))
	case S16:
		return le.AppendUint16(out, uint16(clampInt(x, math.MinInt16, math.MaxInt16)))
	case S32:
		return le.AppendUint32(out, uint32(clampInt(x, math.MinInt32, math.MaxInt32)))
	case S64:
		return le.AppendUint64(out, uint64(clampInt(x, math.MinInt64, math.MaxInt64)))
	case U8:
		return append(out, byte(clampInt(x, 0, math.MaxUint8)))
	case U16:
		return le.AppendUint16(out, uint16(clampInt(x, 0, math.MaxUint16)))
	case U32:
		return le.AppendUint32(out, uint32(clampInt(x, 0, math.MaxUint32)))
	case U64:
		if x >= math.MaxUint64 {
			return le.AppendUint64(out, math.MaxUint64)
		}
		if !(x > 0) { // NaN too, as for the other integers
			x = 0
		}
		return le.AppendUint64(out, uint64(x))
	case F8E4M3, F8E5M2, F16:
		b := encodeSmall(d, x)
		if d == F16 {
			return le.AppendUint16(out, b)
		}
		return append(out, byte(b))
	case BF16:
		return le.AppendUint16(out, roundBF16(x))
	case F32:
		return le.AppendUint32(out, math.Float32bits(float32(x)))
	case F64:
		return le.AppendUint64(out, math.Float64bits(x))
	}
	return out
}

// Float decodes element i of data, which holds elements of d.
func Float(d DType, data []byte, i int) float64 {
	le := binary.LittleEndian
	b := data[i*d.Size():]
	switch d {
	case Bool, U8:
		return float64(b[0])
	case S8:
		return float64(int8(b[0]))
	case S16:
		return float64(int16(le.Uint16(b)))
	case S32:
		return float64(int32(le.Uint32(b)))
	case S64:
		return float64(int64(le.Uint64(b)))
	case U16:
		return float64(le.Uint16(b))
	case U32:
		return float64(le.Uint32(b))
	case U64:
		return float64(le.Uint64(b))
	case F8E4M3, F8E5M2:
		return decodeSmall(d, uint16(b[0]))
	case F16:
		return decodeSmall(d, le.Uint16(b))
	case BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	case F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case F64:
		return math.Float64frombits(le.Uint64(b))
	}
	return math.NaN()
}

func clampInt(x float64, lo, hi float64) int64 {
	switch {
	case x != x:
		return 0
	case x <= lo:
		return int64(lo)
	case x >= hi:
		if hi == math.MaxInt64 {
			return math.MaxInt64
		}
		return int64(hi)
	}
	return int64(x)
}

// roundBF16 rounds straight from float64: going through float32 first would
// round twice.
func roundBF16(x float64) uint16 {
	if x != x {
		return 0x7fc0
	}
	return encodeFloat(x, 8, 7, true)
}

// small describes the exponent and mantissa widths of the narrow float types.
func small(d DType) (exp, man int, inf bool) {
	switch d {
	case F8E4M3:
		return 4, 3, false
	case F8E5M2:
		return 5, 2, true
	default:
		return 5, 10, true
	}
}

func encodeSmall(d DType, x float64) uint16 {
	e, m, inf := small(d)
	return encodeFloat(x, e, m, inf)
}

// encodeFloat rounds x to a float with e exponent and m mantissa bits, nearest
// even. Without infinities overflow becomes NaN, as XLA converts to f8E4M3FN.
func encodeFloat(x float64, e, m int, inf bool) uint16 {
	var sign uint16
	if math.Signbit(x) {
		sign = 1 << (e + m)
		x = -x
	}
	maxExp := 1<<e - 1
	nan := sign | uint16(maxExp<<m|(1<<m-1))
	if x != x {
		return nan
	}
	bias := 1<<(e-1) - 1
	_, ex := math.Frexp(x) // x = f·2^ex, f in [½,1)
	unit := max(ex-1, 1-bias) - m
	if math.IsInf(x, 1) {
		unit, x = 0, math.Inf(1)
	}
	q := math.RoundToEven(math.Ldexp(x, -unit)) // in units in the last place
	if q >= float64(int(2)<<m) {
		q, unit = q/2, unit+1
	}
	exp := unit + m + bias
	if q < float64(int(1)<<m) {
		exp = 0 // subnormal
	}
	limit := maxExp // exponent code reserved for Inf and NaN
	if !inf {
		limit++ // only the all-ones mantissa of the top exponent is NaN
	}
	if math.IsInf(x, 1) || exp >= limit {
		if inf {
			return sign | uint16(maxExp<<m)
		}
		return nan
	}
	code := uint16(exp<<m) | uint16(int(q)&(1<<m-1))
	if !inf && code == uint16(maxExp<<m|(1<<m-1)) {
		return nan
	}
	return sign | code
}

func decodeSmall(d DType, b uint16) float64 {
	e, m, inf := small(d)
	sign := 1.0
	if b>>(e+m)&1 == 1 {
		sign = -1
	}
	exp, man := int(b>>m)&(1<<e-1), int(b)&(1<<m-1)
	bias, top := 1<<(e-1)-1, 1<<e-1
	switch {
	case exp == 0:
		return sign * math.Ldexp(float64(man), 1-bias-m)
	case inf && exp == top && man == 0:
		return math.Inf(int(sign))
	case inf && exp == top, !inf && exp == top && man == 1<<m-1:
		return math.NaN()
	}
	return sign * math.Ldexp(float64(man+1<<m), exp-bias-m)
}
