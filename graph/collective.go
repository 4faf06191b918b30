package graph

import (
	"fmt"
	"slices"
)

// collectiveAttr: axes are in the order given, the first slowest.
type collectiveAttr struct {
	axes  []string
	set   axisSet
	n     int // devices that take part together
	kind  reduceKind
	dim   int // gathered, scattered or split dimension
	dim2  int // dimension that all-to-all concatenates
	same  bool
	again bool // gathered again where the backward pass needs it
	pair  [][2]int
}

func isCollective(k opKind) bool { return k >= opAllReduce && k <= opPermute }

func init() {
	define(opAllReduce, opDef{
		name: "all_reduce", infer: sameType, wideCT: true,
		vary:  func(op *Op) axisSet { return op.operands[0].vary &^ op.attr.(collectiveAttr).set },
		vjp:   allReduceVJP,
		flops: func(op *Op) float64 { return float64(op.results[0].typ.Elements()) },
		print: func(p *printer, op *Op) { p.collective(op, "all_reduce", "") },
	})
	define(opAllGather, opDef{
		name: "all_gather", wideCT: true, form: true,
		infer: func(op *Op) ([]Type, error) {
			at, t := op.attr.(collectiveAttr), op.operands[0].typ
			if at.dim < 0 || at.dim >= t.Rank() {
				return nil, fmt.Errorf("dimension %d of a value of rank %d", at.dim, t.Rank())
			}
			shape := slices.Clone(t.Shape)
			shape[at.dim] *= at.n
			return []Type{{t.DType, shape}}, nil
		},
		vary: func(op *Op) axisSet {
			if at := op.attr.(collectiveAttr); at.same {
				return op.operands[0].vary &^ at.set
			}
			return op.operands[0].vary
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(collectiveAttr)
			if at.same { // every device holds the whole cotangent: take the own part
				n := op.operands[0].typ.Shape[at.dim]
				at0 := Mul(a.b.AxisIndex(at.axes...), a.b.Int(S32, int64(n)))
				a.add(op.operands[0], DynamicSliceDim(cts[0], at.dim, at0, n))
				return
			}
			a.add(op.operands[0], ReduceScatter(cts[0], at.dim, at.axes...))
		},
		print: func(p *printer, op *Op) {
			p.collective(op, "all_gather", fmt.Sprintf("all_gather_dim = %d : i64", op.attr.(collectiveAttr).dim))
		},
	})
	define(opReduceScatter, opDef{
		name: "reduce_scatter", wideCT: true,
		infer: func(op *Op) ([]Type, error) {
			at, t := op.attr.(collectiveAttr), op.operands[0].typ
			if at.dim < 0 || at.dim >= t.Rank() {
				return nil, fmt.Errorf("dimension %d of a value of rank %d", at.dim, t.Rank())
			}
			if t.Shape[at.dim]%at.n != 0 {
				return nil, fmt.Errorf("dimension %d of size %d does not divide over %d devices", at.dim, t.Shape[at.dim], at.n)
			}
			shape := slices.Clone(t.Shape)
			shape[at.dim] /= at.n
			return []Type{{t.DType, shape}}, nil
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(collectiveAttr)
			a.add(op.operands[0], AllGather(cts[0], at.dim, at.axes...))
		},
		flops: func(op *Op) float64 { return float64(op.operands[0].typ.Elements()) },
		print: func(p *printer, op *Op) {
			p.reduceScatter(op)
		},
	})
	define(opAllToAll, opDef{
		name: "all_to_all", wideCT: true, form: true,
		infer: func(op *Op) ([]Type, error) {
			at, t := op.attr.(collectiveAttr), op.operands[0].typ
			if max(at.dim, at.dim2) >= t.Rank() || min(at.dim, at.dim2) < 0 {
				return nil, fmt.Errorf("dimensions %d and %d of a value of rank %d", at.dim, at.dim2, t.Rank())
			}
			if t.Shape[at.dim]%at.n != 0 {
				return nil, fmt.Errorf("dimension %d of size %d does not divide over %d devices", at.dim, t.Shape[at.dim], at.n)
			}
			shape := slices.Clone(t.Shape)
			shape[at.dim] /= at.n
			shape[at.dim2] *= at.n
			return []Type{{t.DType, shape}}, nil
		},
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(collectiveAttr)
			a.add(op.operands[0], AllToAll(cts[0], at.dim2, at.dim, at.axes...))
		},
		print: func(p *printer, op *Op) {
			at := op.attr.(collectiveAttr)
			p.collective(op, "all_to_all", fmt.Sprintf("concat_dimension = %d : i64, split_count = %d : i64, split_dimension = %d : i64", at.dim2, at.n, at.dim))
		},
	})
	define(opPermute, opDef{
		name: "collective_permute", infer: sameType, wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			at := op.attr.(collectiveAttr)
			back := make([][2]int, len(at.pair))
			for i, p := range at.pair {
				back[i] = [2]int{p[1], p[0]}
			}
			a.add(op.operands[0], Permute(cts[0], back, at.axes...))
		},
		print: func(p *printer, op *Op) { p.permute(op) },
	})
}

