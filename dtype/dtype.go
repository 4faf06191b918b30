// Package dtype names the element types of arrays, with their sizes and their
// encodings in host memory.
//
// It is the one vocabulary that the tensor program, the device runtime, token
// files and checkpoints share:
//
//	dtype.BF16.Size()                 // 2
//	dtype.Parse("bfloat16")           // BF16
//	dtype.FromFloat32(dtype.BF16, xs) // rounded to nearest even, as bytes
package dtype

import (
	"fmt"
	"strings"
)

// DType is an element type. The zero value is Invalid.
type DType uint8

// The element types. F8E4M3 is the finite-only variant (no infinities, largest
// value 448) and F8E5M2 the IEEE-like one, as used for training in fp8.
const (
	Invalid DType = iota
	Bool
	S8
	S16
	S32
	S64
	U8
	U16
	U32
	U64
	F8E4M3
	F8E5M2
	F16
	BF16
	F32
	F64
)

type info struct {
	name, stablehlo, safetensors, long string
	size, mantissa                     int
	float, signed                      bool
}

var infos = [...]info{
	Invalid: {name: "invalid"},
	Bool:    {"bool", "i1", "BOOL", "bool", 1, 0, false, false},
	S8:      {"s8", "i8", "I8", "int8", 1, 0, false, true},
	S16:     {"s16", "i16", "I16", "int16", 2, 0, false, true},
	S32:     {"s32", "i32", "I32", "int32", 4, 0, false, true},
	S64:     {"s64", "i64", "I64", "int64", 8, 0, false, true},
	U8:      {"u8", "ui8", "U8", "uint8", 1, 0, false, false},
	U16:     {"u16", "ui16", "U16", "uint16", 2, 0, false, false},
	U32:     {"u32", "ui32", "U32", "uint32", 4, 0, false, false},
	U64:     {"u64", "ui64", "U64", "uint64", 8, 0, false, false},
	F8E4M3:  {"f8e4m3", "f8E4M3FN", "F8_E4M3", "float8_e4m3fn", 1, 3, true, true},
	F8E5M2:  {"f8e5m2", "f8E5M2", "F8_E5M2", "float8_e5m2", 1, 2, true, true},
	F16:     {"f16", "f16", "F16", "float16", 2, 10, true, true},
	BF16:    {"bf16", "bf16", "BF16", "bfloat16", 2, 7, true, true},
	F32:     {"f32", "f32", "F32", "float32", 4, 23, true, true},
	F64:     {"f64", "f64", "F64", "float64", 8, 52, true, true},
}

func (d DType) info() info {
	if int(d) >= len(infos) {
		return infos[Invalid]
	}
	return infos[d]
}

// String returns the short name, such as "bf16" or "s32".
func (d DType) String() string { return d.info().name }

// StableHLO returns the MLIR spelling, such as "bf16", "i32" or "f8E4M3FN".
func (d DType) StableHLO() string { return d.info().stablehlo }

// Safetensors returns the spelling of safetensors headers, such as "BF16".
func (d DType) Safetensors() string { return d.info().safetensors }

// Size returns the bytes an element occupies in host memory; 0 for Invalid.
func (d DType) Size() int { return d.info().size }

// MantissaBits returns the stored fraction bits of a float type, else 0.
func (d DType) MantissaBits() int { return d.info().mantissa }

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool { return d.info().float }

// IsInt reports whether d is an integer type; Bool is not.
func (d DType) IsInt() bool { return d >= S8 && d <= U64 }

// IsSigned reports whether d can hold negative values.
func (d DType) IsSigned() bool { return d.info().signed }

// Valid reports whether d is one of the named element types.
func (d DType) Valid() bool { return d > Invalid && int(d) < len(infos) }

// Parse accepts the spellings met in recipes, Hugging Face configs and
// safetensors headers: "bf16", "bfloat16", "BF16", "torch.bfloat16".
func Parse(s string) (DType, error) {
	t := strings.TrimPrefix(strings.TrimSpace(s), "torch.")
	for d := Bool; int(d) < len(infos); d++ {
		i := infos[d]
		if strings.EqualFold(t, i.name) || strings.EqualFold(t, i.long) || strings.EqualFold(t, i.safetensors) {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q; known: bool, int8…int64, uint8…uint64, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64", s)
}
