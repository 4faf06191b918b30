package optim

import (
	"slices"
	"strings"

	"titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// Muon needs whole matrices, and parameters lie in parts. Every device is given
// its share of the matrices: an all-to-all over the axes that split a matrix
// turns "a part of each of many" into "all of some", the iteration runs, and the
// reverse all-to-all brings the parts home. Axes along which devices hold equal
// copies (dp_replicate) take a share each and an all-gather at the end. Axes that
// split the stack (layers over pp, experts over ep) have done the sharing.

// flopsPerByte is about how many bf16 flops an accelerator does in the time in
// which a byte crosses its fast links: v5e and v5p 1,000 to 2,500, H100 2,200.
// It decides between whole and split matrices only, so its size matters little.
const flopsPerByte = 2000

// route is how matrices of one shape, stored in one way, travel.
type route struct {
	moves []move
	// share are axes with equal copies over which matrices are shared out.
	share []string
	// split are axes that split the longer side and go on doing so during the
	// iteration: where there are fewer matrices than devices and they are large.
	split []string
	// wide says that the iteration multiplies by the left: columns are the longer
	// side.
	wide  bool
	slots int // matrices on each device, padding included
}

// move is an all-to-all between the matrices' count and a dimension of one
// matrix.
type move struct {
	dim  int // of the stored array, without its stack
	axes []string
	size int
}

// split lists the mesh axes with more than one device that split dimensions lo to
// hi of an array, dimension by dimension.
func split(m *mesh.Mesh, spec sharding.Spec, lo, hi int) (axes []string) {
	for i := lo; i < hi; i++ {
		for _, a := range spec.Dim(i) {
			if m.AxisSize(a) > 1 {
				axes = append(axes, a)
			}
		}
	}
	return axes
}

func devices(m *mesh.Mesh, axes []string) int {
	n := 1
	for _, a := range axes {
		n *= m.AxisSize(a)
	}
	return n
}

// newRoute plans for count matrices on each device's part of the stack.
func newRoute(m *mesh.Mesh, spec sharding.Spec, rank int, v matrices, count int, o muon) route {
	used := split(m, spec, 0, rank)
	var free []string
	for _, a := range m.Axes() {
		if a.Size > 1 && !slices.Contains(used, a.Name) {
			free = append(free, a.Name)
		}
	}
	inner := split(m, spec, v.stack, rank)
	short, long := min(v.in, v.out), max(v.in, v.out)
	best, least := route{}, 0.0
	try := func(wide bool, side []string) { // side: axes of the longer side
		for set := range 1 << len(side) {
			var keep []string
			for i, a := range side {
				if set>>i&1 == 1 {
					keep = append(keep, a)
				}
			}
			k := devices(m, keep)
			if short%k != 0 {
				continue
			}
			r := route{share: free, split: keep, wide: wide, slots: ceil(count, devices(m, free)*devices(m, inner)/k)}
			s, l, n := float64(short), float64(long), float64(k)
			flops := (4*s*s*l + 2*s*s*s) / n
			bytes := 3 * s * s * float64(o.dtype.Size()) * (n - 1) / n
			if cost := float64(r.slots) * (flops + o.balance*bytes); best.slots == 0 || cost < least {
				best, least = r, cost
			}
		}
	}
	if v.in <= v.out {
		try(true, split(m, spec, v.stack+v.rows, rank))
	}
	if v.in >= v.out {
		try(false, split(m, spec, v.stack, v.stack+v.rows))
	}
	// An axis that does not shorten anybody's list need not take part. The first
	// axes of a mesh have the slowest links.
	per := devices(m, inner) / devices(m, best.split)
	for _, a := range free {
		rest := slices.DeleteFunc(slices.Clone(best.share), func(x string) bool { return x == a })
		if ceil(count, devices(m, rest)*per) == best.slots {
			best.share = rest
		}
	}
	for i := v.stack; i < rank; i++ {
		axes := slices.DeleteFunc(split(m, spec, i, i+1), func(a string) bool { return slices.Contains(best.split, a) })
		if len(axes) > 0 {
			best.moves = append(best.moves, move{i - v.stack, axes, devices(m, axes)})
		}
	}
	return best
}

func ceil(a, b int) int { return (a + b - 1) / b }

// load is parameters of the same shape, stored in the same way, whose matrices
// are shared out together.
type load struct {
	members []int // positions among those that Muon updates
	shape   []int
	spec    sharding.Spec
	view    matrices
	local   []int // shape of a device's part
	route
}

func (o *Optimizer) loads(b *graph.Builder, in Inputs, params []int) []*load {
	if len(in.Specs) != len(o.params) {
		b.Fail("optim: Muon shares its work out over the mesh and must know how parameters lie: Inputs.Specs has %d specs for %d parameters", len(in.Specs), len(o.params))
	}
	var all []*load
	byKey := map[string]*load{}
	for i, k := range params {
		p, spec := o.params[k], in.Specs[k]
		v, _ := p.matrices()
		key := strings.Join([]string{graph.T(o.muon.dtype, p.Shape...).String(), spec.String(), graph.T(o.muon.dtype, v.stack, v.rows).String()}, " ")
		s := byKey[key]
		if s == nil {
			local, err := spec.Shard(b.Mesh(), p.Shape)
			if err != nil {
				b.Fail("optim: parameter %s: %v", p.Name, err)
			}
			s = &load{shape: p.Shape, spec: spec, view: v, local: local}
			byKey[key] = s
			all = append(all, s)
		}
		s.members = append(s.members, i)
	}
	for _, s := range all {
		count := len(s.members) * product(s.local[:s.view.stack])
		s.route = newRoute(b.Mesh(), s.spec, len(s.shape), s.view, count, o.muon)
	}
	return all
}

// run makes the members' matrices orthogonal, in a manual region.
func (s *load) run(b *graph.Builder, o muon, xs []*graph.Value) []*graph.Value {
	specs := slices.Repeat([]sharding.Spec{s.spec}, len(xs))
	return b.ShardMap(xs, specs, specs, func(local []*graph.Value) []*graph.Value {
		matrix := s.local[s.view.stack:]
		for i, x := range local {
			local[i] = graph.Reshape(x, append([]int{product(s.local[:s.view.stack])}, matrix...)...)
		}
		x := graph.Concat(0, local...)
		count := x.Shape()[0]

		each := s.slots // matrices in a device's list before the all-to-alls
		for _, m := range s.moves {
			each *= m.size
		}
		padded := each * devices(b.Mesh(), s.share)
		if padded > count {
			high := make([]int, x.Rank())
			high[0] = padded - count
			x = graph.Pad(x, b.Scalar(x.DType(), 0), nil, high, nil)
		}
		if len(s.share) > 0 {
			start := graph.Mul(b.AxisIndex(s.share...), b.Int(graph.S32, int64(each)))
			x = graph.DynamicSliceDim(x, 0, start, each)
		}
		for _, m := range s.moves {
			x = graph.AllToAll(x, 0, m.dim+1, m.axes...)
		}
		shape := x.Shape()
		rows := product(shape[1 : 1+s.view.rows])
		x = o.newtonSchulz(graph.Reshape(x, shape[0], rows, product(shape[1+s.view.rows:])), s.wide, s.split)
		x = graph.Reshape(x, shape...)
		for _, m := range slices.Backward(s.moves) {
			x = graph.AllToAll(x, m.dim+1, 0, m.axes...)
		}
		if len(s.share) > 0 {
			x = graph.AllGatherSame(x, 0, s.share...)
		}
		out := graph.Split(graph.SliceDim(x, 0, 0, count), 0, len(xs))
		for i := range out {
			out[i] = graph.Reshape(out[i], s.local...)
		}
		return out
	})
}
