package graph

import (
	"fmt"
	"slices"

	"titan/mesh"
	"titan/sharding"
)

// shardMapAttr describes a manual region. in and out give, over the manual axes
// only, how operands and results are split.
type shardMapAttr struct {
	mesh     *mesh.Mesh
	manual   axisSet // axes that become manual here
	around   axisSet // axes that are manual already outside
	in, out  []sharding.Spec
	declared int // results that the caller asked for; the rest are residuals
}

func (at *shardMapAttr) clone() *shardMapAttr {
	c := *at
	c.in, c.out = slices.Clone(at.in), slices.Clone(at.out)
	return &c
}

func init() {
	define(opShardMap, opDef{
		name:   "shard_map",
		infer:  inferShardMap,
		vjp:    shardMapVJP,
		wideCT: true,
		print:  printShardMap,
	})
}

// global is the type of an array whose shards over spec have type t.
func (at *shardMapAttr) global(t Type, spec sharding.Spec) Type {
	shape := slices.Clone(t.Shape)
	for i := range shape {
		for _, a := range spec.Dim(i) {
			shape[i] *= at.mesh.AxisSize(a)
		}
	}
	return Type{t.DType, shape}
}

func (at *shardMapAttr) local(t Type, spec sharding.Spec) (Type, error) {
	shape, err := spec.Shard(at.mesh, t.Shape)
	return Type{t.DType, shape}, err
}

func inferShardMap(op *Op) ([]Type, error) {
	at, body := op.attr.(*shardMapAttr), op.blocks[0]
	if len(at.in) != len(op.operands) || len(body.args) != len(op.operands) || len(at.out) != len(body.yields) {
		return nil, fmt.Errorf("%d operands with %d specs, %d results with %d specs", len(op.operands), len(at.in), len(body.yields), len(at.out))
	}
	for i, o := range op.operands {
		t, err := at.local(o.typ, at.in[i])
		if err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
		if !t.Equal(body.args[i].typ) {
			return nil, fmt.Errorf("operand %d has local type %v, the region's argument %v", i, t, body.args[i].typ)
		}
	}
	var ts []Type
	for i, y := range body.yields {
		ts = append(ts, at.global(y.typ, at.out[i]))
	}
	return ts, nil
}

// shardMapBuilder records one manual region; arguments may be added while the
// body is recorded.
type shardMapBuilder struct {
	b       *Builder
	at      *shardMapAttr
	op      *Op
	blk     *Block
	depth   int
	indices map[string]*Value
}

func (b *Builder) beginShardMap(manual axisSet) *shardMapBuilder {
	s := &shardMapBuilder{b: b, blk: &Block{module: b.m}, depth: len(b.frames) - 1, indices: map[string]*Value{}}
	s.at = &shardMapAttr{mesh: b.m.mesh, manual: manual, around: b.top().manual}
	s.op = &Op{kind: opShardMap, attr: s.at, blocks: []*Block{s.blk}}
	b.push(&frame{block: s.blk, manual: manual, shardMap: s, capture: func(outer *Value) *Value {
		return s.argument(outer, sharding.Replicated(outer.Rank()))
	}})
	return s
}

// arg passes outer into the region, split as spec says.
func (s *shardMapBuilder) arg(outer *Value, spec sharding.Spec) *Value {
	return s.argument(s.b.useAt(s.depth, "shard_map", outer), spec)
}

func (s *shardMapBuilder) argument(outer *Value, spec sharding.Spec) *Value {
	t, err := s.at.local(outer.typ, spec)
	if err != nil {
		s.b.failAt(s.b.position(2), "shard_map", []*Value{outer}, "argument %d: %v", len(s.op.operands), err)
	}
	s.op.operands = append(s.op.operands, outer)
	s.at.in = append(s.at.in, spec)
	v := s.blk.addArg(t)
	v.vary, v.gradType = outer.vary|s.b.axisSetOf("shard_map", spec.Axes()), outer.gradType
	return v
}

