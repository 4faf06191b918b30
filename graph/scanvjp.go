package graph

// scanVJP runs the loop backwards. What the backward body needs of the forward
// one is carried over as extra stacked results of the forward loop, except
// what is cheap to compute again.
func scanVJP(a *adjoint, op *Op, cts []*Value) {
	at, body, b := op.attr.(*scanAttr), op.blocks[0], a.b
	nc, nk := at.consts, at.carries
	active := scanActive(a, op)

	s := b.beginScan(at.n, !at.reverse)
	r := newResidual(a, op, body, active, func(outer, _ *Value) *Value { return s.x(outer) })
	inner := r.adjoint

	// Cotangents of the carries go round the loop; those of constants add up.
	type slot struct{ arg, ct *Value }
	var carries, consts []slot
	for i := range nk {
		c := body.args[nc+i]
		if !active[c] {
			continue
		}
		b.popTo(s.depth, func() {
			if cts[i] == nil {
				cts[i] = b.Zeros(c.typ)
			}
			cts[i] = b.levelTo(Convert(cts[i], c.typ.DType), c.vary)
		})
		carries = append(carries, slot{c, s.carry(cts[i])})
	}
	for _, c := range body.args[:nc] {
		if !active[c] {
			continue
		}
		var zero *Value
		b.popTo(s.depth, func() { zero = b.levelTo(b.Zeros(Type{a.gradDType(c), c.typ.Shape}), c.vary) })
		consts = append(consts, slot{c, s.carry(zero)})
	}
	k := 0
	for i, y := range body.yields[:nk] {
		if active[body.args[nc+i]] {
			inner.add(y, carries[k].ct)
			k++
		}
	}
	for i, ct := range cts[nk:] {
		if ct != nil {
			inner.add(body.yields[nk+i], s.x(ct))
		}
	}
	inner.run(body.ops)

	var next, ys []*Value
	for _, c := range carries {
		ct := inner.cts[c.arg]
		if ct == nil {
			ct = ZerosLike(c.arg)
		}
		next = append(next, b.levelTo(Convert(ct, c.arg.typ.DType), c.arg.vary))
	}
	for _, c := range consts {
		acc := c.ct
		if ct := inner.cts[c.arg]; ct != nil {
			acc = Add(acc, Convert(ct, acc.typ.DType))
		}
		next = append(next, acc)
	}
	var xs []*Value
	for _, x := range body.args[nc+nk:] {
		if ct := inner.cts[x]; ct != nil && active[x] {
			xs = append(xs, x)
			ys = append(ys, b.levelTo(ct, x.vary))
		}
	}
	outCarry, outYs := s.end(next, ys)
	for i, c := range carries {
		a.add(op.operands[c.arg.index], outCarry[i])
	}
	for i, c := range consts {
		a.add(op.operands[c.arg.index], outCarry[len(carries)+i])
	}
	for i, x := range xs {
		a.add(op.operands[x.index], outYs[i])
	}
}

// popTo runs f with the recording position moved out to frame depth.
func (b *Builder) popTo(depth int, f func()) {
	saved := b.frames
	b.frames = b.frames[: depth+1 : depth+1]
	f()
	b.frames = saved
}

// scanActive finds the values of the body that need cotangents. A carry that
// becomes active in the body is active from the start of the next iteration.
func scanActive(a *adjoint, op *Op) map[*Value]bool {
	at, body := op.attr.(*scanAttr), op.blocks[0]
	active := map[*Value]bool{}
	for i, arg := range body.args {
		active[arg] = a.wants(op.operands[i]) && arg.typ.DType.IsFloat()
	}
	for {
		propagate(active, body.ops)
		grown := false
		for i, y := range body.yields[:at.carries] {
			if c := body.args[at.consts+i]; active[y] && !active[c] && c.typ.DType.IsFloat() {
				active[c], grown = true, true
			}
		}
		if !grown {
			return active
		}
	}
}
