package graph

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"titan/dtype"
)

// constAttr holds the elements of a constant, little-endian; one element when
// splat.
type constAttr struct {
	typ   Type
	data  []byte
	splat bool
}

type iotaAttr struct {
	typ Type
	dim int
}

// constKey finds an equal constant already recorded in the same block.
type constKey struct{ typ, data string }

func init() {
	define(opConst, opDef{
		name:  "constant",
		infer: func(op *Op) ([]Type, error) { return []Type{op.attr.(constAttr).typ}, nil },
		vjp:   func(*adjoint, *Op, []*Value) {},
		view:  true,
		print: printConst,
	})
	define(opIota, opDef{
		name: "iota",
		infer: func(op *Op) ([]Type, error) {
			a := op.attr.(iotaAttr)
			if a.dim < 0 || a.dim >= a.typ.Rank() {
				return nil, fmt.Errorf("dimension %d of type %v", a.dim, a.typ)
			}
			if a.typ.DType == Bool {
				return nil, fmt.Errorf("element type bool")
			}
			return []Type{a.typ}, nil
		},
		vjp:  func(*adjoint, *Op, []*Value) {},
		view: true,
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.iota dim = ")
			p.int(op.attr.(iotaAttr).dim)
			p.write(" : ")
			p.typ(op.results[0].typ)
		},
	})
}

// Full is an array of type t with every element x, rounded to t's element type.
func (b *Builder) Full(t Type, x float64) *Value {
	return b.splat(t, dtype.AppendFloat(nil, t.DType, x))
}

// Scalar is a constant of rank 0.
func (b *Builder) Scalar(d DType, x float64) *Value { return b.Full(T(d), x) }

// Int is an integer constant of rank 0, exact over the whole 64-bit range.
func (b *Builder) Int(d DType, x int64) *Value {
	if !d.IsInt() {
		b.fail("int", "element type %v is not an integer type", d)
	}
	return b.splat(T(d), binary.LittleEndian.AppendUint64(nil, uint64(x))[:d.Size()])
}

// Zeros is an array of zeros.
func (b *Builder) Zeros(t Type) *Value { return b.Full(t, 0) }

// ZerosLike is an array of zeros with x's type.
func ZerosLike(x *Value) *Value { return x.b().Zeros(x.typ) }

func (b *Builder) splat(t Type, one []byte) *Value {
	if err := t.check(); err != nil {
		b.fail("constant", "type %v: %v", t, err)
	}
	key := constKey{t.String(), string(one)}
	if v := b.top().consts[key]; v != nil {
		return v
	}
	v := b.emit1(opConst, constAttr{t, one, true})
	b.top().consts[key] = v
	return v
}

// Const is an array with the given elements, row-major and little-endian. It is
// meant for small tables; larger arrays should be inputs.
func (b *Builder) Const(t Type, data []byte) *Value {
	if err := t.check(); err != nil {
		b.fail("constant", "type %v: %v", t, err)
	}
	if len(data) != t.Bytes() {
		b.fail("constant", "%d bytes of data for type %v, which needs %d", len(data), t, t.Bytes())
	}
	if t.DType == Bool && t.Elements() > 1 {
		// MLIR packs booleans into bits; a byte array compared with 0 says the same.
		return Convert(b.Const(T(U8, t.Shape...), data), Bool)
	}
	return b.emit1(opConst, constAttr{t, append([]byte(nil), data...), t.Elements() == 1})
}

// ConstF32 is a float32 array with the given elements, row-major.
func (b *Builder) ConstF32(shape []int, xs []float32) *Value {
	data := make([]byte, 0, 4*len(xs))
	for _, x := range xs {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return b.Const(T(F32, shape...), data)
}

// ConstS32 is an int32 array with the given elements, row-major.
func (b *Builder) ConstS32(shape []int, xs []int32) *Value {
	data := make([]byte, 0, 4*len(xs))
	for _, x := range xs {
		data = binary.LittleEndian.AppendUint32(data, uint32(x))
	}
	return b.Const(T(S32, shape...), data)
}

// Iota counts 0, 1, 2, … along dimension dim of an array of type t.
func (b *Builder) Iota(t Type, dim int) *Value {
	if dim < 0 {
		dim += t.Rank()
	}
	return b.emit1(opIota, iotaAttr{t, dim})
}

func printConst(p *printer, op *Op) {
	a := op.attr.(constAttr)
	p.assign(op)
	p.write("stablehlo.constant dense<")
	switch {
	case a.typ.Elements() == 0:
	case a.splat:
		p.write(literal(a.typ.DType, a.data))
	default:
		p.write(`"0x`)
		p.write(strings.ToUpper(hex.EncodeToString(a.data)))
		p.write(`"`)
	}
	p.write("> : ")
	p.typ(a.typ)
}

// literal spells one element exactly; floats that decimal digits might round
// are given by their bits.
func literal(d DType, data []byte) string {
	switch {
	case d == Bool:
		if data[0] != 0 {
			return "true"
		}
		return "false"
	case d == S64:
		return fmt.Sprint(int64(binary.LittleEndian.Uint64(data)))
	case d == U64:
		return fmt.Sprint(binary.LittleEndian.Uint64(data))
	case d.IsInt():
		return fmt.Sprint(int64(dtype.Float(d, data, 0)))
	}
	x := dtype.Float(d, data, 0)
	if x == math.Trunc(x) && math.Abs(x) < 1<<20 && !(x == 0 && math.Signbit(x)) {
		return fmt.Sprintf("%.1f", x)
	}
	var sb strings.Builder
	sb.WriteString("0x")
	for i := len(data) - 1; i >= 0; i-- {
		fmt.Fprintf(&sb, "%02X", data[i])
	}
	return sb.String()
}
