package graph

import (
	"fmt"
	"slices"
	"strings"

	"titan/dtype"
)

// DType is an element type; see package dtype.
type DType = dtype.DType

// The element types, repeated here so that model code needs one import.
const (
	Bool   = dtype.Bool
	S8     = dtype.S8
	S16    = dtype.S16
	S32    = dtype.S32
	S64    = dtype.S64
	U8     = dtype.U8
	U16    = dtype.U16
	U32    = dtype.U32
	U64    = dtype.U64
	F8E4M3 = dtype.F8E4M3
	F8E5M2 = dtype.F8E5M2
	F16    = dtype.F16
	BF16   = dtype.BF16
	F32    = dtype.F32
	F64    = dtype.F64
)

// Type is the element type and the static shape of a value.
type Type struct {
	DType DType
	Shape []int
}

// T makes a Type: T(F32, 8, 16) is an 8×16 matrix, T(F32) a scalar.
func T(d DType, shape ...int) Type { return Type{d, slices.Clone(shape)} }

// Rank is the number of dimensions.
func (t Type) Rank() int { return len(t.Shape) }

// Elements is the number of elements; 1 for a scalar.
func (t Type) Elements() int { return product(t.Shape) }

// Bytes is the size of a dense array of this type.
func (t Type) Bytes() int { return t.Elements() * t.DType.Size() }

// Equal reports whether the element types and the shapes agree.
func (t Type) Equal(o Type) bool { return t.DType == o.DType && slices.Equal(t.Shape, o.Shape) }

// String gives the short form used in dumps and errors, such as "f32[8,16]".
func (t Type) String() string {
	return t.DType.String() + "[" + joinInts(t.Shape, ",") + "]"
}

// mlir gives the StableHLO spelling, such as "tensor<8x16xf32>".
func (t Type) mlir() string {
	var sb strings.Builder
	t.writeMLIR(&sb)
	return sb.String()
}

func (t Type) writeMLIR(sb *strings.Builder) {
	sb.WriteString("tensor<")
	for _, d := range t.Shape {
		writeInt(sb, d)
		sb.WriteByte('x')
	}
	sb.WriteString(t.DType.StableHLO())
	sb.WriteByte('>')
}

func (t Type) check() error {
	if !t.DType.Valid() {
		return fmt.Errorf("invalid element type")
	}
	n := 1
	for i, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("dimension %d has negative size %d", i, d)
		}
		if d > 0 && n > (1<<62)/d {
			return fmt.Errorf("shape %v has too many elements", t.Shape)
		}
		n *= d
	}
	return nil
}

func product(xs []int) int {
	n := 1
	for _, x := range xs {
		n *= x
	}
	return n
}
