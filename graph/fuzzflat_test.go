package graph_test

import (
	"fmt"
	"slices"

	. "titan/graph"
	"titan/sharding"
)

// eval records a block as it stands.
func (blk *fblock) eval(b *Builder, outer, params []*Value) []*Value {
	env := outer
	if blk.closed {
		env = nil
	}
	env = append(slices.Clone(env), params...)
	for _, n := range blk.nodes {
		env = append(env, n.eval(b, env)...)
	}
	return pickAll(env, blk.yields)
}

func pickAll[E any](xs []E, at []int) (out []E) {
	for _, i := range at {
		out = append(out, xs[i])
	}
	return out
}

func (n *fnode) eval(b *Builder, env []*Value) []*Value {
	x := pickAll(env, n.in)
	switch n.op {
	case "scan":
		c := n.ints[1]
		opts := []ScanOption{Iterations(n.ints[0])}
		if n.ints[2] == 1 {
			opts = append(opts, InReverse())
		}
		carry, ys := b.Scan(x[:c], x[c:], func(carry, row []*Value) (next, ys []*Value) {
			out := n.blocks[0].eval(b, env, slices.Concat(carry, row))
			return out[:c], out[c:]
		}, opts...)
		return append(carry, ys...)
	case "checkpoint":
		return b.Checkpoint(n.policy, func() []*Value { return n.blocks[0].eval(b, env, nil) })
	case "cond":
		return b.Cond(Greater(Sum(x[0]), b.Scalar(F64, 0)), func() []*Value { return n.blocks[0].eval(b, env, nil) },
			func() []*Value { return n.blocks[1].eval(b, env, nil) })
	case "shard_map":
		var list []sharding.Spec
		for _, dims := range n.specs {
			list = append(list, sharding.Spec{Dims: dims})
		}
		return b.ShardMap(x, list[:len(x)], list[len(x):], func(local []*Value) []*Value { return n.blocks[0].eval(b, env, local) }, ManualOver(n.axes...))
	case "grad":
		for i := range x {
			x[i] = Barrier(x[i])[0] // no other way leads to it
		}
		ys := n.blocks[0].eval(b, nil, x)
		cts := make([]*Value, len(ys))
		for i, y := range ys {
			cts[i] = b.Full(y.Type(), 1)
		}
		return VJP(ys, cts, x)
	case "constrain":
		return []*Value{Constrain(x[0], sharding.Spec{Dims: n.specs[0]})}
	case "all_reduce":
		return []*Value{MulScalar(AllReduce(x[0], n.axes...), 0.5)}
	case "all_reduce_max":
		return []*Value{AllReduceMax(x[0], n.axes...)}
	case "all_gather":
		return []*Value{AllGather(x[0], n.ints[0], n.axes...)}
	case "all_gather_same":
		return []*Value{AllGatherSame(x[0], n.ints[0], n.axes...)}
	case "reduce_scatter":
		return []*Value{MulScalar(ReduceScatter(x[0], n.ints[0], n.axes...), 0.5)}
	case "all_to_all":
		return []*Value{AllToAll(x[0], n.ints[0], n.ints[1], n.axes...)}
	case "shift":
		return []*Value{Shift(x[0], n.ints[0], n.axes[0])}
	case "permute": // to one only; the other gets zeros
		return []*Value{Permute(x[0], [][2]int{{0, 1}}, n.axes[0])}
	case "fit":
		return []*Value{n.fit(x[0])}
	case "axis_index":
		return []*Value{Mul(x[0], AddScalar(MulScalar(Convert(b.AxisIndex(n.axes...), F64), 0.3), 0.5))}
	}
	return []*Value{simpleByName[n.op].eval(n, x)}
}

// fit gives any value the shape in ints.
func (n *fnode) fit(x *Value) *Value { return BroadcastTo(Tanh(Sum(x)), n.ints...) }

// A flat program has no regions: loops are unrolled, checkpoints dropped, both
// branches computed, and a value is kept for every device, so that collectives
// become additions and concatenations. The list holds one value for each
// position in the mesh.
type flat []*Value