func (s *shardMapBuilder) end(yields []*Value, out []sharding.Spec) []*Value {
	b := s.b
	for i, y := range yields {
		y = b.use("shard_map", y)
		axes := b.axisSetOf("shard_map", out[i].Axes())
		if extra := y.vary & s.at.manual &^ axes; extra != 0 {
			b.failAt(b.position(2), "shard_map", []*Value{y}, "result %d differs from device to device over %s, which its spec %v does not mention; reduce it (AllReduce) or name the axis", i, quoted(b.m.axisNames(extra)), out[i])
		}
		s.blk.yields = append(s.blk.yields, b.levelTo(y, axes))
	}
	s.at.out = slices.Clone(out)
	s.at.declared = len(out)
	b.pop()
	s.op.block, s.op.pos = b.top().block, b.position(2)
	b.finishRegion(s.op, s.blk.yields)
	return slices.Clone(s.op.results)
}

// ManualOver limits a ShardMap to some mesh axes; over the others the region
// stays in the compiler's hands.
func ManualOver(axes ...string) ShardMapOption {
	return func(o *shardMapOptions) { o.axes = axes }
}

// ShardMapOption changes how ShardMap treats the mesh.
type ShardMapOption func(*shardMapOptions)

type shardMapOptions struct{ axes []string }

// ShardMap records f as a region that runs on every device with its own part of
// the data. args are split over the mesh as in says; f sees the local parts and
// may use the collectives (AllReduce, AllGather, …); its results are parts of
// arrays split as out says. Axes that a spec does not mention hold equal copies:
// for a result this is checked. Values used from outside enter as equal copies.
//
// Gradients are exact: what enters as equal copies has its cotangents summed
// over the devices, what is summed has its cotangent handed to all of them.
func (b *Builder) ShardMap(args []*Value, in, out []sharding.Spec, f func(local []*Value) []*Value, opts ...ShardMapOption) []*Value {
	return b.ShardMapOut(args, in, func(local []*Value) ([]*Value, []sharding.Spec) { return f(local), out }, opts...)
}

// ShardMapOut is ShardMap for an f that tells with its results how they are split.
func (b *Builder) ShardMapOut(args []*Value, in []sharding.Spec, f func(local []*Value) ([]*Value, []sharding.Spec), opts ...ShardMapOption) []*Value {
	if b.m.mesh == nil {
		b.fail("shard_map", "the program has no mesh")
	}
	var o shardMapOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.axes == nil {
		o.axes = b.m.axisNames(^b.top().manual)
	}
	manual := b.axisSetOf("shard_map", o.axes)
	if again := manual & b.top().manual; again != 0 || manual == 0 {
		b.fail("shard_map", "axes %s are manual already, or none is left to become manual", quoted(b.m.axisNames(again)))
	}
	if len(in) != len(args) {
		b.fail("shard_map", "%d specs for %d arguments", len(in), len(args))
	}
	check := func(specs []sharding.Spec) {
		for _, s := range specs {
			if used := b.axisSetOf("shard_map", s.Axes()) &^ manual; used != 0 {
				b.fail("shard_map", "spec %v names %s, which the region does not make manual", s, quoted(b.m.axisNames(used)))
			}
		}
	}
	check(in)
	s := b.beginShardMap(manual)
	local := make([]*Value, len(args))
	for i, x := range args {
		local[i] = s.arg(x, in[i])
	}
	ys, out := f(local)
	check(out)
	if len(ys) != len(out) {
		b.fail("shard_map", "the body returns %d results, there are %d specs", len(ys), len(out))
	}
	return s.end(ys, out)
}

// AxisIndex is the device's position along the named axes, the first slowest,
// as an s32 scalar. It is defined where the axes are manual.
func (b *Builder) AxisIndex(axes ...string) *Value {
	set := b.axisSetOf("axis_index", axes)
	for depth := len(b.frames) - 1; depth > 0; depth-- {
		if s := b.frames[depth].shardMap; s != nil && set&^s.at.manual == 0 && set != 0 {
			return b.use("axis_index", s.index(depth, axes, set))
		}
	}
	if set != 0 && set&^b.top().manual == 0 { // made manual by several regions
		v := b.AxisIndex(axes[0])
		for _, a := range axes[1:] {
			v = Add(Mul(v, b.Int(S32, int64(b.m.mesh.AxisSize(a)))), b.AxisIndex(a))
		}
		return v
	}
	b.fail("axis_index", "axes %s are not manual here; AxisIndex works inside a ShardMap over them", quoted(axes))
	return nil
}

