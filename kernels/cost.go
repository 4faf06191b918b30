package kernels

// Cost is what one call of a kernel takes on one core or device.
type Cost struct {
	Flops           float64
	Transcendentals float64
	Bytes           float64 // copied between device memory and vector memory
}

// Cost returns the kernel's cost. Dynamic dimensions of the grid count with what
// is expected of them; blocks are copied as often as typical data ask for (Expect),
// else whenever their indices could change.
func (k *Kernel) Cost() Cost {
	c := Cost{Flops: k.flops, Transcendentals: k.transc}
	if !k.counted {
		steps := 1.0
		for _, d := range k.grid {
			steps *= float64(d.expected)
		}
		for v := range k.live() {
			f, t := v.cost()
			c.Flops, c.Transcendentals = c.Flops+f*steps, c.Transcendentals+t*steps
		}
	}
	if e := k.expected(); e != nil {
		c.Bytes = e.Bytes()
		return c
	}
	for _, r := range k.windows() {
		c.Bytes += float64(k.copies(r)) * float64(r.sheets()*r.tile().Bytes())
	}
	return c
}

// copies is how often r's block changes: once for each step along the dimensions
// of the grid down to the innermost one that its index depends on. Indices that
// happen to repeat are not known here.
func (k *Kernel) copies(r *Ref) int {
	inner := -1
	var find func(v *Value)
	find = func(v *Value) {
		if v.op == opGrid {
			inner = max(inner, int(v.num))
		}
		for _, a := range v.args {
			find(a)
		}
	}
	for _, ix := range r.index {
		find(ix)
	}
	n := 1
	for _, d := range k.grid[:inner+1] {
		n *= d.expected
	}
	return n
}

// cost of one execution.
func (v *Value) cost() (flops, transcendentals float64) {
	n := float64(v.typ.Elements())
	switch v.op {
	case opDot:
		return 2 * n * float64(v.args[0].typ.Shape[v.dot[0]]), 0
	case opAdd, opSub, opMul, opDiv, opMin, opMax:
		if v.typ.DType.IsFloat() {
			return n, 0
		}
	case opReduceSum, opReduceMax:
		return float64(v.args[0].typ.Elements()), 0
	case opExp, opLog, opRsqrt, opTanh:
		return 0, n
	}
	return 0, 0
}
