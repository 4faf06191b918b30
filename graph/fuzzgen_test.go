package graph_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	. "titan/graph"
)

// The fuzzer writes random programs as trees first, because loops' bodies are
// recorded more than once, and because each program is evaluated in two ways:
// as it stands, and flat (fuzzflat_test.go).

// axes is a set of mesh axes, one bit each, in the order of fuzzAxes.
type axes uint8

var fuzzAxes = []string{"a", "b"}

const fuzzAxisSize = 2 // of each

func (s axes) names() (out []string) {
	for i, n := range fuzzAxes {
		if s>>i&1 == 1 {
			out = append(out, n)
		}
	}
	return out
}

func axesOf(names []string) (s axes) {
	for _, n := range names {
		s |= 1 << slices.Index(fuzzAxes, n)
	}
	return s
}

// ftype is the shape of a value, always of float64, and the manual axes over
// which devices may hold different ones.
type ftype struct {
	shape []int
	vary  axes
}

func (t ftype) elements() int { return T(F64, t.shape...).Elements() }

// fnode is one op or region. Values are numbered: those of the block around,
// then the block's parameters, then the results of its nodes.
type fnode struct {
	op     string
	in     []int
	ints   []int
	text   string
	axes   []string
	specs  [][][]string // of a region's arguments, then of its results
	policy Policy
	blocks []*fblock
	outs   []ftype
}

// fblock is the body of a region. A closed one sees only its parameters.
type fblock struct {
	params []ftype
	closed bool
	nodes  []*fnode
	yields []int
}

// fprogram is a whole program: main's parameters are the inputs.
type fprogram struct {
	seed   uint64
	budget int
	main   *fblock
}

// gen writes programs.
type gen struct {
	r      *rand.Rand
	budget int // nodes still to write
	depth  int
}

// scope is a block being written.
type scope struct {
	blk     *fblock
	env     []ftype
	manual  axes
	diverge axes // axes along which devices may be in other branches
}

const maxElements = 32

// generate writes the program of a seed with about budget nodes.
func generate(seed uint64, budget int) *fprogram {
	g := &gen{r: rand.New(rand.NewPCG(seed, 3)), budget: budget}
	s := &scope{blk: &fblock{}}
	for range 2 + g.r.IntN(2) {
		s.blk.params = append(s.blk.params, ftype{shape: g.shape()})
	}
	s.env = slices.Clone(s.blk.params)
	for g.budget > 0 {
		g.node(s)
	}
	s.blk.yields = g.last(s, 3)
	p := &fprogram{seed, budget, s.blk}
	p.main.infer(nil)
	return p
}

func (g *gen) chance(p float64) bool { return g.r.Float64() < p }

func (g *gen) shape() []int {
	for {
		shape := make([]int, g.r.IntN(4))
		for i := range shape {
			shape[i] = []int{1, 2, 2, 4, 4, 3}[g.r.IntN(6)]
		}
		if (ftype{shape: shape}).elements() <= maxElements {
			return shape
		}
	}
}

// pick chooses a value that satisfies ok, recent ones more often; -1 for none.
func (g *gen) pick(s *scope, ok func(t ftype) bool) int {
	var fit []int
	for i, t := range s.env {
		if ok == nil || ok(t) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return -1
	}
	if g.chance(0.6) {
		fit = fit[len(fit)-min(len(fit), 3):]
	}
	return fit[g.r.IntN(len(fit))]
}

// last chooses up to n of a block's newest values.
func (g *gen) last(s *scope, n int) []int {
	var out []int
	for i := len(s.env) - 1; i >= 0 && len(out) < n; i-- {
		if len(out) == 0 || g.chance(0.7) {
			out = append(out, i)
		}
	}
	return out
}

// node adds one op or region that fits.
func (g *gen) node(s *scope) {
	for {
		var n *fnode
		switch k := g.r.IntN(20); {
		case k < 5 && g.budget > 1 && g.depth < 4:
			n = g.region(s)
		case k < 10 && s.manual&^s.diverge != 0:
			n = g.collective(s)
		case k < 13 && s.manual != 1<<len(fuzzAxes)-1:
			n = g.constrain(s)
		default:
			n = g.simple(s)
		}
		if n == nil || slices.ContainsFunc(n.outs, func(t ftype) bool { return t.elements() > maxElements || len(t.shape) > 4 }) {
			continue
		}
		g.budget--
		s.add(n)
		return
	}
}

