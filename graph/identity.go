package graph

import (
	"fmt"
	"slices"

	"titan/sharding"
)

type constrainAttr struct {
	spec, ct sharding.Spec
	grad     DType
	again    bool
}

func init() {
	define(opStopGradient, opDef{
		name:   "stop_gradient",
		infer:  sameType,
		noGrad: true,
		view:   true,
		print:  printIdentity,
	})
	define(opName, opDef{
		name:   "name",
		infer:  sameType,
		wideCT: true, form: true,
		view:  true,
		vjp:   func(a *adjoint, op *Op, cts []*Value) { a.add(op.operands[0], cts[0]) },
		print: printIdentity,
	})
	define(opBarrier, opDef{
		name: "optimization_barrier",
		infer: func(op *Op) ([]Type, error) {
			var ts []Type
			for _, o := range op.operands {
				ts = append(ts, o.typ)
			}
			return ts, nil
		},
		wideCT: true, form: true, parallel: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			for i, ct := range cts {
				if ct != nil {
					a.add(op.operands[i], ct)
				}
			}
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.optimization_barrier ")
			p.operands(op.operands)
			p.write(" : ")
			p.types(op.operands)
		},
	})
	define(opConstrain, opDef{
		name:   "constrain",
		infer:  sameType,
		wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(constrainAttr)
			if !a.wants(op.operands[0]) {
				return
			}
			a.add(op.operands[0], Constrain(cts[0], at.ct))
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("sdy.sharding_constraint ")
			p.operands(op.operands)
			p.write(" ")
			p.sharding(op.attr.(constrainAttr).spec, op.results[0].typ.Rank())
			p.write(" : ")
			p.typ(op.results[0].typ)
		},
	})
}

// printIdentity gives the result the operand's name and writes nothing.
func printIdentity(p *printer, op *Op) { p.alias(op.results[0], op.operands[0]) }

// StopGradient is x, through which no cotangent flows back.
func StopGradient(x *Value) *Value { return x.b().emit1(opStopGradient, nil, x) }

// Name is x under a name that checkpoint policies refer to, such as "attn_out".
func Name(x *Value, name string) *Value {
	if name == "" {
		x.b().fail("name", "the name is empty")
	}
	return x.b().emit1(opName, name, x)
}

// Barrier returns its operands, none of which the compiler moves or merges
// across it before all are computed.
func Barrier(xs ...*Value) []*Value {
	if len(xs) == 0 {
		return nil
	}
	if xs[0] == nil {
		mistake("optimization_barrier", "operand is nil")
	}
	return slices.Clone(xs[0].b().emit(opBarrier, nil, xs...).results)
}

// ConstrainOption changes what Constrain does to cotangents.
type ConstrainOption func(*constrainAttr)

// Cotangent constrains the cotangent to spec instead of the value's own. A
// parameter that is gathered for use has its cotangent scattered again.
func Cotangent(spec sharding.Spec) ConstrainOption { return func(a *constrainAttr) { a.ct = spec } }

// GradIn makes contractions produce the cotangent in d, wider than the value,
// so that partial sums are added across devices in that precision.
func GradIn(d DType) ConstrainOption { return func(a *constrainAttr) { a.grad = d } }

// Again makes the backward pass constrain x once more where it needs the value,
// instead of keeping the result. A parameter gathered for a layer is gathered
// again, so that one layer at most is held whole.
func Again() ConstrainOption { return func(a *constrainAttr) { a.again = true } }

// Constrain fixes how x is split over the mesh at this point. Its cotangent is
// constrained in the same way unless Cotangent says otherwise.
func Constrain(x *Value, spec sharding.Spec, opts ...ConstrainOption) *Value {
	b := x.b()
	at := constrainAttr{spec: spec, ct: spec}
	for _, f := range opts {
		f(&at)
	}
	b.checkSpec("constrain", at.spec, x.typ.Shape)
	b.checkSpec("constrain", at.ct, x.typ.Shape)
	if at.grad != 0 && !at.grad.IsFloat() {
		b.fail("constrain", "GradIn(%v) is not a float", at.grad)
	}
	if used := b.axisSetOf("constrain", spec.Axes()) & b.top().manual; used != 0 {
		b.fail("constrain", "axes %s are manual here; inside a shard-map arrays are already local over them", quoted(b.m.axisNames(used)))
	}
	v := b.emit1(opConstrain, at, x)
	if v.spec = &at.spec; at.grad != 0 {
		v.gradType = at.grad
	}
	return v
}

// String describes a value, for debugging.
func (v *Value) String() string { return fmt.Sprintf("%%%d %s", v.id, describe(v)) }
