package graph

// LayersOptions says how Layers records a stack of equal layers.
type LayersOptions struct {
	// Remat is what each checkpointed layer keeps for the backward pass; nil
	// checkpoints none.
	Remat *Policy
	// Every checkpoints only every n-th layer (0, n, 2n, …); 0 and 1 mean all.
	Every int
	// Unroll records each layer instead of one loop over them.
	Unroll bool
}

// Layers applies body once for each row of xs, threading carry through, as Scan
// does, with activation checkpointing around the layers that o selects. With
// Every = n the loop advances n layers at a time, so the program holds n layers
// whatever their number (and up to n-1 more after the loop).
func (b *Builder) Layers(init, xs []*Value, body func(carry, x []*Value) (next, ys []*Value), o LayersOptions) (carry, ys []*Value) {
	if len(xs) == 0 || xs[0] == nil || xs[0].Rank() == 0 {
		b.fail("layers", "nothing to iterate over: xs must be arrays with a leading layer dimension")
	}
	n, every := xs[0].typ.Shape[0], max(1, o.Every)
	if o.Remat == nil {
		every = 1
	}
	for _, x := range xs {
		if x == nil || x.Rank() == 0 || x.typ.Shape[0] != n {
			b.failAt(b.position(1), "layers", xs, "all must have the same leading layer dimension")
		}
	}
	one := func(i int, carry, x []*Value) (next, ys []*Value) {
		if o.Remat == nil || i%every != 0 {
			return body(carry, x)
		}
		carries := 0
		all := b.Checkpoint(*o.Remat, func() []*Value {
			c, y := body(carry, x)
			carries = len(c)
			return append(append([]*Value(nil), c...), y...)
		})
		return all[:carries:carries], all[carries:]
	}
	looped := n - n%every
	if o.Unroll {
		looped = 0
	}
	carry = init
	var rest [][]*Value // rows of ys that are not in the loop
	if looped > 0 {
		carry, ys = b.scanGroups(carry, xs, looped, every, one)
	}
	for i := looped; i < n; i++ {
		var y []*Value
		carry, y = one(i, carry, rowsAt(xs, i))
		rest = append(rest, y)
	}
	if len(rest) == 0 {
		return carry, ys
	}
	for k := range rest[0] {
		parts := []*Value{}
		if looped > 0 {
			parts = append(parts, ys[k])
		}
		for _, r := range rest {
			parts = append(parts, ExpandDims(r[k], 0))
		}
		if looped > 0 {
			ys[k] = Concat(0, parts...)
		} else {
			ys = append(ys, Concat(0, parts...))
		}
	}
	return carry, ys
}

// scanGroups loops over the first n rows, every of them in one iteration.
func (b *Builder) scanGroups(init, xs []*Value, n, every int, one func(i int, carry, x []*Value) (next, ys []*Value)) (carry, ys []*Value) {
	grouped := make([]*Value, len(xs))
	for i, x := range xs {
		x = SliceDim(x, 0, 0, n)
		if every > 1 {
			x = Reshape(x, append([]int{n / every, every}, x.typ.Shape[1:]...)...)
		}
		grouped[i] = x
	}
	carry, ys = b.Scan(init, grouped, func(c, x []*Value) (next, out []*Value) {
		if every == 1 {
			return one(0, c, x)
		}
		var rows [][]*Value
		for i := range every {
			var y []*Value
			c, y = one(i, c, rowsAt(x, i))
			rows = append(rows, y)
		}
		for k := range rows[0] {
			var parts []*Value
			for _, r := range rows {
				parts = append(parts, r[k])
			}
			out = append(out, Stack(0, parts...))
		}
		return c, out
	})
	if every > 1 {
		for k, y := range ys {
			ys[k] = Reshape(y, append([]int{n}, y.typ.Shape[2:]...)...)
		}
	}
	return carry, ys
}

// rowsAt takes row i of every array.
func rowsAt(xs []*Value, i int) []*Value {
	out := make([]*Value, len(xs))
	for k, x := range xs {
		out[k] = Squeeze(SliceDim(x, 0, i, i+1), 0)
	}
	return out
}
