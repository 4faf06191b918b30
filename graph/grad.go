package graph

// adjoint differentiates the ops of one block in reverse. Cotangents are
// recorded in the builder's current block; resolve turns a forward value into
// one that can be used there (nil when both are the same block).
type adjoint struct {
	b       *Builder
	cts     map[*Value]*Value
	active  map[*Value]bool // forward values that depend on what is asked for
	resolve func(*Value) *Value
}

// val is the forward value v, usable where cotangents are recorded.
func (a *adjoint) val(v *Value) *Value {
	v = v.saved()
	if a.resolve == nil {
		return v
	}
	return a.resolve(v)
}

// wants reports whether v's cotangent is needed.
func (a *adjoint) wants(v *Value) bool { return a.active[v] }

// gradDType is the type in which sums that make v's cotangent are taken.
func (a *adjoint) gradDType(v *Value) DType {
	if v.gradType != 0 {
		return v.gradType
	}
	return v.typ.DType
}

// add accumulates ct into v's cotangent; a nil ct is zero.
func (a *adjoint) add(v, ct *Value) {
	if ct == nil || !a.active[v] {
		return
	}
	if !sameShape(v.typ, ct.typ) {
		a.b.fail("grad", "internal: cotangent of type %v for a value of type %v", ct.typ, v.typ)
	}
	if old := a.cts[v]; old != nil {
		x, y := matchFloat(old, ct)
		ct = Add(x, y)
	}
	a.cts[v] = ct
}

func sameShape(x, y Type) bool { return Type{F32, x.Shape}.Equal(Type{F32, y.Shape}) }

func (a *adjoint) missing(op *Op) {
	a.b.failAt(op.pos, defs[op.kind].name, op.operands, "has no derivative in reverse mode; wrap it in CustomVJP or StopGradient")
}

// run differentiates ops, last first.
func (a *adjoint) run(ops []*Op) {
	outer := a.b.at
	defer func() { a.b.at = outer }()
	for i := len(ops) - 1; i >= 0; i-- {
		op := ops[i]
		def := &defs[op.kind]
		var cts []*Value
		for j, r := range op.results {
			ct := a.cts[r]
			if ct == nil {
				continue
			}
			if cts == nil {
				cts = make([]*Value, len(op.results))
			}
			if ct.typ.DType != r.typ.DType && !def.wideCT {
				ct = Convert(ct, r.typ.DType)
			}
			cts[j] = ct
		}
		if cts == nil || def.noGrad || !a.anyActive(op) {
			continue
		}
		a.b.at = &op.pos
		if def.vjp == nil {
			a.missing(op)
		}
		def.vjp(a, op, cts)
	}
}

// anyActive reports whether an operand's cotangent is needed. The values asked
// for are active themselves while the op that made them is not differentiated.
func (a *adjoint) anyActive(op *Op) bool {
	for _, o := range op.operands {
		if a.active[o] {
			return true
		}
	}
	return false
}

// propagate extends active over ops: what is computed from active floats.
func propagate(active map[*Value]bool, ops []*Op) {
	for _, op := range ops {
		if defs[op.kind].noGrad {
			continue
		}
		for _, o := range op.operands {
			if !active[o] {
				continue
			}
			for _, r := range op.results {
				if r.typ.DType.IsFloat() {
					active[r] = true
				}
			}
			break
		}
	}
}

// VJP gives the cotangents of wrt, given the cotangents of outs: the vector
// Jacobian product in reverse mode. All values must belong to the block being
// recorded or to one around it; ops recorded so far are differentiated, the
// result is recorded after them and can be differentiated again. A nil
// cotangent is zero. Integer and boolean values have no cotangent: asking for
// one is an error, passing through one stops the flow, as in JAX.
func VJP(outs, cotangents, wrt []*Value) []*Value {
	if len(outs) == 0 || outs[0] == nil {
		mistake("vjp", "no outputs, or the first is nil")
	}
	b := outs[0].b()
	if len(cotangents) != len(outs) {
		b.fail("vjp", "%d cotangents for %d outputs", len(cotangents), len(outs))
	}
	a := &adjoint{b: b, cts: map[*Value]*Value{}, active: map[*Value]bool{}}
	local := make([]*Value, len(wrt))
	for i, w := range wrt {
		local[i] = b.use("vjp", w)
		if !w.typ.DType.IsFloat() {
			b.failAt(b.position(1), "vjp", []*Value{w}, "cannot differentiate with respect to %v values", w.typ.DType)
		}
		a.active[local[i]] = true
	}
	ops := b.top().block.ops
	propagate(a.active, ops)
	for i, o := range outs {
		o = b.use("vjp", o)
		ct := cotangents[i]
		if ct == nil || !o.typ.DType.IsFloat() {
			continue
		}
		if !sameShape(ct.typ, o.typ) {
			b.failAt(b.position(1), "vjp", []*Value{o, ct}, "the cotangent's shape differs from the output's")
		}
		if extra := ct.vary &^ o.vary; extra != 0 {
			b.failAt(b.position(1), "vjp", []*Value{o, ct}, "the cotangent differs from device to device over %s, where the output is the same; reduce it (AllReduce)", quoted(b.m.axisNames(extra)))
		}
		if !a.active[o] {
			continue
		}
		a.add(o, b.levelTo(ct, o.vary))
	}
	a.run(ops)
	grads := make([]*Value, len(wrt))
	for i, w := range local {
		if g := a.cts[w]; g != nil {
			grads[i] = Convert(g, w.typ.DType)
		} else {
			grads[i] = b.levelTo(ZerosLike(w), w.vary)
		}
	}
	b.checkPass("differentiation")
	return grads
}

// Grad gives the derivatives of the scalar loss with respect to wrt, each with
// the type of the value it belongs to.
func Grad(loss *Value, wrt ...*Value) []*Value {
	if loss == nil {
		mistake("grad", "the loss is nil")
	}
	b := loss.b()
	if loss.Rank() != 0 || !loss.typ.DType.IsFloat() {
		b.failAt(b.position(1), "grad", []*Value{loss}, "the loss must be a scalar float; sum it first")
	}
	return VJP([]*Value{loss}, []*Value{b.Scalar(loss.typ.DType, 1)}, wrt)
}
