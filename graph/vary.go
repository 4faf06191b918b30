package graph

// Inside a manual region every value knows over which manual axes devices may
// hold different data. The rule that keeps gradients exact and communication
// minimal: an op on values that vary differently first spreads the ones that
// vary less (pvary, which costs nothing), and the transpose of that spread is
// the sum over devices.

func init() {
	define(opPvary, opDef{
		name:   "pvary",
		infer:  sameType,
		vary:   func(op *Op) axisSet { return op.operands[0].vary | op.attr.(axisSet) },
		wideCT: true, form: true, view: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			a.add(op.operands[0], allReduceSet(cts[0], op.attr.(axisSet)&^op.operands[0].vary, reduceSum))
		},
		print: printIdentity,
	})
}

// Spread marks x as differing along axes of the manual region, although devices
// hold equal copies of it. It computes nothing. Its transpose is the sum over
// devices: whatever reads the result leaves its cotangents unsummed, so that
// they are added up once, here, and not at every use.
func Spread(x *Value, axes ...string) *Value {
	b := x.b()
	set := b.axisSetOf("spread", axes)
	if set&^b.top().manual != 0 {
		b.fail("spread", "axes %s are not manual here; Spread works inside a ShardMap over them", quoted(b.m.axisNames(set&^b.top().manual)))
	}
	return b.levelTo(b.use("spread", x), set)
}

// levelVary spreads the operands of op over the union of their axes.
func (b *Builder) levelVary(op *Op) {
	var all axisSet
	for _, o := range op.operands {
		all |= o.vary
	}
	for i, o := range op.operands {
		op.operands[i] = b.levelTo(o, all)
	}
}

// levelTo marks v as varying over set as well.
func (b *Builder) levelTo(v *Value, set axisSet) *Value {
	if set&^v.vary == 0 {
		return v
	}
	return b.emit1(opPvary, set&^v.vary, v)
}

// matchVary brings v to vary over exactly set: where it varies less it is
// spread, where it varies more it is summed.
func (b *Builder) matchVary(v *Value, set axisSet) *Value {
	return b.levelTo(allReduceSet(v, v.vary&^set, reduceSum), set)
}
