package graph

import (
	"fmt"
	"slices"
)

// broadcastAttr: dims[i] is the dimension of the result that dimension i of
// the operand becomes.
type broadcastAttr struct{ shape, dims []int }

func inferBroadcast(op *Op) ([]Type, error) {
	at, t := op.attr.(broadcastAttr), op.operands[0].typ
	if len(at.dims) != t.Rank() {
		return nil, fmt.Errorf("%d dimensions mapped, the operand has %d", len(at.dims), t.Rank())
	}
	if err := checkDims(at.dims, len(at.shape)); err != nil {
		return nil, err
	}
	for i, d := range at.dims {
		if n := t.Shape[i]; n != 1 && n != at.shape[d] {
			return nil, fmt.Errorf("dimension %d of size %d does not repeat to %d", i, n, at.shape[d])
		}
	}
	return []Type{{t.DType, at.shape}}, nil
}

// BroadcastInDim makes dimension i of x dimension dims[i] of the result and
// repeats it where sizes of 1 meet larger ones; the other dimensions of the
// result are new.
func BroadcastInDim(x *Value, shape, dims []int) *Value {
	if slices.Equal(shape, x.typ.Shape) && isIota(dims) {
		return x
	}
	return x.b().emit1(opBroadcast, broadcastAttr{slices.Clone(shape), slices.Clone(dims)}, x)
}

// BroadcastTo repeats x to the given shape, aligned at the last dimension.
func BroadcastTo(x *Value, shape ...int) *Value {
	if len(shape) < x.Rank() {
		x.b().failAt(x.b().position(1), "broadcast", []*Value{x}, "target shape [%s] has fewer dimensions", joinInts(shape, ","))
	}
	if len(shape) == x.Rank() && slices.Equal(shape, x.typ.Shape) {
		return x
	}
	return BroadcastInDim(x, shape, seq(len(shape)-x.Rank(), len(shape)))
}

func broadcastShape(x, y []int) ([]int, bool) {
	if slices.Equal(x, y) {
		return x, true
	}
	if len(x) < len(y) {
		x, y = y, x
	}
	out := slices.Clone(x)
	off := len(x) - len(y)
	for i, n := range y {
		switch m := x[off+i]; {
		case m == n || n == 1:
		case m == 1:
			out[off+i] = n
		default:
			return nil, false
		}
	}
	return out, true
}

// broadcast2 brings x and y to a common shape.
func broadcast2(op string, x, y *Value) (*Value, *Value) {
	if x == nil || y == nil {
		mistake(op, "operand is nil")
	}
	if x.typ.Equal(y.typ) {
		return x, y
	}
	b := x.b()
	if x.typ.DType != y.typ.DType {
		b.failAt(b.position(2), op, []*Value{x, y}, "element types differ; use Convert")
	}
	shape, ok := broadcastShape(x.typ.Shape, y.typ.Shape)
	if !ok {
		b.failAt(b.position(2), op, []*Value{x, y}, "the shapes do not broadcast: sizes must be equal or 1, aligned at the last dimension")
	}
	return BroadcastTo(x, shape...), BroadcastTo(y, shape...)
}