// collective checks the axes and marks x as varying over them.
func collective(name string, x *Value, axes []string) (*Value, collectiveAttr) {
	if x == nil {
		mistake(name, "operand is nil")
	}
	b := x.b()
	set := b.axisSetOf(name, axes)
	if set == 0 || set&^b.top().manual != 0 {
		b.failAt(b.position(2), name, []*Value{x}, "axes %s are not all manual here; collectives belong inside a ShardMap over their axes", quoted(axes))
	}
	if set&b.top().diverge != 0 {
		b.failAt(b.position(2), name, []*Value{x}, "along %s devices may take different branches, or different numbers of iterations, here; those that arrive would wait forever for the others", quoted(b.m.axisNames(set&b.top().diverge)))
	}
	x = b.levelTo(b.use(name, x), set)
	return x, collectiveAttr{axes: slices.Clone(axes), set: set, n: b.m.axisSize(set)}
}

func allReduceVJP(a *adjoint, op *Op, cts []*Value) {
	at, x := op.attr.(collectiveAttr), op.operands[0]
	if at.kind == reduceSum {
		a.add(x, a.b.levelTo(cts[0], x.vary)) // every device's term counts once
		return
	}
	ct := Convert(cts[0], x.typ.DType)
	hit := Convert(Equal(a.val(x), a.val(op.results[0])), x.typ.DType)
	a.add(x, Mul(hit, Div(ct, AllReduce(hit, at.axes...))))
}

// allReduceSet is AllReduce over a set of axes in mesh order.
func allReduceSet(x *Value, set axisSet, kind reduceKind) *Value {
	if set == 0 {
		return x
	}
	return allReduce(x, x.b().m.axisNames(set), kind)
}

func allReduce(x *Value, axes []string, kind reduceKind) *Value {
	x, at := collective("all_reduce", x, axes)
	at.kind = kind
	return x.b().emit1(opAllReduce, at, x)
}

// AllReduce sums x over the devices along axes; all of them get the sum.
func AllReduce(x *Value, axes ...string) *Value { return allReduce(x, axes, reduceSum) }

// AllReduceMax is the largest x over the devices along axes.
func AllReduceMax(x *Value, axes ...string) *Value { return allReduce(x, axes, reduceMax) }

// AllReduceMin is the smallest x over the devices along axes.
func AllReduceMin(x *Value, axes ...string) *Value { return allReduce(x, axes, reduceMin) }

// AllReduceMean averages x over the devices along axes.
func AllReduceMean(x *Value, axes ...string) *Value {
	s := AllReduce(x, axes...)
	n := s.b().m.axisSize(s.b().axisSetOf("all_reduce", axes))
	return MulScalar(s, 1/float64(n))
}

