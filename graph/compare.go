package graph

import "fmt"

func init() {
	define(opCompare, opDef{
		name: "compare",
		infer: func(op *Op) ([]Type, error) {
			x, y := op.operands[0].typ, op.operands[1].typ
			if !x.Equal(y) {
				return nil, fmt.Errorf("operand types %v and %v differ", x, y)
			}
			return []Type{{Bool, x.Shape}}, nil
		},
		noGrad: true,
		print:  printCompare,
	})
	define(opIsFinite, opDef{
		name: "is_finite",
		infer: func(op *Op) ([]Type, error) {
			t := op.operands[0].typ
			if !t.DType.IsFloat() {
				return nil, fmt.Errorf("element type %v is not a float", t.DType)
			}
			return []Type{{Bool, t.Shape}}, nil
		},
		noGrad: true,
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.is_finite ")
			p.operands(op.operands)
			p.write(" : ")
			p.signature(op)
		},
	})
	define(opSelect, opDef{
		name: "select",
		infer: func(op *Op) ([]Type, error) {
			c, x, y := op.operands[0].typ, op.operands[1].typ, op.operands[2].typ
			if c.DType != Bool {
				return nil, fmt.Errorf("condition has element type %v, not bool", c.DType)
			}
			if !x.Equal(y) {
				return nil, fmt.Errorf("operand types %v and %v differ", x, y)
			}
			if !x.Equal(Type{x.DType, c.Shape}) {
				return nil, fmt.Errorf("condition of shape [%s] selects from shape [%s]", joinInts(c.Shape, ","), joinInts(x.Shape, ","))
			}
			return []Type{x}, nil
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			c := a.val(op.operands[0])
			zero := ZerosLike(cts[0])
			if a.wants(op.operands[1]) {
				a.add(op.operands[1], Select(c, cts[0], zero))
			}
			if a.wants(op.operands[2]) {
				a.add(op.operands[2], Select(c, zero, cts[0]))
			}
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.select ")
			p.operands(op.operands)
			p.write(" : ")
			p.typ(op.operands[0].typ)
			p.write(", ")
			p.typ(op.results[0].typ)
		},
	})
}

func compare(dir string, x, y *Value) *Value {
	x, y = broadcast2("compare", x, y)
	return x.b().emit1(opCompare, dir, x, y)
}

// Equal compares element by element and gives booleans.
func Equal(x, y *Value) *Value { return compare("EQ", x, y) }

// NotEqual is x ≠ y.
func NotEqual(x, y *Value) *Value { return compare("NE", x, y) }

// Less is x < y.
func Less(x, y *Value) *Value { return compare("LT", x, y) }

// LessEqual is x ≤ y.
func LessEqual(x, y *Value) *Value { return compare("LE", x, y) }

// Greater is x > y.
func Greater(x, y *Value) *Value { return compare("GT", x, y) }

// GreaterEqual is x ≥ y.
func GreaterEqual(x, y *Value) *Value { return compare("GE", x, y) }

// IsFinite is false for infinities and NaN.
func IsFinite(x *Value) *Value { return x.b().emit1(opIsFinite, nil, x) }

// Select takes elements of x where cond holds and of y elsewhere. The three are
// broadcast against each other.
func Select(cond, x, y *Value) *Value {
	x, y = broadcast2("select", x, y)
	shape, ok := broadcastShape(cond.typ.Shape, x.typ.Shape)
	if !ok {
		x.b().failAt(x.b().position(1), "select", []*Value{cond, x, y}, "the shapes do not broadcast")
	}
	return x.b().emit1(opSelect, nil, BroadcastTo(cond, shape...), BroadcastTo(x, shape...), BroadcastTo(y, shape...))
}

func printCompare(p *printer, op *Op) {
	t := op.operands[0].typ
	kind := "UNSIGNED"
	switch {
	case t.DType.IsFloat():
		kind = "FLOAT"
	case t.DType.IsSigned():
		kind = "SIGNED"
	}
	p.assign(op)
	p.write("stablehlo.compare ")
	p.write(op.attr.(string))
	p.write(", ")
	p.operands(op.operands)
	p.write(", ")
	p.write(kind)
	p.write(" : ")
	p.signature(op)
}
