package optim

import (
	"slices"

	"titan/graph"
	"titan/sharding"
)

// run makes the matrices of all loads orthogonal, in a manual region: xs are the
// updates of all parameters that Muon updates, out receives the results.
func (j *job) run(b *graph.Builder, o muon, xs, out []*graph.Value) {
	var args []*graph.Value
	var specs []sharding.Spec
	for _, l := range j.loads {
		for _, i := range l.members {
			args, specs = append(args, xs[i]), append(specs, l.spec)
		}
	}
	results := b.ShardMap(args, specs, specs, func(local []*graph.Value) (ys []*graph.Value) {
		var x *graph.Value
		for _, l := range j.loads {
			part := j.deal(b, l, local[:len(l.members)])
			local = local[len(l.members):]
			x = chain(x, j.turned(l, part), l.first%j.per != 0)
		}
		x = o.newtonSchulz(x, j.loads[0].wide, j.loads[0].split)
		for _, l := range j.loads {
			from := l.first / j.per
			part := graph.SliceDim(x, 0, from, from+j.rounds(l))
			ys = append(ys, j.collect(l, j.turned(l, part))...)
		}
		return ys
	})
	for _, l := range j.loads {
		for _, i := range l.members {
			out[i], results = results[0], results[1:]
		}
	}
}

// rounds is the number of slots that a load has matrices in.
func (j *job) rounds(l *load) int { return ceil(l.first%j.per+l.count, j.per) }

// turned transposes the matrices of a load whose longer side is not that of the
// job's first.
func (j *job) turned(l *load, x *graph.Value) *graph.Value {
	if l.wide == j.loads[0].wide {
		return x
	}
	return graph.Transpose(x, 0, 2, 1)
}

// chain puts next after x. Where they overlap, the first slot of next has
// matrices on devices that have none in the last slot of x, and zeros elsewhere.
func chain(x, next *graph.Value, overlap bool) *graph.Value {
	if x == nil {
		return next
	}
	if !overlap {
		return graph.Concat(0, x, next)
	}
	n, k := x.Shape()[0], next.Shape()[0]
	parts := []*graph.Value{graph.Add(graph.SliceDim(x, 0, n-1, n), graph.SliceDim(next, 0, 0, 1))}
	if n > 1 {
		parts = slices.Insert(parts, 0, graph.SliceDim(x, 0, 0, n-1))
	}
	if k > 1 {
		parts = append(parts, graph.SliceDim(next, 0, 1, k))
	}
	return graph.Concat(0, parts...)
}

// deal brings the device its matrices of a load, [rounds, rows, columns] with
// zeros where it gets none.
func (j *job) deal(b *graph.Builder, l *load, local []*graph.Value) *graph.Value {
	matrix := l.local[l.view.stack:]
	var parts []*graph.Value
	for _, x := range local {
		parts = append(parts, graph.Reshape(x, append([]int{-1}, matrix...)...))
	}
	x := graph.Concat(0, parts...)
	rounds, before := j.rounds(l), l.first%j.per
	if after := rounds*j.per - before - l.count; before+after > 0 {
		low, high := make([]int, x.Rank()), make([]int, x.Rank())
		low[0], high[0] = before, after
		x = graph.Pad(x, b.Scalar(x.DType(), 0), low, high, nil)
	}
	x = graph.Reshape(x, append([]int{rounds, j.per}, matrix...)...)
	if len(j.share) > 0 {
		each := 1
		for _, m := range l.moves {
			each *= m.size
		}
		start := graph.Mul(b.AxisIndex(j.share...), b.Int(graph.S32, int64(each)))
		x = graph.DynamicSliceDim(x, 1, start, each)
	}
	for _, m := range l.moves {
		x = graph.AllToAll(x, 1, m.dim+2, m.axes...)
	}
	rows := product(x.Shape()[2 : 2+l.view.rows])
	return graph.Reshape(x, rounds, rows, -1)
}

// collect brings the parts of a load home: the reverse of deal.
func (j *job) collect(l *load, x *graph.Value) []*graph.Value {
	shape := slices.Concat([]int{j.rounds(l), 1}, l.local[l.view.stack:])
	for _, m := range l.moves {
		shape[m.dim+2] *= m.size
	}
	x = graph.Reshape(x, shape...)
	for _, m := range slices.Backward(l.moves) {
		x = graph.AllToAll(x, m.dim+2, 1, m.axes...)
	}
	if len(j.share) > 0 {
		x = graph.AllGatherSame(x, 1, j.share...)
	}
	x = graph.Reshape(x, append([]int{-1}, l.local[l.view.stack:]...)...)
	before := l.first % j.per
	parts := graph.Split(graph.SliceDim(x, 0, before, before+l.count), 0, len(l.members))
	for i := range parts {
		parts[i] = graph.Reshape(parts[i], l.local...)
	}
	return parts
}