const positions = 1 << 2 // of fuzzAxes, each of fuzzAxisSize

// home is the position that p equals in everything that varies over v only.
func home(p int, v axes) int {
	for i := range fuzzAxes {
		if v>>i&1 == 0 {
			p &^= 1 << (len(fuzzAxes) - 1 - i)
		}
	}
	return p
}

// group lists the positions that differ from p along the named axes only, the
// first axis slowest, and p's place among them.
func group(p int, names []string) (members []int, at int) {
	set := axesOf(names)
	base := home(p, ^set&(1<<len(fuzzAxes)-1))
	for k := range 1 << len(names) {
		q := base
		for j, n := range names {
			if k>>(len(names)-1-j)&1 == 1 {
				q |= 1 << (len(fuzzAxes) - 1 - slices.Index(fuzzAxes, n))
			}
		}
		if q == p {
			at = k
		}
		members = append(members, q)
	}
	return members, at
}

// spread makes a flat value that varies over v from what f gives for positions.
func spread(v axes, f func(p int) *Value) flat {
	out := make(flat, positions)
	for p := range out {
		if h := home(p, v); h != p {
			out[p] = out[h]
		} else {
			out[p] = f(p)
		}
	}
	return out
}

func same(v *Value) flat { return spread(0, func(int) *Value { return v }) }

func (blk *fblock) flat(b *Builder, outer, params []flat) []flat {
	env := outer
	if blk.closed {
		env = nil
	}
	env = append(slices.Clone(env), params...)
	for _, n := range blk.nodes {
		env = append(env, n.flat(b, env)...)
	}
	return pickAll(env, blk.yields)
}

func at(vs []flat, p int) (out []*Value) {
	for _, v := range vs {
		out = append(out, v[p])
	}
	return out
}

func (n *fnode) flat(b *Builder, env []flat) []flat {
	x := pickAll(env, n.in)
	switch n.op {
	case "scan":
		return n.flatScan(b, env, x)
	case "checkpoint":
		return n.blocks[0].flat(b, env, nil)
	case "cond":
		yes, no := n.blocks[0].flat(b, env, nil), n.blocks[1].flat(b, env, nil)
		var out []flat
		for i, o := range n.outs {
			out = append(out, spread(o.vary, func(p int) *Value {
				pred := Greater(Sum(x[0][p]), b.Scalar(F64, 0))
				return Select(BroadcastTo(pred, o.shape...), yes[i][p], no[i][p])
			}))
		}
		return out
	case "shard_map":
		return n.flatShardMap(b, env, x)
	case "grad":
		return n.flatGrad(b, x)
	}
	return []flat{spread(n.outs[0].vary, func(p int) *Value { return n.flatOp(x, p) })}
}

// flatOp is what position p gets from an op of one result.
func (n *fnode) flatOp(x []flat, p int) *Value {
	members, me := group(p, n.axes)
	parts := func(split int) (out []*Value) { // of all members, or part me of each along split
		for _, q := range members {
			v := x[0][q]
			if split >= 0 {
				v = Split(v, split, len(members))[me]
			}
			out = append(out, v)
		}
		return out
	}
	sum := func(vs []*Value) *Value {
		for _, v := range vs[1:] {
			vs[0] = Add(vs[0], v)
		}
		return vs[0]
	}
	switch n.op {
	case "all_reduce":
		return MulScalar(sum(parts(-1)), 0.5)
	case "all_reduce_max":
		return ReduceMax(Stack(0, parts(-1)...), 0) // which shares ties equally
	case "all_gather", "all_gather_same":
		return Concat(n.ints[0], parts(-1)...)
	case "reduce_scatter":
		return MulScalar(sum(parts(n.ints[0])), 0.5)
	case "all_to_all":
		return Concat(n.ints[1], parts(n.ints[0])...)
	case "shift":
		k := len(members)
		return x[0][members[((me-n.ints[0])%k+k)%k]]
	case "permute":
		if me == 0 {
			return ZerosLike(x[0][p])
		}
		return x[0][members[0]]
	case "constrain":
		return x[0][p]
	case "fit":
		return n.fit(x[0][p])
	case "axis_index":
		return MulScalar(x[0][p], 0.5+0.3*float64(me))
	}
	return simpleByName[n.op].eval(n, at(x, p))
}