func (s *scope) add(n *fnode) {
	s.blk.nodes = append(s.blk.nodes, n)
	s.env = append(s.env, n.outs...)
}

func (s *scope) types(in []int) (out []ftype) {
	for _, i := range in {
		out = append(out, s.env[i])
	}
	return out
}

func (g *gen) simple(s *scope) *fnode {
	op := simpleOps[g.r.IntN(len(simpleOps))]
	n := &fnode{op: op.name}
	for range op.operands {
		i := g.pick(s, nil)
		if op.same && len(n.in) > 0 {
			first := s.env[n.in[0]]
			i = g.pick(s, func(t ftype) bool { return slices.Equal(t.shape, first.shape) })
		}
		n.in = append(n.in, i)
	}
	shape, ok := op.gen(g, n, s.types(n.in))
	if !ok {
		return nil
	}
	n.outs = []ftype{{shape, union(s.types(n.in))}}
	return n
}

// constrain says how a value is split over the axes that are not manual.
func (g *gen) constrain(s *scope) *fnode {
	x := g.pick(s, func(t ftype) bool { return len(t.shape) > 0 })
	if x < 0 {
		return nil
	}
	t := s.env[x]
	spec, _ := g.split(t, (1<<len(fuzzAxes)-1)&^s.manual)
	return &fnode{op: "constrain", in: []int{x}, specs: [][][]string{spec}, outs: []ftype{t}}
}

// split spreads a value over some of the axes; it gives the spec and the part.
func (g *gen) split(t ftype, set axes) (spec [][]string, local ftype) {
	local = ftype{slices.Clone(t.shape), t.vary}
	spec = make([][]string, len(t.shape))
	for _, a := range g.shuffled(set.names()) {
		if len(spec) == 0 || g.chance(0.25) {
			continue
		}
		if d := g.r.IntN(len(spec)); local.shape[d]%fuzzAxisSize == 0 {
			local.shape[d] /= fuzzAxisSize
			spec[d] = append(spec[d], a)
			local.vary |= axesOf([]string{a})
		}
	}
	return spec, local
}

func union(ts []ftype) (v axes) {
	for _, t := range ts {
		v |= t.vary
	}
	return v
}

func (g *gen) subset(of axes) axes {
	for {
		if s := axes(g.r.IntN(1<<len(fuzzAxes))) & of; s != 0 {
			return s
		}
	}
}

