package kernels

import (
	"fmt"
	"math"

	"titan/dtype"
	"titan/graph"
)

const (
	noOverflowFlags = "overflowFlags = #arith.overflow<none>"
	noFastMath      = "fastmath = #arith.fastmath<none>"
)

// mosaicBinary are the names of ops on f32 and s32.
var mosaicBinary = map[opcode][2]string{
	opAdd: {"arith.addf", "arith.addi"},
	opSub: {"arith.subf", "arith.subi"},
	opMul: {"arith.mulf", "arith.muli"},
	opDiv: {"arith.divf", "arith.divsi"},
	opRem: {"", "arith.remsi"},
	opMin: {"arith.minimumf", "arith.minsi"},
	opMax: {"arith.maximumf", "arith.maxsi"},
	opAnd: {"", "arith.andi"},
	opOr:  {"", "arith.ori"},
}

var mosaicUnary = map[opcode]string{opExp: "math.exp", opLog: "math.log", opRsqrt: "math.rsqrt", opTanh: "math.tanh"}

// mosaicPredicates are those of arith.cmpf (ordered; ≠ is unordered) and of
// arith.cmpi (signed).
var mosaicPredicates = [...][2]int{
	equal: {1, 0}, notEqual: {13, 1}, less: {4, 2}, lessEqual: {5, 3}, greater: {2, 4}, greaterEqual: {3, 5},
}

// value prints an op that only computes.
func (p *mosaicPrinter) value(v *Value) {
	var x, xt, y, yt string
	if len(v.args) > 0 {
		x, xt = p.names[v.args[0]], mlirType(v.args[0].typ)
	}
	if len(v.args) > 1 {
		y, yt = p.names[v.args[1]], mlirType(v.args[1].typ)
	}
	t := mlirType(v.typ)
	one, two := fmt.Sprintf("(%s) -> %s", xt, t), fmt.Sprintf("(%s, %s) -> %s", xt, yt, t)
	kind := 0 // f32
	if len(v.args) > 0 && !v.args[0].typ.DType.IsFloat() {
		kind = 1
	}
	var r string
	switch v.op {
	case opGrid:
		r = p.ids[int(v.num)]
	case opConst:
		r = p.constant(v.typ, v.num)
	case opIota:
		r = p.op("tpu.iota", "", fmt.Sprintf("dimensions = array<i32: %d>", v.dim), "() -> "+t)
	case opAdd, opSub, opMul, opDiv, opRem, opMin, opMax, opAnd, opOr:
		attrs := ""
		switch {
		case kind == 0:
			attrs = noFastMath
		case v.op == opAdd || v.op == opSub || v.op == opMul:
			attrs = noOverflowFlags
		}
		r = p.op(mosaicBinary[v.op][kind], x+", "+y, attrs, two)
	case opNot:
		r = p.op("arith.xori", x+", "+p.constant(v.typ, 1), "", fmt.Sprintf("(%s, %[1]s) -> %[1]s", t))
	case opExp, opLog, opRsqrt, opTanh:
		r = p.op(mosaicUnary[v.op], x, noFastMath, one)
	case opCompare:
		name, attrs := "arith.cmpf", noFastMath+", "
		if kind == 1 {
			name, attrs = "arith.cmpi", ""
		}
		r = p.op(name, x+", "+y, fmt.Sprintf("%spredicate = %d : i64", attrs, mosaicPredicates[v.cmp][kind]), two)
	case opSelect:
		r = p.op("arith.select", x+", "+y+", "+p.names[v.args[2]], "", fmt.Sprintf("(%s, %s, %s) -> %s", xt, yt, t, t))
	case opConvert:
		r = p.op(conversion(v), x, "", one)
	case opBroadcast:
		r = p.op("vector.broadcast", x, "", one)
	case opTranspose:
		r = p.op("tpu.transpose", x, "permutation = array<i64: 1, 0>", one)
	case opReduceSum, opReduceMax:
		r = p.reduce(v, x, xt)
	case opDot:
		r = p.dot(v)
	case opAt:
		i := p.once("arith.index_cast", x, "", "(i32) -> index")
		r = p.op("memref.load", p.mem(v.ref)+", "+i, "", fmt.Sprintf("(%s, index) -> i32", memref(dtype.S32, v.ref.typ.Shape, "smem")))
	case opLoad:
		r = p.load(v)
	}
	p.names[v] = r
}

func (p *mosaicPrinter) constant(t graph.Type, x float64) string {
	num := fmt.Sprintf("%d", int64(x))
	switch t.DType {
	case dtype.Bool:
		num = fmt.Sprintf("%t", x != 0)
	case dtype.F32:
		num = fmt.Sprintf("0x%08X", math.Float32bits(float32(x)))
	case dtype.BF16:
		b := math.Float32bits(float32(x))
		b += 0x7FFF + b>>16&1 // to nearest even
		num = fmt.Sprintf("0x%04X", b>>16)
	}
	switch {
	case len(t.Shape) > 0:
		num = "dense<" + num + "> : " + mlirType(t)
	case t.DType != dtype.Bool: // whose constants name no type
		num += " : " + mlirType(t)
	}
	print := p.op
	if len(t.Shape) == 0 {
		print = p.once
	}
	return print("arith.constant", "", "value = "+num, "() -> "+mlirType(t))
}

func conversion(v *Value) string {
	switch from := v.args[0].typ.DType; {
	case !from.IsFloat():
		return "arith.sitofp"
	case from.Size() < v.typ.DType.Size():
		return "arith.extf"
	}
	return "arith.truncf"
}

func (p *mosaicPrinter) reduce(v *Value, x, xt string) string {
	kind, start := "add", 0.0
	if v.op == opReduceMax {
		kind, start = "maximumf", math.Inf(-1)
	}
	flat := graph.T(dtype.F32, v.typ.Shape[1-v.dim])
	init := p.constant(flat, start)
	r := p.op("vector.multi_reduction", x+", "+init, fmt.Sprintf("kind = #vector.kind<%s>, reduction_dims = array<i64: %d>", kind, v.dim), fmt.Sprintf("(%s, %s) -> %[2]s", xt, mlirType(flat)))
	return p.op("vector.shape_cast", r, "", fmt.Sprintf("(%s) -> %s", mlirType(flat), mlirType(v.typ)))
}

func (p *mosaicPrinter) dot(v *Value) string {
	x, y := v.args[0], v.args[1]
	acc := p.constant(v.typ, 0)
	i, j := v.dot[0], v.dot[1]
	attrs := fmt.Sprintf("dimension_numbers = #tpu.dot_dimension_numbers<[%d], [%d], [%d], [%d], [0, %[3]d, 1, %[4]d], [], []>, transpose_lhs = false, transpose_rhs = false", i, j, 1-i, 1-j)
	if x.typ.DType == dtype.F32 {
		attrs += ", precision = #tpu.contract_precision<fp32>"
	}
	return p.op("tpu.matmul", p.names[x]+", "+p.names[y]+", "+acc, attrs, fmt.Sprintf("(%s, %s, %s) -> %[3]s", mlirType(x.typ), mlirType(y.typ), mlirType(v.typ)))
}