// AllGather concatenates the devices' parts along dim, in the order of axes. Its
// transpose is ReduceScatter: the devices' uses of the whole are summed.
func AllGather(x *Value, dim int, axes ...string) *Value {
	x, at := collective("all_gather", x, axes)
	at.dim = x.b().dim("all_gather", dim, x.Rank())
	return x.b().emit1(opAllGather, at, x)
}

// AllGatherAgain is AllGather for a parameter: a loop's backward pass gathers it
// again where it needs it, so that one layer at most is held whole.
func AllGatherAgain(x *Value, dim int, axes ...string) *Value {
	x, at := collective("all_gather", x, axes)
	at.dim, at.again = x.b().dim("all_gather", dim, x.Rank()), true
	return x.b().emit1(opAllGather, at, x)
}

// AllGatherSame is AllGather for a result that is used in the same way on all
// devices along axes, and may leave the region as equal copies. Its transpose
// takes the own part and needs no communication.
func AllGatherSame(x *Value, dim int, axes ...string) *Value {
	x, at := collective("all_gather", x, axes)
	at.dim, at.same = x.b().dim("all_gather", dim, x.Rank()), true
	return x.b().emit1(opAllGather, at, x)
}

// ReduceScatter sums x over the devices along axes and leaves each its own part
// of dimension dim.
func ReduceScatter(x *Value, dim int, axes ...string) *Value {
	x, at := collective("reduce_scatter", x, axes)
	at.dim = x.b().dim("reduce_scatter", dim, x.Rank())
	return x.b().emit1(opReduceScatter, at, x)
}

// AllToAll cuts x into equal parts along split, sends part i to device i along
// axes, and concatenates what arrives along concat.
func AllToAll(x *Value, split, concat int, axes ...string) *Value {
	x, at := collective("all_to_all", x, axes)
	at.dim, at.dim2 = x.b().dim("all_to_all", split, x.Rank()), x.b().dim("all_to_all", concat, x.Rank())
	return x.b().emit1(opAllToAll, at, x)
}

// Permute sends x from device pair[0] to device pair[1] along axes, for every
// pair; a device that nothing is sent to gets zeros.
func Permute(x *Value, pairs [][2]int, axes ...string) *Value {
	x, at := collective("collective_permute", x, axes)
	if d := x.b().top().diverge; d != 0 { // it has no groups of devices that could go by themselves
		x.b().failAt(x.b().position(1), "collective_permute", []*Value{x}, "along %s devices may take different branches, or different numbers of iterations, here; a permutation needs every device of the mesh, so those that arrive would wait forever", quoted(x.b().m.axisNames(d)))
	}
	from, to := map[int]bool{}, map[int]bool{}
	for _, p := range pairs {
		if min(p[0], p[1]) < 0 || max(p[0], p[1]) >= at.n || from[p[0]] || to[p[1]] {
			x.b().failAt(x.b().position(1), "collective_permute", []*Value{x}, "pair %v: sources and targets must be different devices 0…%d along %s", p, at.n-1, quoted(axes))
		}
		from[p[0]], to[p[1]] = true, true
	}
	at.pair = slices.Clone(pairs)
	return x.b().emit1(opPermute, at, x)
}

// Shift sends x to the device by positions further along axis, round the ring.
func Shift(x *Value, by int, axis string) *Value {
	n := x.b().m.axisSize(x.b().axisSetOf("collective_permute", []string{axis}))
	pairs := make([][2]int, n)
	for i := range pairs {
		pairs[i] = [2]int{i, ((i+by)%n + n) % n}
	}
	return Permute(x, pairs, axis)
}

// WithGradIn marks x so that contractions produce its cotangent in d; see GradIn.
func WithGradIn(x *Value, d DType) *Value {
	if !d.IsFloat() {
		x.b().fail("grad_in", "%v is not a float", d)
	}
	v := x.b().emit1(opName, "", x)
	v.gradType = d
	return v
}