func (n *fnode) flatScan(b *Builder, env, x []flat) []flat {
	count, c := n.ints[0], n.ints[1]
	carry := slices.Clone(x[:c])
	rows := make([][]flat, count)
	for k := range count {
		i := k
		if n.ints[2] == 1 {
			i = count - 1 - k
		}
		var row []flat
		for j, v := range x[c:] {
			row = append(row, spread(n.blocks[0].params[c+j].vary, func(p int) *Value { return Squeeze(SliceDim(v[p], 0, i, i+1), 0) }))
		}
		out := n.blocks[0].flat(b, env, slices.Concat(carry, row))
		carry, rows[i] = out[:c], out[c:]
	}
	for y := range rows[0] {
		carry = append(slices.Clone(carry), spread(n.outs[c+y].vary, func(p int) *Value {
			var column []*Value
			for i := range count {
				column = append(column, rows[i][y][p])
			}
			return Stack(0, column...)
		}))
	}
	return carry
}

func (n *fnode) flatShardMap(b *Builder, env, x []flat) []flat {
	var local []flat
	for i, v := range x {
		local = append(local, spread(n.blocks[0].params[i].vary, func(p int) *Value {
			part := v[p]
			for d, names := range n.specs[i] {
				members, me := group(p, names)
				part = Split(part, d, len(members))[me]
			}
			return part
		}))
	}
	ys := n.blocks[0].flat(b, env, local)
	var out []flat
	for i, y := range ys {
		out = append(out, spread(n.outs[i].vary, func(p int) *Value { return assemble(y, p, n.specs[len(x)+i], 0) }))
	}
	return out
}

// assemble puts the parts of the positions around p together, from dimension d on.
func assemble(y flat, p int, spec [][]string, d int) *Value {
	if d == len(spec) {
		return y[p]
	}
	members, _ := group(p, spec[d])
	var parts []*Value
	for _, q := range members {
		parts = append(parts, assemble(y, q, spec, d+1))
	}
	return Concat(d, parts...)
}

// flatGrad: every device's results count, once for each device that holds
// different ones.
func (n *fnode) flatGrad(b *Builder, x []flat) []flat {
	blk := n.blocks[0]
	for i, v := range x {
		x[i] = spread(blk.params[i].vary, func(p int) *Value { return Barrier(v[p])[0] })
	}
	// infer leaves the types of results in the nodes; those of parameters that
	// are yielded are the parameters'.
	types := blk.infer(nil)
	ys := blk.flat(b, nil, x)
	var out []flat
	for i := range x {
		out = append(out, spread(blk.params[i].vary, func(p int) *Value {
			loss := b.Scalar(F64, 0)
			for k, y := range ys {
				members, _ := group(p, types[k].vary.names())
				for _, q := range members {
					loss = Add(loss, Sum(y[q]))
				}
			}
			return Grad(loss, x[i][p])[0]
		}))
	}
	return out
}

// forms gives the two ways to write a program.
func (p *fprogram) forms() (structured, flattened form) {
	structured = func(b *Builder, x []*Value) []*Value { return p.main.eval(b, nil, x) }
	flattened = func(b *Builder, x []*Value) []*Value {
		var in []flat
		for _, v := range x {
			in = append(in, same(v))
		}
		return at(p.main.flat(b, nil, in), 0)
	}
	return structured, flattened
}

// checked makes a case of the program, at inputs of the given seed.
func (p *fprogram) checked(inputs uint64) checked {
	c := checked{name: fmt.Sprintf("seed %d, budget %d", p.seed, p.budget), tol: 1e-5, onlyValues: p.seed%2 == 1}
	for i, t := range p.main.params {
		c.in = append(c.in, normal(inputs+uint64(i), t.shape...))
	}
	var other form
	c.f, other = p.forms()
	c.same = []form{other}
	return c
}
