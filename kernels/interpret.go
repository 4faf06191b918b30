package kernels

import (
	"math"
	"slices"

	"titan/dtype"
	"titan/graph"
)

// interpret records k as a loop over the grid, with ordinary ops. bounds are the
// dynamic grid bounds. Scratch and outputs start as zeros or, if strict, poisoned:
// with NaN (or the smallest s32), and so is an output block whenever the kernel
// comes to it, so that whoever relies on undefined contents gets a wrong result.
func (k *Kernel) interpret(b *graph.Builder, bounds, prefetch, ins []*graph.Value, strict bool) []*graph.Value {
	in := &interpreter{k: k, b: b, strict: strict, live: k.live(), prefetch: map[*Ref]*graph.Value{}}
	for i, r := range k.refs[prefetched] {
		in.prefetch[r] = prefetch[i]
	}
	arrays := map[*Ref]*graph.Value{}
	for i, r := range k.refs[input] {
		arrays[r] = ins[i]
	}
	total := in.int(1)
	for i, d := range k.grid {
		n := in.int(d.n)
		if d.dynamic {
			n, bounds = bounds[0], bounds[1:]
		}
		in.sizes = append(in.sizes, n)
		total = graph.Mul(total, in.sizes[i])
	}
	outs, scratches := k.refs[output], k.refs[scratch]
	init := []*graph.Value{in.int(0)}
	for _, r := range slices.Concat(outs, scratches) {
		init = append(init, in.empty(r.typ))
	}
	res := b.While(init,
		func(c []*graph.Value) *graph.Value { return graph.Less(c[0], total) },
		func(c []*graph.Value) []*graph.Value {
			step, at := c[0], map[*Ref][]*graph.Value{}
			env := in.step(step)
			before := in.step(graph.Sub(step, in.int(1)))
			st := state{}
			for _, r := range k.refs[input] {
				st[r] = in.block(arrays[r], r, in.starts(r, env))
			}
			for i, r := range outs {
				at[r] = in.starts(r, env)
				st[r] = in.block(c[1+i], r, at[r])
				if strict {
					st[r] = in.poison(st[r], step, at[r], in.starts(r, before))
				}
			}
			for i, r := range scratches {
				st[r] = c[1+len(outs)+i]
			}
			st = in.run(k.main, env, st)
			next := []*graph.Value{graph.Add(step, in.int(1))}
			for i, r := range outs {
				next = append(next, graph.DynamicUpdateSlice(c[1+i], graph.Reshape(st[r], r.block...), at[r]...))
			}
			for _, r := range scratches {
				next = append(next, st[r])
			}
			return next
		})
	return res[1 : 1+len(outs)]
}

type (
	env   map[*Value]*graph.Value // values of the kernel that have been computed
	state map[*Ref]*graph.Value   // tiles
)

type interpreter struct {
	k        *Kernel
	b        *graph.Builder
	strict   bool
	live     map[*Value]bool
	sizes    []*graph.Value // of the grid
	prefetch map[*Ref]*graph.Value
}

func (in *interpreter) int(x int) *graph.Value { return in.b.Int(dtype.S32, int64(x)) }

func (in *interpreter) empty(t graph.Type) *graph.Value {
	switch {
	case !in.strict:
		return in.b.Zeros(t)
	case t.DType.IsFloat():
		return in.b.Full(t, math.NaN())
	}
	return in.b.Full(t, math.MinInt32)
}

// step returns where a step is on the grid.
func (in *interpreter) step(i *graph.Value) env {
	e := env{}
	for d := len(in.sizes) - 1; d >= 0; d-- {
		e[in.k.ids[d]] = i
		if d > 0 {
			e[in.k.ids[d]] = graph.Rem(i, in.sizes[d])
			i = graph.Div(i, in.sizes[d])
		}
	}
	return e
}

// scalar returns what v, an index, is at a step.
func (in *interpreter) scalar(v *Value, e env) *graph.Value {
	if x, ok := e[v]; ok {
		return x
	}
	for _, a := range v.args {
		in.scalar(a, e)
	}
	e[v] = in.value(v, e, nil)
	return e[v]
}

// starts returns the first element of r's block.
func (in *interpreter) starts(r *Ref, e env) []*graph.Value {
	e = copied(e)
	var at []*graph.Value
	for i, ix := range r.index {
		at = append(at, graph.Mul(in.scalar(ix, e), in.int(r.block[i])))
	}
	return at
}

func (in *interpreter) block(array *graph.Value, r *Ref, at []*graph.Value) *graph.Value {
	return graph.Reshape(graph.DynamicSlice(array, r.block, at...), r.held()...)
}

// held is the shape in which the interpreter holds a block: a tile, or its sheets.
func (r *Ref) held() []int {
	if r.sheets() > 1 {
		return r.block[len(r.block)-3:]
	}
	return r.tile().Shape
}

// poison returns tile, poisoned if the block is not that of the step before.
func (in *interpreter) poison(tile, step *graph.Value, at, before []*graph.Value) *graph.Value {
	fresh := graph.Equal(step, in.int(0))
	for i := range at {
		fresh = graph.Or(fresh, graph.NotEqual(at[i], before[i]))
	}
	return graph.Select(fresh, in.empty(tile.Type()), tile)
}

// run executes a block.
func (in *interpreter) run(blk *block, e env, st state) state {
	e, st = copied(e), copied(st)
	for _, v := range blk.ops {
		switch {
		case !in.live[v] || e[v] != nil:
		case v.op == opStore:
			st[v.ref] = in.store(v, e, st[v.ref])
		case v.op == opIf:
			changed := stored(v.body, nil)
			if len(changed) == 0 {
				continue
			}
			tiles := func(s state) (ts []*graph.Value) {
				for _, r := range changed {
					ts = append(ts, s[r])
				}
				return ts
			}
			now := in.b.Cond(e[v.args[0]],
				func() []*graph.Value { return tiles(in.run(v.body, e, st)) },
				func() []*graph.Value { return tiles(st) })
			for i, r := range changed {
				st[r] = now[i]
			}
		default:
			e[v] = in.value(v, e, st)
		}
	}
	return st
}

// stored appends to refs those that b stores to.
func stored(b *block, refs []*Ref) []*Ref {
	for _, v := range b.ops {
		if v.op == opIf {
			refs = stored(v.body, refs)
		} else if v.op == opStore && !slices.Contains(refs, v.ref) {
			refs = append(refs, v.ref)
		}
	}
	return refs
}

func copied[M ~map[K]V, K comparable, V any](m M) M {
	c := make(M, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// store returns what a block is after v has stored to it.
func (in *interpreter) store(v *Value, e env, old *graph.Value) *graph.Value {
	x := e[v.args[0]]
	switch {
	case v.ref.sheets() > 1:
		x = graph.Reshape(x, append([]int{1}, x.Shape()...)...)
		return graph.DynamicUpdateSlice(old, x, e[v.args[1]], in.int(int(v.num)), in.int(0))
	case slices.Equal(x.Shape(), old.Shape()):
		return x
	}
	return graph.DynamicUpdateSliceDim(old, x, 0, in.int(int(v.num)))
}
