package indexed

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the type of the tokens on disk, with its code in the index.
type DType uint8

const (
	Uint8  DType = 1
	Int8   DType = 2
	Int16  DType = 3
	Int32  DType = 4
	Int64  DType = 5
	Uint16 DType = 8
)

// DTypeFor returns the type that Megatron-Core takes for a vocabulary size:
// uint16 below 65500, else int32.
func DTypeFor(vocab int) DType {
	if vocab < 65500 {
		return Uint16
	}
	return Int32
}

// Size returns the bytes of one token, 0 for a type that holds no tokens.
func (d DType) Size() int {
	switch d {
	case Uint8, Int8:
		return 1
	case Int16, Uint16:
		return 2
	case Int32:
		return 4
	case Int64:
		return 8
	}
	return 0
}

func (d DType) String() string {
	switch d {
	case Uint8:
		return "uint8"
	case Int8:
		return "int8"
	case Int16:
		return "int16"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Uint16:
		return "uint16"
	case 6:
		return "float64"
	case 7:
		return "float32"
	}
	return fmt.Sprintf("type %d", uint8(d))
}

// max returns the largest token that the type holds.
func (d DType) max() int32 {
	switch d {
	case Uint8:
		return math.MaxUint8
	case Int8:
		return math.MaxInt8
	case Int16:
		return math.MaxInt16
	case Uint16:
		return math.MaxUint16
	}
	return math.MaxInt32
}

// appendTokens appends the tokens in the layout of the type. They fit.
func (d DType) appendTokens(dst []byte, tokens []int32) []byte {
	for _, t := range tokens {
		switch d.Size() {
		case 1:
			dst = append(dst, byte(t))
		case 2:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(t))
		case 4:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
		case 8:
			dst = binary.LittleEndian.AppendUint64(dst, uint64(t))
		}
	}
	return dst
}

// decode reads len(dst) tokens from src. A 64-bit token that does not fit into
// 32 bits becomes -1, which no vocabulary has.
func (d DType) decode(dst []int32, src []byte) {
	switch d {
	case Uint8:
		for i := range dst {
			dst[i] = int32(src[i])
		}
	case Int8:
		for i := range dst {
			dst[i] = int32(int8(src[i]))
		}
	case Int16:
		for i := range dst {
			dst[i] = int32(int16(binary.LittleEndian.Uint16(src[2*i:])))
		}
	case Uint16:
		for i := range dst {
			dst[i] = int32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Int32:
		for i := range dst {
			dst[i] = int32(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case Int64:
		for i := range dst {
			v := int64(binary.LittleEndian.Uint64(src[8*i:]))
			if v != int64(int32(v)) {
				v = -1
			}
			dst[i] = int32(v)
		}
	}
}
