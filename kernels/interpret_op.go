package kernels

import (
	"titan/dtype"
	"titan/graph"
)

var graphBinary = map[opcode]func(x, y *graph.Value) *graph.Value{
	opAdd: graph.Add, opSub: graph.Sub, opMul: graph.Mul, opDiv: graph.Div, opRem: graph.Rem,
	opMin: graph.Min, opMax: graph.Max, opAnd: graph.And, opOr: graph.Or,
}

var graphUnary = map[opcode]func(x *graph.Value) *graph.Value{
	opExp: graph.Exp, opLog: graph.Log, opRsqrt: graph.Rsqrt, opTanh: graph.Tanh,
}

var graphCompare = [...]func(x, y *graph.Value) *graph.Value{
	equal: graph.Equal, notEqual: graph.NotEqual, less: graph.Less, lessEqual: graph.LessEqual,
	greater: graph.Greater, greaterEqual: graph.GreaterEqual,
}

// value records an op that only computes.
func (in *interpreter) value(v *Value, e env, st state) *graph.Value {
	arg := func(i int) *graph.Value { return e[v.args[i]] }
	switch v.op {
	case opConst:
		return in.b.Full(v.typ, v.num)
	case opIota:
		return in.b.Iota(v.typ, v.dim)
	case opNot:
		return graph.Not(arg(0))
	case opExp, opLog, opRsqrt, opTanh:
		return graphUnary[v.op](arg(0))
	case opCompare:
		return graphCompare[v.cmp](arg(0), arg(1))
	case opSelect:
		return graph.Select(arg(0), arg(1), arg(2))
	case opConvert:
		return graph.Convert(arg(0), v.typ.DType)
	case opBroadcast:
		x := arg(0)
		if x.Rank() == 0 {
			return graph.BroadcastInDim(x, v.typ.Shape, nil)
		}
		return graph.BroadcastInDim(x, v.typ.Shape, []int{0, 1})
	case opTranspose:
		return graph.Transpose(arg(0), 1, 0)
	case opReduceSum:
		return graph.ExpandDims(graph.Sum(arg(0), v.dim), v.dim)
	case opReduceMax:
		return graph.ExpandDims(graph.ReduceMax(arg(0), v.dim), v.dim)
	case opDot:
		dims := graph.DotDims{Contract: [][2]int{v.dot}}
		return graph.DotGeneral(arg(0), arg(1), dims, dtype.F32, graph.Highest)
	case opAt:
		return graph.Squeeze(graph.DynamicSliceDim(in.prefetch[v.ref], 0, arg(0), 1), 0)
	case opLoad:
		from, tile := int(v.num), st[v.ref]
		if v.ref.sheets() > 1 {
			tile = graph.Reshape(graph.DynamicSliceDim(tile, 0, arg(0), 1), v.ref.tile().Shape...)
		}
		return graph.SliceDim(tile, 0, from, from+v.typ.Shape[0])
	}
	return graphBinary[v.op](arg(0), arg(1))
}
