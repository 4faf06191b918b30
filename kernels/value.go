package kernels

import (
	"titan/dtype"
	"titan/graph"
)

// Value is a scalar (shape []) or a tile (shape [rows, columns]) that a kernel
// computes. Scalars are s32, f32 or bool; tiles can also be bf16.
type Value struct {
	k    *Kernel
	op   opcode
	typ  graph.Type
	args []*Value
	blk  *block

	ref  *Ref    // opLoad, opStore, opAt
	num  float64 // opConst; opGrid: which dimension; opLoad, opStore: the first row
	dim  int     // opIota, opReduce
	cmp  compare // opCompare
	dot  [2]int  // opDot: the contracted dimension of each operand
	body *block  // opIf
}

// block is a sequence of ops, the body of the kernel or of an If.
type block struct {
	ops    []*Value
	parent *block
}

// Type returns the value's type.
func (v *Value) Type() graph.Type { return v.typ }

func (v *Value) scalar() bool { return len(v.typ.Shape) == 0 }

type opcode uint8

const (
	opGrid opcode = iota // the current step along a dimension of the grid
	opConst
	opIota
	opAdd
	opSub
	opMul
	opDiv
	opRem
	opMin
	opMax
	opAnd
	opOr
	opNot
	opExp
	opLog
	opRsqrt
	opTanh
	opCompare
	opSelect
	opConvert
	opBroadcast
	opTranspose
	opReduceSum
	opReduceMax
	opDot
	opAt    // an element of a prefetched array
	opLoad  // a tile, or rows of it
	opStore // args: tile or rows of it
	opIf    // args: condition
)

var opNames = [...]string{
	opGrid: "grid", opConst: "const", opIota: "iota", opAdd: "add", opSub: "sub", opMul: "mul", opDiv: "div", opRem: "rem",
	opMin: "min", opMax: "max", opAnd: "and", opOr: "or", opNot: "not", opExp: "exp", opLog: "log", opRsqrt: "rsqrt", opTanh: "tanh",
	opCompare: "compare", opSelect: "select", opConvert: "convert", opBroadcast: "broadcast", opTranspose: "transpose",
	opReduceSum: "sum", opReduceMax: "max over a dimension", opDot: "dot", opAt: "at", opLoad: "load", opStore: "store", opIf: "if",
}

func (o opcode) String() string { return opNames[o] }

type compare uint8

const (
	equal compare = iota
	notEqual
	less
	lessEqual
	greater
	greaterEqual
)

// Int returns an s32 scalar.
func (k *Kernel) Int(x int) *Value {
	return k.add(&Value{op: opConst, typ: graph.T(dtype.S32), num: float64(x)})
}

// F32 returns an f32 scalar.
func (k *Kernel) F32(x float64) *Value {
	return k.add(&Value{op: opConst, typ: graph.T(dtype.F32), num: x})
}

// Zeros returns a tile of zeros.
func (k *Kernel) Zeros(t graph.Type) *Value { return k.Full(t, 0) }

// Full returns a tile whose elements are all x.
func (k *Kernel) Full(t graph.Type, x float64) *Value {
	v := &Value{op: opConst, typ: t, num: x}
	if len(t.Shape) != 2 {
		k.fail("full", "a tile has two dimensions, %v has %d", t, len(t.Shape))
	}
	return k.add(v)
}

// Iota returns an s32 tile whose elements count along dim.
func (k *Kernel) Iota(rows, columns, dim int) *Value {
	if dim != 0 && dim != 1 {
		k.fail("iota", "dimension %d of a tile", dim)
	}
	return k.add(&Value{op: opIota, typ: graph.T(dtype.S32, rows, columns), dim: dim})
}
