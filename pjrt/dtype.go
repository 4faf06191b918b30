package pjrt

import (
	"fmt"

	"titan/dtype"
)

// cTypes are the element types of the C API (PJRT_Buffer_Type).
var cTypes = map[dtype.DType]int32{
	dtype.Bool: 1, dtype.S8: 2, dtype.S16: 3, dtype.S32: 4, dtype.S64: 5,
	dtype.U8: 6, dtype.U16: 7, dtype.U32: 8, dtype.U64: 9,
	dtype.F16: 10, dtype.F32: 11, dtype.F64: 12, dtype.BF16: 13,
	dtype.F8E5M2: 16, dtype.F8E4M3: 17,
}

var fromCType = invert(cTypes)

// ffiTypes are XLA's own element types (PrimitiveType), which custom calls see.
var ffiTypes = map[int32]dtype.DType{
	1: dtype.Bool, 2: dtype.S8, 3: dtype.S16, 4: dtype.S32, 5: dtype.S64,
	6: dtype.U8, 7: dtype.U16, 8: dtype.U32, 9: dtype.U64,
	10: dtype.F16, 11: dtype.F32, 12: dtype.F64, 16: dtype.BF16,
	19: dtype.F8E5M2, 20: dtype.F8E4M3,
}

func invert(m map[dtype.DType]int32) map[int32]dtype.DType {
	r := make(map[int32]dtype.DType, len(m))
	for d, c := range m {
		r[c] = d
	}
	return r
}

func toCType(d dtype.DType) (int32, error) {
	if c, ok := cTypes[d]; ok {
		return c, nil
	}
	return 0, fmt.Errorf("pjrt: the C API has no element type for %v", d)
}

// sizeOf returns the bytes of a dense array.
func sizeOf(d dtype.DType, dims []int) (int, error) {
	n := d.Size()
	for _, k := range dims {
		if k < 0 {
			return 0, fmt.Errorf("pjrt: negative dimension in shape %v", dims)
		}
		if k > 0 && n > maxInt/k {
			return 0, fmt.Errorf("pjrt: shape %v of %v does not fit into memory", dims, d)
		}
		n *= k
	}
	return n, nil
}

const maxInt = int(^uint(0) >> 1)