func (g *gen) shuffled(names []string) []string {
	g.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// collective writes communication over manual axes along which all devices
// come by.
func (g *gen) collective(s *scope) *fnode {
	set := g.subset(s.manual &^ s.diverge)
	n := &fnode{axes: g.shuffled(set.names()), in: []int{g.pick(s, nil)}}
	x := s.env[n.in[0]]
	size := 1 << len(n.axes) // fuzzAxisSize for each
	shape, vary := slices.Clone(x.shape), x.vary|set
	dim := func(divides bool) int {
		if len(shape) == 0 {
			return -1
		}
		d := g.r.IntN(len(shape))
		if divides && shape[d]%size != 0 {
			return -1
		}
		return d
	}
	kinds := []string{"all_reduce", "all_reduce", "all_reduce_max", "all_gather", "all_gather_same", "reduce_scatter", "all_to_all", "axis_index", "shift", "permute"}
	if s.diverge != 0 { // permutations need every device
		kinds = kinds[:8]
	}
	n.op = kinds[g.r.IntN(len(kinds))]
	switch n.op {
	case "all_reduce", "all_reduce_max":
		vary &^= set
	case "all_gather", "all_gather_same":
		d := dim(false)
		if d < 0 {
			return nil
		}
		shape[d] *= size
		n.ints = []int{d}
		if n.op == "all_gather_same" {
			vary &^= set
		}
	case "reduce_scatter":
		d := dim(true)
		if d < 0 {
			return nil
		}
		shape[d] /= size
		n.ints = []int{d}
	case "all_to_all":
		from, to := dim(true), dim(false)
		if from < 0 || to < 0 {
			return nil
		}
		shape[from] /= size
		shape[to] *= size
		n.ints = []int{from, to}
	case "shift", "permute":
		n.axes = n.axes[:1]
		vary = x.vary | axesOf(n.axes)
		n.ints = []int{1 + g.r.IntN(2)}
	}
	n.outs = []ftype{{shape, vary}}
	return n
}

// infer works out again over which axes values vary: exactly, where generating
// took an upper bound for what goes round a loop.
func (blk *fblock) infer(outer []ftype) []ftype {
	env := outer
	if blk.closed {
		env = nil
	}
	env = append(slices.Clone(env), blk.params...)
	for _, n := range blk.nodes {
		n.infer(env)
		env = append(env, n.outs...)
	}
	var ys []ftype
	for _, y := range blk.yields {
		ys = append(ys, env[y])
	}
	return ys
}

func (n *fnode) infer(env []ftype) {
	var in []ftype
	for _, i := range n.in {
		in = append(in, env[i])
	}
	set := axesOf(n.axes)
	switch n.op {
	case "all_reduce", "all_reduce_max", "all_gather_same":
		n.outs[0].vary = in[0].vary &^ set
	case "all_gather", "reduce_scatter", "all_to_all", "shift", "permute", "axis_index":
		n.outs[0].vary = in[0].vary | set
	case "scan":
		carries := n.ints[1]
		body := n.blocks[0]
		for i := range body.params {
			body.params[i].vary = in[i].vary
		}
		for again := true; again; {
			again = false
			ys := body.infer(env)
			for i := range n.outs {
				n.outs[i].vary = ys[i].vary
				if i < carries && ys[i].vary&^body.params[i].vary != 0 {
					body.params[i].vary |= ys[i].vary
					again = true
				}
				if i < carries {
					n.outs[i].vary |= body.params[i].vary
				}
			}
		}
	case "cond":
		spread := slices.Clone(env)
		for i := range spread {
			spread[i].vary |= in[0].vary
		}
		for i := range n.outs {
			n.outs[i].vary = in[0].vary
		}
		for _, blk := range n.blocks {
			for i, y := range blk.infer(spread) {
				n.outs[i].vary |= y.vary
			}
		}
	case "checkpoint":
		for i, y := range n.blocks[0].infer(env) {
			n.outs[i].vary = y.vary
		}
	case "shard_map":
		body := n.blocks[0]
		for i := range body.params {
			body.params[i].vary = in[i].vary
			for _, d := range n.specs[i] {
				body.params[i].vary |= axesOf(d)
			}
		}
		for i, y := range body.infer(env) {
			n.outs[i].vary = y.vary &^ set
		}
	case "grad":
		body := n.blocks[0]
		for i := range in {
			body.params[i].vary, n.outs[i].vary = in[i].vary, in[i].vary
		}
		body.infer(nil)
	default:
		n.outs[0].vary = union(in)
	}
}

// String lists the program, one node a line.
func (p *fprogram) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "program of seed %d, budget %d\n", p.seed, p.budget)
	p.main.dump(&sb, 0, "  ")
	return sb.String()
}

func (blk *fblock) dump(sb *strings.Builder, outer int, indent string) {
	next := outer
	if blk.closed {
		next = 0
	}
	fmt.Fprintf(sb, "%sparameters from %%%d:", indent, next)
	for _, t := range blk.params {
		fmt.Fprintf(sb, " %v", t)
	}
	sb.WriteString("\n")
	next += len(blk.params)
	for _, n := range blk.nodes {
		fmt.Fprintf(sb, "%s%%%d = %s%v", indent, next, n.op, n.in)
		if n.ints != nil {
			fmt.Fprintf(sb, " ints %v", n.ints)
		}
		if n.text != "" {
			fmt.Fprintf(sb, " %q", n.text)
		}
		if n.axes != nil {
			fmt.Fprintf(sb, " over %v", n.axes)
		}
		if n.specs != nil {
			fmt.Fprintf(sb, " specs %v", n.specs)
		}
		if n.op == "checkpoint" {
			fmt.Fprintf(sb, " policy %+v", n.policy)
		}
		fmt.Fprintf(sb, " : %v\n", n.outs)
		for _, b := range n.blocks {
			b.dump(sb, next, indent+"    ")
		}
		next += len(n.outs)
	}
	fmt.Fprintf(sb, "%syield %v\n", indent, blk.yields)
}