// index passes 0, 1, 2, … split over the axes into the region. (A partition id
// would serve only where all axes are manual.)
func (s *shardMapBuilder) index(depth int, axes []string, set axisSet) *Value {
	key := fmt.Sprint(axes)
	if v := s.indices[key]; v != nil {
		return v
	}
	b := s.b
	n := b.m.axisSize(set)
	var v *Value
	b.popTo(depth-1, func() { v = b.Iota(T(S32, n), 0) })
	b.popTo(depth, func() { v = Reshape(s.arg(v, sharding.P(axes))) })
	s.indices[key] = v
	return v
}

// residualSpec says how a body value leaves as an extra result: parts that
// differ are put one after the other along the first dimension.
func (at *shardMapAttr) residualSpec(v *Value) sharding.Spec {
	axes := v.block.module.axisNames(v.vary & at.manual)
	if len(axes) == 0 {
		return sharding.Replicated(v.Rank())
	}
	return sharding.P(axes)
}

// export makes the body value v an extra result of op.
func (at *shardMapAttr) export(op *Op, v *Value) *Value {
	spec, y := at.residualSpec(v), v
	if len(spec.Axes()) > 0 && v.Rank() == 0 { // a scalar has no dimension to put parts along
		y = op.blocks[0].appendReshape(v, []int{1})
	}
	op.blocks[0].yields = append(op.blocks[0].yields, y)
	at.out = append(at.out, spec)
	r := op.insertResult(len(op.results), at.global(y.typ, spec))
	r.vary = v.vary & at.around
	return r
}

// bring passes outer, an extra result that was the body value like, into the
// block nb of n, a copy of the op.
func (at *shardMapAttr) bring(nb *Block, outer, like *Value) *Value {
	spec := at.residualSpec(like)
	at.in = append(at.in, spec)
	t, err := at.local(outer.typ, spec)
	if err != nil {
		t = like.typ // cannot happen: the type was made from the same spec
	}
	arg := nb.addArg(t)
	arg.vary = like.vary
	if like.Rank() == 0 && t.Rank() == 1 {
		return nb.appendReshape(arg, nil)
	}
	return arg
}

func (blk *Block) appendReshape(v *Value, shape []int) *Value {
	r := blk.appendOp(opReshape, slices.Clone(shape), v)
	r.typ.Shape = slices.Clone(shape)
	r.spec = nil // it was for another rank
	return r
}

// shardMapVJP records the region's backward pass as another manual region.
func shardMapVJP(a *adjoint, op *Op, cts []*Value) {
	at, body, b := op.attr.(*shardMapAttr), op.blocks[0], a.b
	active := map[*Value]bool{}
	for i, arg := range body.args {
		active[arg] = a.wants(op.operands[i])
	}
	propagate(active, body.ops)
	specs := slices.Clone(at.out[:len(cts)])
	s := b.beginShardMap(at.manual)
	r := newResidual(a, op, body, active, func(outer, like *Value) *Value {
		v := s.arg(outer, at.residualSpec(like))
		return Reshape(v, like.typ.Shape...)
	})
	r.argument = func(v *Value) *Value { return s.arg(a.val(op.operands[v.index]), at.in[v.index]) }
	for i, ct := range cts {
		if ct != nil {
			r.add(body.yields[i], s.arg(ct, specs[i]))
		}
	}
	r.run(body.ops)
	var ys []*Value
	var out []sharding.Spec
	var to []int
	for i, arg := range body.args {
		if ct := r.cts[arg]; ct != nil && active[arg] {
			ys, out, to = append(ys, ct), append(out, at.in[i]), append(to, i)
		}
	}
	if len(ys) == 0 {
		b.pop()
		return
	}
	for i, g := range s.end(ys, out) {
		a.add(op.operands[to[i]], g)
	}
}
