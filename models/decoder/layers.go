package decoder

import (
	"strings"

	"titan/graph"
)

// plan is how layers of two kinds are recorded: some one by one, then a loop
// whose body holds period layers, then the rest one by one.
type plan struct{ first, period, loops int }

// planLayers finds the plan that records the fewest layers. multiple is what the
// period must be a multiple of.
func planLayers(kinds []bool, multiple int) plan {
	n := len(kinds)
	best, cost := plan{first: n}, n
	for first := 0; first < n && first < cost; first++ {
		for period := multiple; first+period < cost && first+2*period <= n; period += multiple {
			end := first + period
			for end < n && kinds[end] == kinds[end-period] {
				end++
			}
			loops := (end - first) / period
			if c := n - (loops-1)*period; loops > 1 && c < cost {
				best, cost = plan{first, period, loops}, c
			}
		}
	}
	return best
}

// kinds tells of this device's layers which are sparse. Every stage has the same.
func (m *Model) kinds() []bool {
	kinds := make([]bool, m.Config.Layers/m.Placement.Stages().Devices())
	for i := range kinds {
		kinds[i] = m.Config.Sparse(i)
	}
	return kinds
}

// layers runs this device's decoder layers on x. one records a single layer.
func (m *Model) layers(b *graph.Builder, params map[string]*graph.Value, x *graph.Value, one func(x *graph.Value, sparse bool, w weights) (*graph.Value, balance)) (*graph.Value, []balance) {
	kinds := m.kinds()
	keep, every := m.Options.Remat.Policy()
	p := plan{first: len(kinds)}
	if !m.Options.Unroll {
		p = planLayers(kinds, max(1, every))
	}
	stacks := m.stacks(params, kinds)
	checkpointed := func(i int, x *graph.Value, w weights) (*graph.Value, balance) {
		if keep == nil || i%every != 0 {
			return one(x, kinds[i], w)
		}
		out := b.Checkpoint(*keep, func() []*graph.Value {
			y, r := one(x, kinds[i], w)
			return append([]*graph.Value{y}, r.list()...)
		})
		return out[0], balanceOf(out[1:])
	}
	var balances []balance
	note := func(r balance) {
		if r.chosen != nil {
			balances = append(balances, r)
		}
	}
	single := func(i int) {
		var r balance
		x, r = checkpointed(i, x, stacks.row(i))
		note(r)
	}
	for i := range p.first {
		single(i)
	}
	if p.loops > 0 {
		names, xs := stacks.groups(p)
		carry, ys := b.Scan([]*graph.Value{x}, xs, func(carry, row []*graph.Value) (next, ys []*graph.Value) {
			x := carry[0]
			for k := range p.period {
				var r balance
				x, r = checkpointed(p.first+k, x, stacks.inGroup(names, row, p, k))
				ys = append(ys, r.list()...)
			}
			return []*graph.Value{x}, ys
		})
		x = carry[0]
		note(interleave(ys, p.loops))
	}
	for i := p.first + p.period*p.loops; i < len(kinds); i++ {
		single(i)
	}
	return x, balances
}

func (r balance) list() []*graph.Value {
	if r.chosen == nil {
		return nil
	}
	return r.fields()
}

func (r balance) fields() []*graph.Value { return []*graph.Value{r.chosen, r.probs, r.z, r.dropped} }

func balanceOf(v []*graph.Value) balance {
	if len(v) == 0 {
		return balance{}
	}
	return balance{v[0], v[1], v[2], v[3]}
}

// interleave puts what the routers of a period did, of every loop, into the order
// of the layers.
func interleave(ys []*graph.Value, loops int) balance {
	fields := len(balance{}.fields())
	if len(ys) == 0 {
		return balance{}
	}
	var out []*graph.Value
	for f := range fields {
		var period []*graph.Value
		for k := f; k < len(ys); k += fields {
			period = append(period, ys[k])
		}
		x := graph.Stack(1, period...)
		out = append(out, graph.Reshape(x, append([]int{loops * len(period)}, x.Shape()[2:]...)...))
	}
	return balanceOf(out)
}

// stacks finds the parameters of single layers in their stacks: layers of both
// kinds have attention and norms, each kind has its own feed-forward.
type stacks struct {
	values map[string]*graph.Value
	place  Placement
	names  []string
	kinds  []bool
	rows   map[string][]*graph.Value // of stacks taken apart
}

func (m *Model) stacks(params map[string]*graph.Value, kinds []bool) *stacks {
	s := &stacks{values: params, place: m.Placement, kinds: kinds, rows: map[string][]*graph.Value{}}
	for _, p := range m.Config.Arrays() {
		if strings.HasPrefix(p.Name, "layers.") {
			s.names = append(s.names, p.Name)
		}
	}
	return s
}

// kindOf returns whether a stack holds all layers, or only sparse or dense ones.
func kindOf(name string) (all, sparse bool) {
	switch {
	case name == "layers.router" || name == RouterBias || strings.HasPrefix(name, "layers.experts."):
		return false, true
	case name == "layers.w_gate" || name == "layers.w_up" || name == "layers.w_down":
		return false, false
	}
	return true, false
}

// has reports whether layer i has a row in the stack.
func (s *stacks) has(name string, i int) bool {
	all, sparse := kindOf(name)
	return all || sparse == s.kinds[i]
}

// before counts the rows of the stack that belong to layers before i.
func (s *stacks) before(name string, i int) int {
	n := 0
	for k := range i {
		if s.has(name, k) {
			n++
		}
	}
	return n
}

// row returns the parameters of layer i alone.
func (s *stacks) row(i int) weights {
	w := weights{}
	for _, n := range s.names {
		if s.has(n, i) {
			if s.rows[n] == nil {
				s.rows[n] = unstack(s.values[n])
				for k, row := range s.rows[n] {
					s.rows[n][k] = s.place.Stack(row, n)
				}
			}
			w[n] = s.rows[n][s.before(n, i)]
		}
	}
	return w
}

// groups returns the stacks' part in the loop as [loops, rows in a period, …],
// with their names.
func (s *stacks) groups(p plan) (names []string, xs []*graph.Value) {
	for _, n := range s.names {
		from, to := s.before(n, p.first), s.before(n, p.first+p.period*p.loops)
		if from == to {
			continue
		}
		x := graph.SliceDim(s.place.Stack(s.values[n], n), 0, from, to)
		xs = append(xs, graph.Reshape(x, append([]int{p.loops, (to - from) / p.loops}, x.Shape()[1:]...)...))
		names = append(names, n)
	}
	return names, xs
}

// inGroup returns the parameters of layer k of a period, given the loop's rows.
func (s *stacks) inGroup(names []string, row []*graph.Value, p plan, k int) weights {
	w := weights{}
	for i, n := range names {
		if s.has(n, p.first+k) {
			at := s.before(n, p.first+k) - s.before(n, p.first)
			w[n] = graph.Squeeze(graph.SliceDim(row[i], 0, at, at+1), 0)
		}
	}
	return w
}

// unstack takes x apart along its first dimension. The gradient puts the rows'
// together again, once, where the derivatives of slices would each be as large
// as x.
func unstack(x *graph.Value) []*graph.Value {
	n := x.Dim(0)
	return graph.CustomVJP([]*graph.Value{x},
		func(args []*graph.Value) (outs, residuals []*graph.Value) {
			for i := range n {
				outs = append(outs, graph.Squeeze(graph.SliceDim(args[0], 0, i, i+1), 0))
			}
			return outs, nil
		},
		func(_, cts []*graph.Value) []*graph.Value { return []*graph.Value{graph.Stack(0, cts...)} })
}
